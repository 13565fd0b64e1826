-- What `simpleworkflow bench` asks a database besides its ordinary work.

-- name: wal_position
-- How many bytes of log the whole server has written. SQLite: nothing that compares.

-- name: drop_schema
-- SQLite: its tables are in a file, and the file is removed.
