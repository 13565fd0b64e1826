-- Steps, signals and the outbox: what a run remembers while it waits, is told, and tells others.

-- migrate:up

CREATE TABLE workflow_step (
  run_id       TEXT NOT NULL,
  seq          INTEGER NOT NULL,
  lease_epoch  INTEGER NOT NULL,
  started_at   INTEGER,
  completed_at INTEGER,
  due_at       INTEGER,
  attempt      INTEGER NOT NULL DEFAULT 0,
  kind         TEXT NOT NULL,
  status       TEXT NOT NULL,
  step_id      TEXT NOT NULL,
  input        TEXT,
  output       TEXT,
  error        TEXT,
  PRIMARY KEY (run_id, step_id),
  CONSTRAINT workflow_step_kind CHECK (kind IN
    ('step', 'sleep', 'signal', 'child', 'emit', 'race', 'value')),
  CONSTRAINT workflow_step_status CHECK (status IN ('waiting', 'retrying', 'succeeded', 'failed')),
  CONSTRAINT workflow_step_completed CHECK ((status IN ('succeeded', 'failed')) = (completed_at IS NOT NULL)),
  CONSTRAINT workflow_step_id CHECK (length(step_id) BETWEEN 1 AND 1000)
);

CREATE TABLE workflow_signal (
  id          TEXT PRIMARY KEY NOT NULL DEFAULT (
    substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 1, 8) || '-' ||
    substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 9, 4) || '-7' ||
    substr(lower(hex(randomblob(2))), 2) || '-' || substr('89ab', 1 + (random() & 3), 1) ||
    substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6)))),
  run_id      TEXT NOT NULL,
  seq         INTEGER NOT NULL,
  created_at  INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  consumed_at INTEGER,
  consumed_by TEXT,
  name        TEXT NOT NULL,
  payload     TEXT NOT NULL DEFAULT 'null',
  CONSTRAINT workflow_signal_name CHECK (length(name) BETWEEN 1 AND 200)
);
CREATE INDEX workflow_signal_unread ON workflow_signal (run_id, name, seq) WHERE consumed_at IS NULL;
CREATE INDEX workflow_signal_run ON workflow_signal (run_id, seq);

-- PostgreSQL's claim says itself which runs it woke; here the row's own change does.
CREATE TRIGGER run_woken AFTER UPDATE OF status ON workflow_run
WHEN OLD.status = 'paused' AND NEW.status = 'leased'
BEGIN
  INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, created_at)
  VALUES (NEW.id, 'woken', NEW.lease_epoch, NEW.updated_at);
END;

-- migrate:down

DROP TRIGGER run_woken;
DROP TABLE workflow_step;
DROP TABLE workflow_signal;
