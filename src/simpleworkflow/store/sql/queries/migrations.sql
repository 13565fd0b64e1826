-- The book of applied migrations. The lock comes first, the reading second: 16 processes may start at once.

-- name: lock_schema
-- SQLite: BEGIN IMMEDIATE has already locked everyone else out.

-- name: create_schema

-- name: create_migrations
CREATE TABLE IF NOT EXISTS workflow.schema_migrations (
  version    text PRIMARY KEY NOT NULL,
  checksum   text NOT NULL,
  applied_at text NOT NULL)

-- name: applied_migrations
SELECT m.version, m.checksum, m.applied_at AS applied FROM workflow.schema_migrations m ORDER BY m.version

-- name: record_migration
-- The time is told by the database, since the text may also be printed and run later by hand (`migrate sql`).
-- param: version text, checksum text
INSERT INTO workflow.schema_migrations (version, checksum, applied_at)
VALUES (:version, :checksum, strftime('%Y-%m-%dT%H:%M:%S+00:00', 'now'))

-- name: forget_migration
-- param: version text
DELETE FROM workflow.schema_migrations WHERE version = :version
