"""`simpleworkflow bench`: the command, and how it prints the report of the package `simpleworkflow.benchmark`."""
