"""`simpleworkflow bench`: measures a database on this machine, in a place of its own that is removed afterwards."""
