-- PostgreSQL's own texts.

-- name: wal_position
-- differs: SQLite has no such position
SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint AS bytes

-- name: drop_schema
-- differs: SQLite has no schemas
DROP SCHEMA IF EXISTS {schema} CASCADE
