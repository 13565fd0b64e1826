"""`simpleworkflow worker` runs a worker as a process; `simpleworkflow workers` lists those that are alive."""
