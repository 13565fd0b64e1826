"""What sched's documents promise, kept here: its scenarios, its history, and every promise that its code broke."""
