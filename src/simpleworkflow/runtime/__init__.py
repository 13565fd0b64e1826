"""User code runs here, and what it did is made durable."""
