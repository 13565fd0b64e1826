-- The outbox on its way out: which lifecycle events go there, what became of each delivery, who delivers what. Same
-- tables and rules as on PostgreSQL; see the comments there.

-- migrate:up

ALTER TABLE outbox_event ADD COLUMN status TEXT NOT NULL DEFAULT 'waiting' CONSTRAINT outbox_event_status CHECK
  (status IN ('waiting', 'retrying', 'behind', 'dead', 'skipped', 'published'));
ALTER TABLE outbox_event ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox_event ADD COLUMN due_at INTEGER;
ALTER TABLE outbox_event ADD COLUMN skipped_at INTEGER;
ALTER TABLE outbox_event ADD COLUMN skipped_by TEXT;
ALTER TABLE outbox_event ADD COLUMN skip_reason TEXT;
ALTER TABLE outbox_event ADD COLUMN last_error TEXT;
UPDATE outbox_event SET status = 'published' WHERE published_at IS NOT NULL;

DROP INDEX outbox_event_unpublished;
CREATE INDEX outbox_event_waiting ON outbox_event (substr(CAST(aggregate_id AS text), 36, 1), id)
  WHERE status = 'waiting' AND published_at IS NULL;
CREATE INDEX outbox_event_retrying ON outbox_event (substr(CAST(aggregate_id AS text), 36, 1), due_at)
  WHERE status = 'retrying' AND published_at IS NULL;
CREATE INDEX outbox_event_stuck ON outbox_event (aggregate_id, sequence)
  WHERE status IN ('retrying', 'dead') AND published_at IS NULL;
CREATE INDEX outbox_event_behind ON outbox_event (aggregate_id, sequence)
  WHERE status = 'behind' AND published_at IS NULL;
CREATE INDEX outbox_event_dead ON outbox_event (id) WHERE status = 'dead' AND published_at IS NULL;
CREATE INDEX outbox_event_published ON outbox_event (published_at, id) WHERE published_at IS NOT NULL;

CREATE TABLE outbox_lane (
  lane        TEXT PRIMARY KEY NOT NULL,
  owner       TEXT,
  lease_until INTEGER,
  epoch       INTEGER NOT NULL DEFAULT 0,
  CONSTRAINT outbox_lane_leased CHECK ((owner IS NULL) = (lease_until IS NULL))
);
INSERT INTO outbox_lane (lane)
VALUES ('0'), ('1'), ('2'), ('3'), ('4'), ('5'), ('6'), ('7'), ('8'), ('9'), ('a'), ('b'), ('c'), ('d'), ('e'), ('f');
CREATE TABLE outbox_dispatcher (
  id      TEXT PRIMARY KEY NOT NULL,
  seen_at INTEGER NOT NULL
);

CREATE TABLE outbox_rule (
  event_type TEXT NOT NULL,
  low        TEXT NOT NULL,
  high       TEXT NOT NULL,
  created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  PRIMARY KEY (event_type, low, high),
  CONSTRAINT outbox_rule_span CHECK (low < high),
  CONSTRAINT outbox_rule_event CHECK (event_type IN
    ('created', 'leased', 'started', 'heartbeat', 'step_retried', 'retried', 'released', 'paused', 'woken',
     'succeeded', 'failed', 'cancelled', 'timed_out', 'held', 'resumed', 'deleted'))
);

-- Without rules this costs one look into an empty index per event. Some events are written before the row they tell of
-- is changed, so the status comes from the event.
CREATE TRIGGER event_to_outbox AFTER INSERT ON workflow_event
WHEN EXISTS (SELECT 1 FROM outbox_rule u WHERE u.event_type = NEW.event_type)
BEGIN
  INSERT INTO outbox_event (aggregate_id, sequence, event_type, created_at, payload)
  SELECT NEW.workflow_id,
         coalesce((SELECT max(o.sequence) FROM outbox_event o WHERE o.aggregate_id = NEW.workflow_id), 0) + 1,
         'simpleworkflow.run.' || NEW.event_type, NEW.created_at,
         json_object(
           'run_id', r.id, 'type', r.type, 'event', NEW.event_type,
           'status', CASE WHEN NEW.event_type IN ('leased', 'paused', 'succeeded', 'failed', 'cancelled', 'timed_out')
                            THEN NEW.event_type
                          WHEN NEW.event_type IN ('created', 'retried', 'released') THEN 'pending'
                          WHEN NEW.event_type IN ('started', 'heartbeat', 'step_retried') THEN 'leased'
                          ELSE r.status END,
           'attempt', r.attempt, 'epoch', coalesce(NEW.lease_epoch, r.lease_epoch),
           'error', substr(coalesce(CASE WHEN json_valid(NEW.data) THEN json_extract(NEW.data, '$.error') END,
             CASE WHEN NEW.event_type IN ('failed', 'cancelled', 'timed_out') THEN r.last_error END), 1, 500),
           'created_at', strftime('%Y-%m-%dT%H:%M:%S', r.created_at / 1000000, 'unixepoch')
             || printf('.%06d', r.created_at % 1000000) || '+00:00',
           'started_at', strftime('%Y-%m-%dT%H:%M:%S', r.started_at / 1000000, 'unixepoch')
             || printf('.%06d', r.started_at % 1000000) || '+00:00',
           'happened_at', strftime('%Y-%m-%dT%H:%M:%S', NEW.created_at / 1000000, 'unixepoch')
             || printf('.%06d', NEW.created_at % 1000000) || '+00:00')
  FROM workflow_run r
  WHERE r.id = NEW.workflow_id
    AND EXISTS (SELECT 1 FROM outbox_rule u
                WHERE u.event_type = NEW.event_type AND u.low <= r.type AND r.type < u.high);
END;

-- migrate:down

DROP TRIGGER event_to_outbox;
DROP TABLE outbox_rule;
DROP TABLE outbox_lane;
DROP TABLE outbox_dispatcher;
DROP INDEX outbox_event_waiting;
DROP INDEX outbox_event_retrying;
DROP INDEX outbox_event_stuck;
DROP INDEX outbox_event_behind;
DROP INDEX outbox_event_dead;
DROP INDEX outbox_event_published;
ALTER TABLE outbox_event DROP COLUMN status;
ALTER TABLE outbox_event DROP COLUMN attempt;
ALTER TABLE outbox_event DROP COLUMN due_at;
ALTER TABLE outbox_event DROP COLUMN skipped_at;
ALTER TABLE outbox_event DROP COLUMN skipped_by;
ALTER TABLE outbox_event DROP COLUMN skip_reason;
ALTER TABLE outbox_event DROP COLUMN last_error;
CREATE INDEX outbox_event_unpublished ON outbox_event (id) WHERE published_at IS NULL;
