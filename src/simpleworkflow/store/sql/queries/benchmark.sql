-- What `simpleworkflow bench` asks a database besides its ordinary work.

-- name: durability
-- What the figures were bought with: the settings of this very session, and the database's version.
SELECT 'SQLite' AS name, sqlite_version() AS setting
UNION ALL SELECT 'journal_mode', j.journal_mode FROM pragma_journal_mode j
UNION ALL SELECT 'synchronous', CASE s.synchronous WHEN 0 THEN 'off' WHEN 1 THEN 'normal' WHEN 2 THEN 'full' ELSE 'extra' END
FROM pragma_synchronous s

-- name: wal_position
-- How many bytes of log the whole server has written. SQLite: nothing that compares.

-- name: drop_schema
-- SQLite: its tables are in a file, and the file is removed.
