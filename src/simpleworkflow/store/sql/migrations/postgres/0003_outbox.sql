-- The outbox on its way out: which lifecycle events go there, what became of each delivery, who delivers what.

-- migrate:up

-- What became of an event. waiting: to be offered, in order of id; retrying: refused, offered again at due_at; behind:
-- an earlier event of its run is retrying or dead; dead: given up, an operator decides; skipped: an operator did;
-- published: the other side has it. published_at is when it left the outbox, skipped or not. Whoever changes any of
-- these holds the row lock of the event's lane.
ALTER TABLE workflow.outbox_event
  ADD COLUMN status      text NOT NULL DEFAULT 'waiting',
  ADD COLUMN attempt     integer NOT NULL DEFAULT 0,
  ADD COLUMN due_at      timestamptz,
  ADD COLUMN skipped_at  timestamptz,
  ADD COLUMN skipped_by  text,
  ADD COLUMN skip_reason text,
  ADD COLUMN last_error  text,
  ADD CONSTRAINT outbox_event_status CHECK (status IN
    ('waiting', 'retrying', 'behind', 'dead', 'skipped', 'published')),
  ADD CONSTRAINT outbox_event_due CHECK ((status = 'retrying') = (due_at IS NOT NULL)),
  ADD CONSTRAINT outbox_event_skipped CHECK ((status = 'skipped') = (skipped_at IS NOT NULL)),
  ADD CONSTRAINT outbox_event_gone CHECK (status NOT IN ('skipped', 'published') OR published_at IS NOT NULL);
UPDATE workflow.outbox_event SET status = 'published' WHERE published_at IS NOT NULL;

-- What can be offered now stands alone in its index, lane by lane: neither what is published nor what must wait is in
-- the way, however much there is of it. A lane is the last hexadecimal digit of the run's id.
DROP INDEX workflow.outbox_event_unpublished;
CREATE INDEX outbox_event_waiting ON workflow.outbox_event (substr(CAST(aggregate_id AS text), 36, 1), id)
  WHERE status = 'waiting' AND published_at IS NULL;
CREATE INDEX outbox_event_retrying ON workflow.outbox_event (substr(CAST(aggregate_id AS text), 36, 1), due_at)
  WHERE status = 'retrying' AND published_at IS NULL;
CREATE INDEX outbox_event_stuck ON workflow.outbox_event (aggregate_id, sequence)
  WHERE status IN ('retrying', 'dead') AND published_at IS NULL;
CREATE INDEX outbox_event_behind ON workflow.outbox_event (aggregate_id, sequence)
  WHERE status = 'behind' AND published_at IS NULL;
CREATE INDEX outbox_event_dead ON workflow.outbox_event (id) WHERE status = 'dead' AND published_at IS NULL;
CREATE INDEX outbox_event_published ON workflow.outbox_event (published_at, id) WHERE published_at IS NOT NULL;

-- Who delivers what. The epoch grows whenever a lane changes hands: marks with an older one do not land.
CREATE TABLE workflow.outbox_lane (
  lane        text PRIMARY KEY,
  owner       text,
  lease_until timestamptz,
  epoch       bigint NOT NULL DEFAULT 0,
  CONSTRAINT outbox_lane_leased CHECK ((owner IS NULL) = (lease_until IS NULL))
) WITH (fillfactor = 50);
INSERT INTO workflow.outbox_lane (lane)
VALUES ('0'), ('1'), ('2'), ('3'), ('4'), ('5'), ('6'), ('7'), ('8'), ('9'), ('a'), ('b'), ('c'), ('d'), ('e'), ('f');
CREATE TABLE workflow.outbox_dispatcher (
  id      text PRIMARY KEY,
  seen_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- Which lifecycle events go to the outbox: of runs whose type is in low <= type < high. Plain SQL here is a whole API.
CREATE TABLE workflow.outbox_rule (
  event_type text COLLATE "C" NOT NULL,
  low        text COLLATE "C" NOT NULL,
  high       text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (event_type, low, high),
  CONSTRAINT outbox_rule_span CHECK (low < high),
  CONSTRAINT outbox_rule_event CHECK (event_type IN
    ('created', 'leased', 'started', 'heartbeat', 'step_retried', 'retried', 'released', 'paused', 'woken',
     'succeeded', 'failed', 'cancelled', 'timed_out', 'held', 'resumed', 'deleted'))
);

-- The move and its event for others in one transaction, whoever moves. Numbers per run have no gaps: every writer of
-- events holds the lock of the run's row, and each statement of a trigger sees what was committed before it began.
-- Some events are written before the row they tell of is changed, so the status comes from the event.
CREATE FUNCTION workflow.event_to_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO workflow.outbox_event (aggregate_id, sequence, event_type, created_at, payload)
  SELECT e.workflow_id,
         coalesce((SELECT max(o.sequence) FROM workflow.outbox_event o WHERE o.aggregate_id = e.workflow_id), 0)
           + row_number() OVER (PARTITION BY e.workflow_id ORDER BY e.id),
         'simpleworkflow.run.' || e.event_type, e.created_at,
         json_build_object(
           'run_id', r.id, 'type', r.type, 'event', e.event_type,
           'status', CASE WHEN e.event_type IN ('leased', 'paused', 'succeeded', 'failed', 'cancelled', 'timed_out')
                            THEN e.event_type
                          WHEN e.event_type IN ('created', 'retried', 'released') THEN 'pending'
                          WHEN e.event_type IN ('started', 'heartbeat', 'step_retried') THEN 'leased'
                          ELSE r.status END,
           'attempt', r.attempt, 'epoch', coalesce(e.lease_epoch, r.lease_epoch),
           'error', left(coalesce(e.data ->> 'error',
             CASE WHEN e.event_type IN ('failed', 'cancelled', 'timed_out') THEN r.last_error END), 500),
           'created_at', to_char(r.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
           'started_at', to_char(r.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
           'happened_at', to_char(e.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))
  FROM inserted e JOIN workflow.workflow_run r ON r.id = e.workflow_id
  WHERE EXISTS (SELECT FROM workflow.outbox_rule u
                WHERE u.event_type = e.event_type AND u.low <= r.type AND r.type < u.high)
  ORDER BY e.id;
  RETURN NULL;
END $$;
CREATE TRIGGER event_to_outbox AFTER INSERT ON workflow.workflow_event
  REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION workflow.event_to_outbox();
ALTER TABLE workflow.workflow_event DISABLE TRIGGER event_to_outbox;

-- Nobody pays for rules that do not exist: the trigger above is on exactly while there is one. Writers of rules go one
-- after the other, or the first rule and the goodbye of the last could pass each other unseen.
CREATE FUNCTION workflow.outbox_rules_in_turn() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('simpleworkflow outbox_rule'), hashtext(TG_TABLE_SCHEMA));
  RETURN NULL;
END $$;
CREATE FUNCTION workflow.outbox_rules_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  is_wanted boolean := EXISTS (SELECT FROM workflow.outbox_rule);
  is_on boolean;
BEGIN
  SELECT t.tgenabled <> 'D' INTO is_on FROM pg_trigger t
  WHERE t.tgrelid = 'workflow.workflow_event'::regclass AND t.tgname = 'event_to_outbox';
  IF is_wanted AND NOT is_on THEN
    ALTER TABLE workflow.workflow_event ENABLE TRIGGER event_to_outbox;
  ELSIF is_on AND NOT is_wanted THEN
    ALTER TABLE workflow.workflow_event DISABLE TRIGGER event_to_outbox;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER outbox_rules_in_turn BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON workflow.outbox_rule
  FOR EACH STATEMENT EXECUTE FUNCTION workflow.outbox_rules_in_turn();
CREATE TRIGGER outbox_rules_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON workflow.outbox_rule
  FOR EACH STATEMENT EXECUTE FUNCTION workflow.outbox_rules_changed();

-- migrate:down

DROP TRIGGER event_to_outbox ON workflow.workflow_event;
DROP TABLE workflow.outbox_rule, workflow.outbox_lane, workflow.outbox_dispatcher;
DROP FUNCTION workflow.event_to_outbox(), workflow.outbox_rules_in_turn(), workflow.outbox_rules_changed();
DROP INDEX workflow.outbox_event_waiting, workflow.outbox_event_retrying, workflow.outbox_event_stuck,
  workflow.outbox_event_behind, workflow.outbox_event_dead, workflow.outbox_event_published;
ALTER TABLE workflow.outbox_event
  DROP COLUMN status, DROP COLUMN attempt, DROP COLUMN due_at, DROP COLUMN skipped_at, DROP COLUMN skipped_by,
  DROP COLUMN skip_reason, DROP COLUMN last_error;
CREATE INDEX outbox_event_unpublished ON workflow.outbox_event (id) WHERE published_at IS NULL;
