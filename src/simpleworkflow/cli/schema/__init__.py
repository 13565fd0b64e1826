"""`simpleworkflow migrate …`: the tables of a database."""
