-- Runs, their audit trail, the definitions and the workers.
-- Column order is chosen for MVCC: an UPDATE on the same page logs a row from its first changed byte to its last, so
-- what a claim and an end do not touch stands in front (narrow) or at the back (wide), and what they touch between.

-- migrate:up

CREATE FUNCTION workflow.uuidv7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  -- 48 bits of milliseconds, then the random tail of a v4 whose version nibble 0100 becomes 0111.
  SELECT encode(
    substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
    || set_bit(set_bit(substring(uuid_send(gen_random_uuid()) FROM 7), 4, 1), 5, 1), 'hex')::uuid
$$;

CREATE TABLE workflow.workflow_run (
  id              uuid PRIMARY KEY DEFAULT workflow.uuidv7(),
  created_at      timestamptz NOT NULL DEFAULT now(),
  parent_id       uuid,
  start_by        timestamptz,
  run_at          timestamptz DEFAULT now(),
  held_at         timestamptz,
  deleted_at      timestamptz,
  wakes           bigint NOT NULL DEFAULT 0,
  priority        integer NOT NULL DEFAULT 100,
  crashes         integer NOT NULL DEFAULT 0,
  attempt         integer NOT NULL DEFAULT 0,
  max_attempts    integer,
  version         bigint NOT NULL DEFAULT 0,
  lease_epoch     bigint NOT NULL DEFAULT 0,
  updated_at      timestamptz NOT NULL DEFAULT now(),
  lease_until     timestamptz,
  started_at      timestamptz,
  finished_at     timestamptz,
  deadline_at     timestamptz,
  status          text NOT NULL DEFAULT 'pending',
  leased_by       text,
  result          json,
  last_error      text,
  error           json,
  hold_reason     text,
  delete_reason   text,
  idempotency_key text,
  traceparent     text,
  type            text COLLATE "C" NOT NULL,
  payload         json NOT NULL DEFAULT 'null',

  CONSTRAINT workflow_run_status CHECK (status IN
    ('pending', 'leased', 'paused', 'succeeded', 'failed', 'cancelled', 'timed_out')),
  CONSTRAINT workflow_run_terminal_is_finished CHECK (
    (status IN ('succeeded', 'failed', 'cancelled', 'timed_out')) = (finished_at IS NOT NULL)),
  CONSTRAINT workflow_run_leased_has_lease CHECK (
    (status = 'leased') = (lease_until IS NOT NULL) AND (status = 'leased') = (leased_by IS NOT NULL)),
  CONSTRAINT workflow_run_pending_is_due CHECK (status <> 'pending' OR run_at IS NOT NULL),
  CONSTRAINT workflow_run_deleted_is_finished CHECK (deleted_at IS NULL OR finished_at IS NOT NULL),
  CONSTRAINT workflow_run_type CHECK (length(type) BETWEEN 1 AND 200 AND type !~ '[^A-Za-z0-9_.-]'),
  CONSTRAINT workflow_run_priority CHECK (priority BETWEEN 0 AND 999),
  CONSTRAINT workflow_run_counts CHECK (attempt >= 0 AND crashes >= 0 AND max_attempts >= 1 AND lease_epoch >= 0),
  CONSTRAINT workflow_run_instants CHECK (isfinite(run_at) AND isfinite(deadline_at) AND isfinite(start_by)),
  CONSTRAINT workflow_run_key CHECK (length(idempotency_key) BETWEEN 1 AND 255),
  CONSTRAINT workflow_run_traceparent CHECK (length(traceparent) <= 512)
) WITH (
  fillfactor = 60,
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.02,
  autovacuum_vacuum_insert_scale_factor = 0.02
);

-- What a claim walks: equality on type and priority, a range on run_at. Runs that crashed stand apart (suspects).
CREATE INDEX workflow_run_ready ON workflow.workflow_run (type, priority, run_at, id)
  WHERE status IN ('pending', 'paused') AND run_at IS NOT NULL AND held_at IS NULL AND crashes = 0;
CREATE INDEX workflow_run_suspect ON workflow.workflow_run (type, priority, run_at, id)
  WHERE status IN ('pending', 'paused') AND run_at IS NOT NULL AND held_at IS NULL AND crashes > 0;
-- In flight, for the sweep; without lease_until, so that a renewal stays a heap-only update.
CREATE INDEX workflow_run_leased ON workflow.workflow_run (leased_by, id) WHERE status = 'leased';
CREATE UNIQUE INDEX workflow_run_idempotency ON workflow.workflow_run (idempotency_key)
  WHERE idempotency_key IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX workflow_run_deadline ON workflow.workflow_run (deadline_at)
  WHERE deadline_at IS NOT NULL AND finished_at IS NULL;
CREATE INDEX workflow_run_start_by ON workflow.workflow_run (start_by)
  WHERE start_by IS NOT NULL AND lease_epoch = 0 AND finished_at IS NULL;
CREATE INDEX workflow_run_parent ON workflow.workflow_run (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE workflow.workflow_event (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workflow_id uuid NOT NULL,
  lease_epoch bigint,
  created_at  timestamptz NOT NULL DEFAULT now(),
  event_type  text NOT NULL,
  data        json,
  CONSTRAINT workflow_event_type CHECK (event_type IN
    ('created', 'leased', 'started', 'heartbeat', 'step_retried', 'retried', 'released', 'paused', 'woken',
     'succeeded', 'failed', 'cancelled', 'timed_out', 'held', 'resumed', 'deleted'))
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX workflow_event_run ON workflow.workflow_event (workflow_id, id);

CREATE TABLE workflow.workflow_registry (
  workflow_name text COLLATE "C" PRIMARY KEY,
  runtime       text NOT NULL DEFAULT 'python',
  is_enabled    boolean NOT NULL DEFAULT true,
  description   text,
  on_cancel     text,
  dead_letter   text,
  on_exhausted  text,
  updated_at    timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE workflow.workflow_worker (
  id         text PRIMARY KEY,
  name       text NOT NULL,
  host       text NOT NULL,
  pid        integer NOT NULL,
  spans      json NOT NULL,
  started_at timestamptz NOT NULL DEFAULT now(),
  seen_at    timestamptz NOT NULL DEFAULT now(),
  stopped_at timestamptz
) WITH (fillfactor = 50);

-- Every insert, ours or plain SQL, tells the audit trail.
CREATE FUNCTION workflow.run_created() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO workflow.workflow_event (workflow_id, event_type, created_at)
  SELECT id, 'created', created_at FROM inserted;
  RETURN NULL;
END $$;
CREATE TRIGGER run_created AFTER INSERT ON workflow.workflow_run
  REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION workflow.run_created();

-- A foreign writer changes status or deleted_at and nothing else; our own writes bump version and never come here.
-- The row that results must obey the law, so the rest is filled in, or the change refused.
CREATE FUNCTION workflow.run_moved_by_sql() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.deleted_at IS NOT NULL AND OLD.finished_at IS NULL AND NEW.status IN ('pending', 'leased', 'paused') THEN
    NEW.status := 'cancelled';
  END IF;
  NEW.version := OLD.version + 1;
  NEW.updated_at := now();
  IF NEW.status <> OLD.status THEN
    IF OLD.finished_at IS NOT NULL AND (NEW.status <> 'pending' OR OLD.deleted_at IS NOT NULL) THEN
      RAISE EXCEPTION 'run % has already % and cannot become %', OLD.id, OLD.status, NEW.status
        USING ERRCODE = 'check_violation', HINT = 'Set status = ''pending'' to run it again.';
    END IF;
    IF NOT (OLD.finished_at IS NOT NULL OR NEW.status = 'cancelled'
            OR (OLD.status IN ('pending', 'paused') AND NEW.status = 'leased')
            OR (OLD.status = 'leased' AND NEW.status IN ('pending', 'succeeded', 'failed'))) THEN
      RAISE EXCEPTION 'run % is % and cannot become % by plain SQL', OLD.id, OLD.status, NEW.status
        USING ERRCODE = 'check_violation', HINT = 'The legal moves are told in docs/sql-contract.md.';
    END IF;
    IF NEW.status = 'leased' THEN
      NEW.lease_epoch := OLD.lease_epoch + 1;
      NEW.started_at := coalesce(NEW.started_at, now());
    ELSE
      NEW.lease_until := NULL;
      NEW.leased_by := NULL;
    END IF;
    IF NEW.status IN ('succeeded', 'failed', 'cancelled', 'timed_out') THEN
      NEW.finished_at := coalesce(NEW.finished_at, now());
    ELSIF OLD.finished_at IS NOT NULL THEN
      NEW.finished_at := NULL;
      NEW.attempt := 0;
      NEW.crashes := 0;
      NEW.deadline_at := NULL;
      NEW.start_by := NULL;
      NEW.held_at := NULL;
      NEW.hold_reason := NULL;
      NEW.result := NULL;
      NEW.error := NULL;
      NEW.last_error := NULL;
      -- The steps whose failure ended it are done again; their old records make room and stay for the history.
      UPDATE workflow.workflow_step s 
      SET status = 'superseded', step_id = '@superseded ' || s.lease_epoch || ' ' || s.step_id
      FROM json_array_elements_text(coalesce(OLD.error -> 'steps', '[]')) AS failed(step_id)
      WHERE s.run_id = OLD.id AND s.step_id = failed.step_id AND s.status = 'failed';
      NEW.run_at := CASE WHEN NEW.run_at IS DISTINCT FROM OLD.run_at THEN NEW.run_at ELSE now() END;
    END IF;
    INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data)
    VALUES (NEW.id, CASE NEW.status WHEN 'pending' THEN 'retried' ELSE NEW.status END, NEW.lease_epoch,
            json_build_object('by', 'sql'));
  END IF;
  IF NEW.deleted_at IS NOT NULL AND OLD.deleted_at IS NULL THEN
    INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data)
    VALUES (NEW.id, 'deleted', NEW.lease_epoch, json_build_object('by', 'sql'));
  END IF;
  -- Its owner, and whoever waits for it, should not have to find out by polling.
  PERFORM pg_notify('simpleworkflow_' || TG_TABLE_SCHEMA, 'changed');
  RETURN NEW;
END $$;
CREATE TRIGGER run_moved_by_sql BEFORE UPDATE ON workflow.workflow_run FOR EACH ROW
  WHEN (NEW.version = OLD.version AND (NEW.status IS DISTINCT FROM OLD.status
        OR (NEW.deleted_at IS NOT NULL AND OLD.deleted_at IS NULL)))
  EXECUTE FUNCTION workflow.run_moved_by_sql();

-- What every end of a run owes to others, whoever ends it: its parent wakes, its open children are cancelled, its
-- undo or dead-letter run starts. One place, so that no road to a terminal state can forget a part of it.
CREATE FUNCTION workflow.run_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.parent_id IS NOT NULL THEN
    -- The last open child wakes the parent at once, the others within a second: a fan-out is not replayed N times.
    -- The lock comes first: two last children that end together must see each other.
    PERFORM FROM workflow.workflow_run WHERE id = NEW.parent_id FOR NO KEY UPDATE;
    UPDATE workflow.workflow_run
    SET wakes = wakes + 1, version = version + 1, updated_at = now(),
        run_at = CASE WHEN status = 'paused' THEN least(coalesce(run_at, 'infinity'), now() +
          CASE WHEN EXISTS (SELECT FROM workflow.workflow_run c
                            WHERE c.parent_id = NEW.parent_id AND c.finished_at IS NULL)
               THEN interval '1 second' ELSE interval '0' END) ELSE run_at END
    WHERE id = NEW.parent_id AND finished_at IS NULL;
  END IF;
  IF NEW.status <> 'succeeded' THEN
    WITH gone AS (
      UPDATE workflow.workflow_run
      SET status = 'cancelled', version = version + 1, finished_at = now(), updated_at = now(),
          lease_until = NULL, leased_by = NULL, last_error = 'its parent ended: ' || NEW.status
      WHERE parent_id = NEW.id AND finished_at IS NULL
      RETURNING id, lease_epoch)
    INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data)
    SELECT id, 'cancelled', lease_epoch, json_build_object('by', 'parent') FROM gone;
  END IF;
  IF NEW.status = 'cancelled' THEN
    -- Due when the worker acknowledges the cancel, or when its lease would have ended.
    INSERT INTO workflow.workflow_run (type, priority, traceparent, run_at, idempotency_key, payload)
    SELECT g.on_cancel, NEW.priority, NEW.traceparent,
           CASE WHEN OLD.status = 'leased' THEN greatest(OLD.lease_until, now()) ELSE now() END,
           'on_cancel:' || NEW.id || ':' || NEW.lease_epoch
             || CASE WHEN OLD.status = 'leased' THEN '' ELSE '.' || NEW.version END,
           json_build_object('run_id', NEW.id, 'type', NEW.type, 'payload', NEW.payload)
    FROM workflow.workflow_registry g WHERE g.workflow_name = NEW.type AND g.on_cancel IS NOT NULL
    ON CONFLICT DO NOTHING;
  ELSIF NEW.status = 'failed' THEN
    INSERT INTO workflow.workflow_run (type, priority, traceparent, idempotency_key, payload)
    SELECT g.dead_letter, NEW.priority, NEW.traceparent, 'dead_letter:' || NEW.id || ':' || NEW.lease_epoch,
           json_build_object('run_id', NEW.id, 'type', NEW.type, 'payload', NEW.payload, 'attempt', NEW.attempt,
                             'last_error', NEW.last_error, 'error', NEW.error)
    FROM workflow.workflow_registry g WHERE g.workflow_name = NEW.type AND g.dead_letter IS NOT NULL
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER run_ended AFTER UPDATE ON workflow.workflow_run FOR EACH ROW
  WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL
        AND (NEW.parent_id IS NOT NULL OR NEW.status <> 'succeeded'))
  EXECUTE FUNCTION workflow.run_ended();

-- migrate:down

DROP TABLE workflow.workflow_run, workflow.workflow_event, workflow.workflow_registry, workflow.workflow_worker;
DROP FUNCTION workflow.run_created(), workflow.run_moved_by_sql(), workflow.run_ended(), workflow.uuidv7();
