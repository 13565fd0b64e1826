-- Steps, signals and the outbox: what a run remembers while it waits, is told, and tells others.

-- migrate:up

-- What orders steps and signals among the events of a run: after which event, and the how-manyeth record since then.
-- A sequence number is last * 2^20 + n; an event stands at id * 2^20.
CREATE TABLE workflow_sequence (
  one  INTEGER PRIMARY KEY CHECK (one = 1),
  last INTEGER NOT NULL,
  n    INTEGER NOT NULL
);
INSERT INTO workflow_sequence (one, last, n) VALUES (1, 1, 0);

CREATE TABLE workflow_step (
  run_id       TEXT NOT NULL,
  seq          INTEGER NOT NULL,
  done_seq     INTEGER,
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
    ('step', 'sleep', 'signal', 'child', 'result', 'emit', 'publish', 'race', 'value')),
  CONSTRAINT workflow_step_status CHECK (status IN ('waiting', 'retrying', 'succeeded', 'failed', 'superseded')),
  CONSTRAINT workflow_step_completed CHECK ((status IN ('waiting', 'retrying')) = (completed_at IS NULL)),
  CONSTRAINT workflow_step_id CHECK (length(step_id) BETWEEN 1 AND 1000)
);

CREATE TABLE workflow_signal (
  id          TEXT PRIMARY KEY NOT NULL DEFAULT (
    substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 1, 8) || '-' ||
    substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 9, 4) || '-7' ||
    substr(lower(hex(randomblob(2))), 2) || '-' || substr('89ab', 1 + (random() & 3), 1) ||
    substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6)))),
  run_id      TEXT NOT NULL,
  seq         INTEGER NOT NULL DEFAULT 0,
  created_at  INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  consumed_at INTEGER,
  consumed_by TEXT,
  name        TEXT NOT NULL,
  payload     TEXT NOT NULL DEFAULT 'null',
  CONSTRAINT workflow_signal_name CHECK (length(name) BETWEEN 1 AND 200)
);
CREATE INDEX workflow_signal_unread ON workflow_signal (run_id, name, seq) WHERE consumed_at IS NULL;
CREATE INDEX workflow_signal_run ON workflow_signal (run_id, seq);

-- A plain INSERT is a whole signal, as on PostgreSQL.
CREATE TRIGGER signal_sent_by_sql AFTER INSERT ON workflow_signal WHEN NEW.seq = 0
BEGIN
  SELECT RAISE(ABORT, 'the run has finished, or there is none; the signal was not accepted')
  WHERE NOT EXISTS (SELECT 1 FROM workflow_run WHERE id = NEW.run_id AND finished_at IS NULL);
  UPDATE workflow_run
  SET wakes = wakes + 1, version = version + 1, updated_at = NEW.created_at,
      run_at = CASE WHEN status = 'paused' AND (run_at IS NULL OR run_at > NEW.created_at) THEN NEW.created_at
                    ELSE run_at END
  WHERE id = NEW.run_id;
  UPDATE workflow_sequence SET n = CASE WHEN last = (SELECT max(e.id) FROM workflow_event e) THEN n + 1 ELSE 1 END,
    last = (SELECT max(e.id) FROM workflow_event e);
  UPDATE workflow_signal SET seq = (SELECT q.last * 1048576 + q.n FROM workflow_sequence q) WHERE id = NEW.id;
END;

-- Events on their way out: written with the move or the step they tell of, numbered per run without gaps.
CREATE TABLE outbox_event (
  id           INTEGER PRIMARY KEY,
  aggregate_id TEXT NOT NULL,
  sequence     INTEGER NOT NULL,
  event_type   TEXT NOT NULL,
  created_at   INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  published_at INTEGER,
  payload      TEXT NOT NULL,
  CONSTRAINT outbox_event_type CHECK (length(event_type) BETWEEN 1 AND 200),
  UNIQUE (aggregate_id, sequence)
);
CREATE INDEX outbox_event_unpublished ON outbox_event (id) WHERE published_at IS NULL;

-- PostgreSQL's claim says itself which runs it woke; here the row's own change does.
CREATE TRIGGER run_woken AFTER UPDATE OF status ON workflow_run
WHEN OLD.status = 'paused' AND NEW.status = 'leased'
BEGIN
  INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, created_at)
  VALUES (NEW.id, 'woken', NEW.lease_epoch, NEW.updated_at);
END;

-- Everything that happened to a run, in sched's words; see PostgreSQL's text. Instants stay integers, as everywhere
-- here. What one statement has written shares a sequence number; the row tells it apart.
CREATE VIEW workflow_history AS
WITH head AS NOT MATERIALIZED (
  SELECT s.*, substr(s.place_id, 1, instr(s.place_id, '#') - 1) AS head
  FROM (SELECT s.rowid AS tie, s.*, CASE s.status WHEN 'superseded' THEN substr(s.step_id, 14 + length(s.lease_epoch))
                                      ELSE s.step_id END AS place_id
        FROM workflow_step s) AS s),
piece AS NOT MATERIALIZED (
  SELECT h.*, CASE h.kind WHEN 'result' THEN json_extract(h.input, '$')
                ELSE replace(h.head, rtrim(h.head, replace(h.head, '/', '')), '') END AS name
  FROM head h)
SELECT l.workflow_id, row_number() OVER (PARTITION BY l.workflow_id ORDER BY l.place, l.tie, l.phase) AS idx,
       l.event_type, l.happened_at AS "timestamp", l.details
FROM (
  SELECT r.id AS workflow_id, e.id * 1048576 AS place, 0 AS tie, 0 AS phase,
         'WorkflowStarted' AS event_type, e.created_at AS happened_at,
         json_object('workflow_name', r.type, 'input', json(r.payload)) AS details
  FROM workflow_event e JOIN workflow_run r ON r.id = e.workflow_id WHERE e.event_type = 'created'
  UNION ALL
  SELECT p.run_id, p.seq, p.tie, 0, 'ActivityScheduled', p.started_at,
         json_object('activity_name', p.name, 'step_id', p.place_id, 'input', json(p.input))
  FROM piece p WHERE p.kind IN ('step', 'child')
  UNION ALL
  SELECT p.run_id, coalesce(p.done_seq, p.seq), p.tie, 1,
         CASE p.status WHEN 'succeeded' THEN 'ActivityCompleted' ELSE 'ActivityFailed' END, p.completed_at,
         json_object('activity_name', p.name, 'step_id', p.place_id, 'result', json(p.output), 'error', json(p.error))
  FROM piece p WHERE p.kind IN ('step', 'result') AND p.completed_at IS NOT NULL
  UNION ALL
  SELECT p.run_id, p.seq, p.tie, 0, 'TimerScheduled', p.started_at,
         json_object('timer_id', p.place_id, 'fire_at', strftime('%Y-%m-%dT%H:%M:%S', p.due_at / 1000000, 'unixepoch')
                     || printf('.%06d', p.due_at % 1000000) || '+00:00')
  FROM piece p WHERE p.kind IN ('sleep', 'signal') AND p.due_at IS NOT NULL
  UNION ALL
  SELECT p.run_id, coalesce(p.done_seq, p.seq), p.tie, 1, 'TimerFired', p.completed_at,
         json_object('timer_id', p.place_id)
  FROM piece p
  WHERE p.due_at IS NOT NULL AND p.error IS NULL
    AND (p.kind = 'sleep' AND p.status = 'succeeded' OR p.kind = 'signal' AND p.status IN ('failed', 'superseded'))
  UNION ALL
  SELECT g.run_id, g.seq, 0, 0, 'SignalReceived', g.created_at,
         json_object('signal_name', g.name, 'input', json(g.payload))
  FROM workflow_signal g
  UNION ALL
  SELECT e.workflow_id, e.id * 1048576, 0, 0,
         CASE e.event_type WHEN 'step_retried' THEN 'ActivityRetryScheduled' WHEN 'paused' THEN 'WorkflowTaskYielded'
           WHEN 'succeeded' THEN 'WorkflowCompleted' WHEN 'failed' THEN 'WorkflowFailed'
           WHEN 'timed_out' THEN 'WorkflowTimedOut' ELSE 'WorkflowCancelRequested' END,
         e.created_at, e.data
  FROM workflow_event e
  WHERE e.event_type IN ('step_retried', 'paused', 'succeeded', 'failed', 'timed_out', 'cancelled')
  UNION ALL
  SELECT e.workflow_id, e.id * 1048576, 0, 1, 'WorkflowCanceled', e.created_at, e.data
  FROM workflow_event e WHERE e.event_type = 'cancelled'
) AS l;

-- migrate:down

DROP VIEW workflow_history;
DROP TRIGGER run_woken;
DROP TABLE workflow_step;
DROP TABLE workflow_sequence;
DROP TABLE workflow_signal;
DROP TABLE outbox_event;
