"""`simpleworkflow demo`: 24 orders on SQLite, two killed workers, and a check that no finished step ran again."""
