-- Runs, their audit trail, the definitions and the workers. Same tables, columns and rules as on PostgreSQL.
-- Instants are integer microseconds since 1970 (UTC); the *_readable views show them as text.
-- No AUTOINCREMENT, WITHOUT ROWID or generated columns: other engines of the SQLite family mishandle them.

-- migrate:up

CREATE TABLE workflow_run (
  id              TEXT PRIMARY KEY NOT NULL DEFAULT (
    -- UUIDv7: 48 bits of milliseconds, version, 12 random bits, variant, 62 random bits
    substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 1, 8) || '-' ||
    substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 9, 4) || '-7' ||
    substr(lower(hex(randomblob(2))), 2) || '-' || substr('89ab', 1 + (random() & 3), 1) ||
    substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6)))),
  version         INTEGER NOT NULL DEFAULT 0,
  lease_epoch     INTEGER NOT NULL DEFAULT 0,
  wakes           INTEGER NOT NULL DEFAULT 0,
  run_at          INTEGER DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  lease_until     INTEGER,
  updated_at      INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  started_at      INTEGER,
  finished_at     INTEGER,
  held_at         INTEGER,
  deadline_at     INTEGER,
  start_by        INTEGER,
  created_at      INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  deleted_at      INTEGER,
  parent_id       TEXT,
  priority        INTEGER NOT NULL DEFAULT 100,
  attempt         INTEGER NOT NULL DEFAULT 0,
  crashes         INTEGER NOT NULL DEFAULT 0,
  max_attempts    INTEGER,
  status          TEXT NOT NULL DEFAULT 'pending',
  leased_by       TEXT,
  last_error      TEXT,
  error           TEXT,
  result          TEXT,
  hold_reason     TEXT,
  delete_reason   TEXT,
  idempotency_key TEXT,
  traceparent     TEXT,
  type            TEXT NOT NULL,
  payload         TEXT NOT NULL DEFAULT 'null',

  CONSTRAINT workflow_run_status CHECK (status IN
    ('pending', 'leased', 'paused', 'succeeded', 'failed', 'cancelled', 'timed_out')),
  CONSTRAINT workflow_run_terminal_is_finished CHECK (
    (status IN ('succeeded', 'failed', 'cancelled', 'timed_out')) = (finished_at IS NOT NULL)),
  CONSTRAINT workflow_run_leased_has_lease CHECK (
    (status = 'leased') = (lease_until IS NOT NULL) AND (status = 'leased') = (leased_by IS NOT NULL)),
  CONSTRAINT workflow_run_pending_is_due CHECK (status <> 'pending' OR run_at IS NOT NULL),
  CONSTRAINT workflow_run_deleted_is_finished CHECK (deleted_at IS NULL OR finished_at IS NOT NULL),
  CONSTRAINT workflow_run_type CHECK (length(type) BETWEEN 1 AND 200 AND type NOT GLOB '*[^A-Za-z0-9_.-]*'),
  CONSTRAINT workflow_run_priority CHECK (priority BETWEEN 0 AND 999),
  CONSTRAINT workflow_run_counts CHECK (attempt >= 0 AND crashes >= 0 AND max_attempts >= 1 AND lease_epoch >= 0),
  CONSTRAINT workflow_run_key CHECK (length(idempotency_key) BETWEEN 1 AND 255),
  CONSTRAINT workflow_run_traceparent CHECK (length(traceparent) <= 512),
  -- Text and numbers of another shape would compare, sort and expire in ways nobody means.
  CONSTRAINT workflow_run_id CHECK (
    length(id) = 36 AND id NOT GLOB '*[^0-9a-f-]*' AND length(replace(id, '-', '')) = 32
    AND substr(id, 9, 1) || substr(id, 14, 1) || substr(id, 19, 1) || substr(id, 24, 1) = '----'),
  CONSTRAINT workflow_run_instants CHECK (
    typeof(run_at) IN ('integer', 'null') AND typeof(deadline_at) IN ('integer', 'null')
    AND typeof(start_by) IN ('integer', 'null') AND typeof(created_at) = 'integer'),
  CONSTRAINT workflow_run_json CHECK (json_valid(payload))
);

CREATE INDEX workflow_run_ready ON workflow_run (type, priority, run_at, id)
  WHERE status IN ('pending', 'paused') AND run_at IS NOT NULL AND held_at IS NULL AND crashes = 0;
CREATE INDEX workflow_run_suspect ON workflow_run (type, priority, run_at, id)
  WHERE status IN ('pending', 'paused') AND run_at IS NOT NULL AND held_at IS NULL AND crashes > 0;
CREATE INDEX workflow_run_leased ON workflow_run (leased_by, id) WHERE status = 'leased';
CREATE UNIQUE INDEX workflow_run_idempotency ON workflow_run (idempotency_key)
  WHERE idempotency_key IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX workflow_run_deadline ON workflow_run (deadline_at)
  WHERE deadline_at IS NOT NULL AND finished_at IS NULL;
CREATE INDEX workflow_run_start_by ON workflow_run (start_by)
  WHERE start_by IS NOT NULL AND lease_epoch = 0 AND finished_at IS NULL;
CREATE INDEX workflow_run_parent ON workflow_run (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE workflow_event (
  id          INTEGER PRIMARY KEY,
  workflow_id TEXT NOT NULL,
  lease_epoch INTEGER,
  created_at  INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  event_type  TEXT NOT NULL,
  data        TEXT,
  CONSTRAINT workflow_event_type CHECK (event_type IN
    ('created', 'leased', 'started', 'heartbeat', 'step_retried', 'retried', 'released', 'paused', 'woken',
     'succeeded', 'failed', 'cancelled', 'timed_out', 'held', 'resumed', 'deleted'))
);
CREATE INDEX workflow_event_run ON workflow_event (workflow_id, id);

CREATE TABLE workflow_registry (
  workflow_name TEXT PRIMARY KEY NOT NULL,
  runtime       TEXT NOT NULL DEFAULT 'python',
  is_enabled    INTEGER NOT NULL DEFAULT 1,
  description   TEXT,
  on_cancel     TEXT,
  dead_letter   TEXT,
  on_exhausted  TEXT,
  updated_at    INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000)
);

CREATE TABLE workflow_worker (
  id         TEXT PRIMARY KEY NOT NULL,
  name       TEXT NOT NULL,
  host       TEXT NOT NULL,
  pid        INTEGER NOT NULL,
  spans      TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  seen_at    INTEGER NOT NULL,
  stopped_at INTEGER
);

-- Every insert, ours or plain SQL, tells the audit trail.
CREATE TRIGGER run_created AFTER INSERT ON workflow_run
BEGIN
  INSERT INTO workflow_event (workflow_id, event_type, created_at) VALUES (NEW.id, 'created', NEW.created_at);
END;

-- A foreign writer cancels or deletes with plain SQL. A SQLite trigger cannot change NEW, so the lawful update is made
-- here in its stead and the foreign one is dropped; any other foreign change of status is refused.
CREATE TRIGGER run_cancelled_by_sql BEFORE UPDATE OF status, deleted_at ON workflow_run
WHEN NEW.version = OLD.version AND OLD.finished_at IS NULL
     AND (NEW.status = 'cancelled' OR (NEW.deleted_at IS NOT NULL AND OLD.deleted_at IS NULL))
BEGIN
  UPDATE workflow_run
  SET status = 'cancelled', version = version + 1, lease_until = NULL, leased_by = NULL,
      finished_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000,
      updated_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000,
      last_error = NEW.last_error, deleted_at = NEW.deleted_at, delete_reason = NEW.delete_reason
  WHERE id = OLD.id;
  INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, data)
  VALUES (OLD.id, 'cancelled', OLD.lease_epoch, '{"by":"sql"}');
  INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, data)
  SELECT OLD.id, 'deleted', OLD.lease_epoch, '{"by":"sql"}' WHERE NEW.deleted_at IS NOT NULL;
  SELECT RAISE(IGNORE);
END;
CREATE TRIGGER run_deleted_by_sql AFTER UPDATE OF deleted_at ON workflow_run
WHEN NEW.version = OLD.version AND OLD.finished_at IS NOT NULL
     AND NEW.deleted_at IS NOT NULL AND OLD.deleted_at IS NULL AND NEW.status = OLD.status
BEGIN
  INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, data)
  VALUES (OLD.id, 'deleted', OLD.lease_epoch, '{"by":"sql"}');
  UPDATE workflow_run
  SET version = version + 1, updated_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000
  WHERE id = OLD.id;
END;
CREATE TRIGGER run_moved_by_sql BEFORE UPDATE OF status ON workflow_run
WHEN NEW.version = OLD.version AND NEW.status <> OLD.status
     AND (NEW.status <> 'cancelled' OR OLD.finished_at IS NOT NULL)
BEGIN
  SELECT RAISE(ABORT, 'plain SQL may only cancel an open run or delete one; use the API for other moves');
END;

-- A sweep picks its rows first and moves them one by one. One that an earlier row's end has just taken along (its
-- parent was swept before it) is left as it is.
CREATE TRIGGER run_swept_too_late BEFORE UPDATE OF status ON workflow_run
WHEN NEW.version > OLD.version AND OLD.finished_at IS NOT NULL AND NEW.finished_at IS NOT NULL
BEGIN
  SELECT RAISE(IGNORE);
END;

-- What every end of a run owes to others, whoever ends it. One place, as on PostgreSQL (see run_ended there).
CREATE TRIGGER run_ended_wakes_parent AFTER UPDATE ON workflow_run
WHEN OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL AND NEW.parent_id IS NOT NULL
BEGIN
  UPDATE workflow_run
  SET wakes = wakes + 1, version = version + 1, updated_at = NEW.finished_at,
      run_at = CASE WHEN status = 'paused' THEN min(coalesce(run_at, 9223372036854775807), NEW.finished_at +
        CASE WHEN EXISTS (SELECT 1 FROM workflow_run c WHERE c.parent_id = NEW.parent_id AND c.finished_at IS NULL)
             THEN 1000000 ELSE 0 END) ELSE run_at END
  WHERE id = NEW.parent_id AND finished_at IS NULL;
END;
-- All open descendants at once: a trigger does not fire itself unless its connection asks for that, and foreign
-- connections do not.
CREATE TRIGGER run_ended_cancels_children AFTER UPDATE ON workflow_run
WHEN OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL AND NEW.status <> 'succeeded'
BEGIN
  INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
  SELECT id, 'cancelled', lease_epoch, '{"by":"parent"}', NEW.finished_at
  FROM workflow_run WHERE id IN (
    WITH RECURSIVE below(id) AS (
      SELECT c.id FROM workflow_run c WHERE c.parent_id = NEW.id AND c.finished_at IS NULL
      UNION SELECT c.id FROM below JOIN workflow_run c ON c.parent_id = below.id WHERE c.finished_at IS NULL)
    SELECT id FROM below);
  UPDATE workflow_run
  SET status = 'cancelled', version = version + 1, finished_at = NEW.finished_at, updated_at = NEW.finished_at,
      lease_until = NULL, leased_by = NULL, last_error = 'its parent ended: ' || NEW.status
  WHERE id IN (
    WITH RECURSIVE below(id) AS (
      SELECT c.id FROM workflow_run c WHERE c.parent_id = NEW.id AND c.finished_at IS NULL
      UNION SELECT c.id FROM below JOIN workflow_run c ON c.parent_id = below.id WHERE c.finished_at IS NULL)
    SELECT id FROM below);
END;
CREATE TRIGGER run_ended_starts_undo AFTER UPDATE ON workflow_run
WHEN OLD.finished_at IS NULL AND NEW.status = 'cancelled'
BEGIN
  INSERT OR IGNORE INTO workflow_run
    (type, priority, traceparent, run_at, idempotency_key, payload, created_at, updated_at)
  SELECT g.on_cancel, NEW.priority, NEW.traceparent,
         CASE WHEN OLD.status = 'leased' THEN max(OLD.lease_until, NEW.finished_at) ELSE NEW.finished_at END,
         'on_cancel:' || NEW.id || ':' || NEW.lease_epoch
           || CASE WHEN OLD.status = 'leased' THEN '' ELSE '.' || NEW.version END,
         json_object('run_id', NEW.id, 'type', NEW.type, 'payload', json(NEW.payload)),
         NEW.finished_at, NEW.finished_at
  FROM workflow_registry g WHERE g.workflow_name = NEW.type AND g.on_cancel IS NOT NULL;
END;
CREATE TRIGGER run_ended_starts_dead_letter AFTER UPDATE ON workflow_run
WHEN OLD.finished_at IS NULL AND NEW.status = 'failed'
BEGIN
  INSERT OR IGNORE INTO workflow_run
    (type, priority, traceparent, run_at, idempotency_key, payload, created_at, updated_at)
  SELECT g.dead_letter, NEW.priority, NEW.traceparent, NEW.finished_at, 'dead_letter:' || NEW.id || ':' || NEW.lease_epoch,
         json_object('run_id', NEW.id, 'type', NEW.type, 'payload', json(NEW.payload), 'attempt', NEW.attempt,
                     'last_error', NEW.last_error, 'error', json(NEW.error)),
         NEW.finished_at, NEW.finished_at
  FROM workflow_registry g WHERE g.workflow_name = NEW.type AND g.dead_letter IS NOT NULL;
END;

CREATE VIEW workflow_run_readable AS
SELECT id, type, status, priority, attempt, crashes, max_attempts, leased_by, lease_epoch, last_error, payload, result,
       strftime('%Y-%m-%dT%H:%M:%fZ', run_at / 1e6, 'unixepoch') AS run_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', lease_until / 1e6, 'unixepoch') AS lease_until,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1e6, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1e6, 'unixepoch') AS started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1e6, 'unixepoch') AS finished_at
FROM workflow_run;
CREATE VIEW workflow_event_readable AS
SELECT id, workflow_id, event_type, lease_epoch, data,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1e6, 'unixepoch') AS created_at
FROM workflow_event;

-- migrate:down

DROP VIEW workflow_run_readable;
DROP VIEW workflow_event_readable;
DROP TABLE workflow_run;
DROP TABLE workflow_event;
DROP TABLE workflow_registry;
DROP TABLE workflow_worker;
