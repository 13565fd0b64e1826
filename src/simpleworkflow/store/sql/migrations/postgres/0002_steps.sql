-- Steps, signals and the outbox: what a run remembers while it waits, is told, and tells others.

-- migrate:up

-- One row per recorded piece of a run, keyed by where the code asked for it. Sequence numbers come from the event
-- sequence, so that steps and events of a run can be read as one history: `seq` when the piece was first recorded,
-- `done_seq` when it was completed later than that.
CREATE TABLE workflow.workflow_step (
  run_id       uuid NOT NULL,
  seq          bigint NOT NULL DEFAULT nextval('workflow.workflow_event_id_seq'),
  done_seq     bigint,
  lease_epoch  bigint NOT NULL,
  started_at   timestamptz,
  completed_at timestamptz,
  due_at       timestamptz,
  attempt      integer NOT NULL DEFAULT 0,
  kind         text NOT NULL,
  status       text NOT NULL,
  step_id      text COLLATE "C" NOT NULL,
  input        json,
  output       json,
  error        json,
  PRIMARY KEY (run_id, step_id),
  CONSTRAINT workflow_step_kind CHECK (kind IN
    ('step', 'sleep', 'signal', 'child', 'result', 'emit', 'publish', 'race', 'value')),
  CONSTRAINT workflow_step_status CHECK (status IN ('waiting', 'retrying', 'succeeded', 'failed', 'superseded')),
  CONSTRAINT workflow_step_completed CHECK ((status IN ('waiting', 'retrying')) = (completed_at IS NULL)),
  CONSTRAINT workflow_step_id CHECK (length(step_id) BETWEEN 1 AND 1000)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

-- Messages to runs: consumed once, in order per name. A plain INSERT is a whole signal: without a number of its own it
-- comes from outside, and the trigger below wakes the run for it.
CREATE TABLE workflow.workflow_signal (
  id          uuid PRIMARY KEY DEFAULT workflow.uuidv7(),
  run_id      uuid NOT NULL,
  seq         bigint NOT NULL DEFAULT 0,
  created_at  timestamptz NOT NULL DEFAULT now(),
  consumed_at timestamptz,
  consumed_by text,
  name        text COLLATE "C" NOT NULL,
  payload     json NOT NULL DEFAULT 'null',
  CONSTRAINT workflow_signal_name CHECK (length(name) BETWEEN 1 AND 200)
);
CREATE INDEX workflow_signal_unread ON workflow.workflow_signal (run_id, name, seq) WHERE consumed_at IS NULL;
CREATE INDEX workflow_signal_run ON workflow.workflow_signal (run_id, seq);

CREATE FUNCTION workflow.signal_sent_by_sql() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE workflow.workflow_run
  SET wakes = wakes + 1, version = version + 1, updated_at = now(),
      run_at = CASE WHEN status = 'paused' AND (run_at IS NULL OR run_at > now()) THEN now() ELSE run_at END
  WHERE id = NEW.run_id AND finished_at IS NULL;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'run % has finished, or there is none; the signal was not accepted', NEW.run_id
      USING ERRCODE = 'check_violation';
  END IF;
  NEW.seq := nextval('workflow.workflow_event_id_seq');
  PERFORM pg_notify('simpleworkflow_' || TG_TABLE_SCHEMA, 'changed');
  RETURN NEW;
END $$;
CREATE TRIGGER signal_sent_by_sql BEFORE INSERT ON workflow.workflow_signal FOR EACH ROW
  WHEN (NEW.seq = 0) EXECUTE FUNCTION workflow.signal_sent_by_sql();

-- Events on their way out: written with the move or the step they tell of, numbered per run without gaps.
CREATE TABLE workflow.outbox_event (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  aggregate_id uuid NOT NULL,
  sequence     bigint NOT NULL,
  event_type   text NOT NULL,
  created_at   timestamptz NOT NULL DEFAULT now(),
  published_at timestamptz,
  payload      json NOT NULL,
  CONSTRAINT outbox_event_type CHECK (length(event_type) BETWEEN 1 AND 200),
  UNIQUE (aggregate_id, sequence)
);
CREATE INDEX outbox_event_unpublished ON workflow.outbox_event (id) WHERE published_at IS NULL;

-- Everything that happened to a run, in sched's words. `idx` counts from 1 within the run and never changes: what is
-- written later sorts later, because every writer holds the lock of the run's row.
CREATE VIEW workflow.workflow_history AS
WITH piece AS NOT MATERIALIZED (
  SELECT s.*, CASE s.kind WHEN 'result' THEN s.input #>> '{}'
                ELSE substring(s.place_id FROM '^(?:[^#]*/)?([^#/]*)#') END AS name
  FROM (SELECT s.*, CASE s.status WHEN 'superseded' THEN substr(s.step_id, 14 + length(s.lease_epoch::text))
                      ELSE s.step_id END AS place_id
        FROM workflow.workflow_step s) AS s)
SELECT l.workflow_id, row_number() OVER (PARTITION BY l.workflow_id ORDER BY l.place, l.phase) AS idx,
       l.event_type, l.happened_at AS "timestamp", l.details
FROM (
  SELECT r.id AS workflow_id, e.id AS place, 0 AS phase, 'WorkflowStarted' AS event_type, e.created_at AS happened_at,
         json_build_object('workflow_name', r.type, 'input', r.payload) AS details
  FROM workflow.workflow_event e JOIN workflow.workflow_run r ON r.id = e.workflow_id
  WHERE e.event_type = 'created'
  UNION ALL
  SELECT p.run_id, p.seq, 0, 'ActivityScheduled', p.started_at,
         json_build_object('activity_name', p.name, 'step_id', p.place_id, 'input', p.input)
  FROM piece p WHERE p.kind IN ('step', 'child')
  UNION ALL
  SELECT p.run_id, coalesce(p.done_seq, p.seq), 1,
         CASE p.status WHEN 'succeeded' THEN 'ActivityCompleted' ELSE 'ActivityFailed' END, p.completed_at,
         json_build_object('activity_name', p.name, 'step_id', p.place_id, 'result', p.output, 'error', p.error)
  FROM piece p WHERE p.kind IN ('step', 'result') AND p.completed_at IS NOT NULL
  UNION ALL
  SELECT p.run_id, p.seq, 0, 'TimerScheduled', p.started_at,
         json_build_object('timer_id', p.place_id, 'fire_at', p.due_at)
  FROM piece p WHERE p.kind IN ('sleep', 'signal') AND p.due_at IS NOT NULL
  UNION ALL
  SELECT p.run_id, coalesce(p.done_seq, p.seq), 1, 'TimerFired', p.completed_at,
         json_build_object('timer_id', p.place_id)
  FROM piece p
  WHERE p.due_at IS NOT NULL AND p.error IS NULL
    AND (p.kind = 'sleep' AND p.status = 'succeeded' OR p.kind = 'signal' AND p.status IN ('failed', 'superseded'))
  UNION ALL
  SELECT g.run_id, g.seq, 0, 'SignalReceived', g.created_at,
         json_build_object('signal_name', g.name, 'input', g.payload)
  FROM workflow.workflow_signal g
  UNION ALL
  SELECT e.workflow_id, e.id, 0,
         CASE e.event_type WHEN 'step_retried' THEN 'ActivityRetryScheduled' WHEN 'paused' THEN 'WorkflowTaskYielded'
           WHEN 'succeeded' THEN 'WorkflowCompleted' WHEN 'failed' THEN 'WorkflowFailed'
           WHEN 'timed_out' THEN 'WorkflowTimedOut' ELSE 'WorkflowCancelRequested' END,
         e.created_at, e.data
  FROM workflow.workflow_event e
  WHERE e.event_type IN ('step_retried', 'paused', 'succeeded', 'failed', 'timed_out', 'cancelled')
  UNION ALL
  SELECT e.workflow_id, e.id, 1, 'WorkflowCanceled', e.created_at, e.data
  FROM workflow.workflow_event e WHERE e.event_type = 'cancelled'
) AS l;

-- migrate:down

DROP VIEW workflow.workflow_history;
DROP TABLE workflow.workflow_step, workflow.workflow_signal, workflow.outbox_event;
DROP FUNCTION workflow.signal_sent_by_sql();
