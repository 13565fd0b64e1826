-- Steps, signals and the outbox: what a run remembers while it waits, is told, and tells others.

-- migrate:up

-- One row per recorded piece of a run, keyed by where the code asked for it. `seq` comes from the event sequence, so
-- that steps and events of a run can be read as one history.
CREATE TABLE workflow.workflow_step (
  run_id       uuid NOT NULL,
  seq          bigint NOT NULL DEFAULT nextval('workflow.workflow_event_id_seq'),
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
    ('step', 'sleep', 'signal', 'child', 'emit', 'race', 'value')),
  CONSTRAINT workflow_step_status CHECK (status IN ('waiting', 'retrying', 'succeeded', 'failed')),
  CONSTRAINT workflow_step_completed CHECK ((status IN ('succeeded', 'failed')) = (completed_at IS NOT NULL)),
  CONSTRAINT workflow_step_id CHECK (length(step_id) BETWEEN 1 AND 1000)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

-- Messages to runs: consumed once, in order per name.
CREATE TABLE workflow.workflow_signal (
  id          uuid PRIMARY KEY DEFAULT workflow.uuidv7(),
  run_id      uuid NOT NULL,
  seq         bigint NOT NULL DEFAULT nextval('workflow.workflow_event_id_seq'),
  created_at  timestamptz NOT NULL DEFAULT now(),
  consumed_at timestamptz,
  consumed_by text,
  name        text COLLATE "C" NOT NULL,
  payload     json NOT NULL DEFAULT 'null',
  CONSTRAINT workflow_signal_name CHECK (length(name) BETWEEN 1 AND 200)
);
CREATE INDEX workflow_signal_unread ON workflow.workflow_signal (run_id, name, seq) WHERE consumed_at IS NULL;
CREATE INDEX workflow_signal_run ON workflow.workflow_signal (run_id, seq);

-- migrate:down

DROP TABLE workflow.workflow_step, workflow.workflow_signal;
