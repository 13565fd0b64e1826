"""`simpleworkflow dev`: a worker that reloads when the code changes, and a view of its runs."""
