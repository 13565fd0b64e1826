"""The door: triggering runs, holding them by a handle, controlling them, waiting for results."""
