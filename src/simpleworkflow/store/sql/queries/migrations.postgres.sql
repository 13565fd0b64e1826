-- PostgreSQL's own texts.

-- name: lock_schema
-- differs: a transaction-level advisory lock, which also holds behind a transaction pooler
SELECT pg_advisory_xact_lock(hashtextextended('simpleworkflow.{schema}', 0))

-- name: create_schema
-- differs: SQLite has no schemas
CREATE SCHEMA IF NOT EXISTS {schema}
