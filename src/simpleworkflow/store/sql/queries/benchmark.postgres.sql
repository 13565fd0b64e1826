-- PostgreSQL's own texts.

-- name: durability
-- differs: the server's own list of settings
SELECT CASE s.name WHEN 'server_version' THEN 'PostgreSQL' ELSE s.name END AS name, s.setting
FROM pg_catalog.pg_settings s
WHERE s.name IN ('server_version', 'fsync', 'synchronous_commit', 'full_page_writes')
ORDER BY s.name <> 'server_version', s.name

-- name: wal_position
-- differs: SQLite has no such position
SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint AS bytes

-- name: drop_schema
-- differs: SQLite has no schemas
DROP SCHEMA IF EXISTS {schema} CASCADE
