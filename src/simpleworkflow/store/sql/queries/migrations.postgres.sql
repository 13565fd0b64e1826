-- PostgreSQL's own texts.

-- name: lock_schema
-- differs: a transaction-level advisory lock, which also holds behind a transaction pooler
SELECT pg_advisory_xact_lock(hashtextextended('simpleworkflow.{schema}', 0))

-- name: create_schema
-- differs: SQLite has no schemas
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: record_migration
-- differs: there is no strftime, and times of day have a zone
-- param: version text, checksum text
INSERT INTO workflow.schema_migrations (version, checksum, applied_at)
VALUES (:version, :checksum, to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"'))
