-- What other programs may write, and what they may not. Producers of simple-workflow name the idempotency key as their
-- conflict target, for which only an index over all rows will do; their workers know nothing of epochs, holds and ends.
-- docs/decisions/0021 says what the index costs, 0022 which statements are refused and which are passed over, and why.

-- migrate:up

DROP TRIGGER run_moved_by_sql ON workflow.workflow_run;

-- A deleted run gives its key up; the trail keeps it.
UPDATE workflow.workflow_event e
SET data = (coalesce(e.data::jsonb, '{}') || jsonb_build_object('idempotency_key', r.idempotency_key))::json
FROM workflow.workflow_run r
WHERE r.id = e.workflow_id AND e.event_type = 'deleted' AND r.deleted_at IS NOT NULL AND r.idempotency_key IS NOT NULL;
UPDATE workflow.workflow_run SET idempotency_key = NULL
WHERE deleted_at IS NOT NULL AND idempotency_key IS NOT NULL;
DROP INDEX workflow.workflow_run_idempotency;
CREATE UNIQUE INDEX workflow_run_idempotency ON workflow.workflow_run (idempotency_key);

CREATE FUNCTION workflow.run_frees_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.idempotency_key := NULL;
  RETURN NEW;
END $$;
CREATE TRIGGER run_frees_key BEFORE INSERT OR UPDATE OF deleted_at, idempotency_key ON workflow.workflow_run FOR EACH ROW
  WHEN (NEW.deleted_at IS NOT NULL AND NEW.idempotency_key IS NOT NULL) EXECUTE FUNCTION workflow.run_frees_key();

-- Everybody finds a number in max_attempts. Where nobody has chosen one it is 3, until our first claim puts the
-- workflow's own there.
ALTER TABLE workflow.workflow_run ADD COLUMN attempts_unset boolean NOT NULL DEFAULT false;
UPDATE workflow.workflow_run SET max_attempts = 3, attempts_unset = true WHERE max_attempts IS NULL;
CREATE FUNCTION workflow.run_allows_attempts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.max_attempts := 3;
  NEW.attempts_unset := true;
  RETURN NEW;
END $$;
CREATE TRIGGER run_allows_attempts BEFORE INSERT ON workflow.workflow_run FOR EACH ROW
  WHEN (NEW.max_attempts IS NULL) EXECUTE FUNCTION workflow.run_allows_attempts();

-- One value that nobody can count on from, or that no calendar has, would stop the claims of its type, or every list it
-- is in. What is there already is brought within the limits here; NOT VALID only spares a second look at it.
CREATE FUNCTION workflow.in_calendar(instant timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT AS $$
  SELECT least(greatest(instant, to_timestamp(-62135596800)), to_timestamp(253402214400))
$$;
UPDATE workflow.workflow_run
SET version = least(greatest(version, 0), 1152921504606846976), lease_epoch = least(lease_epoch, 1152921504606846976),
    wakes = least(greatest(wakes, 0), 1152921504606846976), attempt = least(attempt, 268435456),
    crashes = least(crashes, 268435456), max_attempts = least(max_attempts, 1000000000)
WHERE greatest(version, lease_epoch, wakes) >= 2305843009213693952 OR least(version, wakes) < 0
   OR greatest(attempt, crashes) >= 536870912 OR max_attempts > 1000000000;
UPDATE workflow.workflow_run
SET created_at = workflow.in_calendar(created_at), updated_at = workflow.in_calendar(updated_at),
    run_at = workflow.in_calendar(run_at), start_by = workflow.in_calendar(start_by),
    held_at = workflow.in_calendar(held_at), deleted_at = workflow.in_calendar(deleted_at),
    lease_until = workflow.in_calendar(lease_until), started_at = workflow.in_calendar(started_at),
    finished_at = workflow.in_calendar(finished_at), deadline_at = workflow.in_calendar(deadline_at)
WHERE greatest(created_at, updated_at, run_at, start_by, held_at, deleted_at, lease_until, started_at, finished_at,
      deadline_at) >= to_timestamp(253402300800)
   OR least(created_at, updated_at, run_at, start_by, held_at, deleted_at, lease_until, started_at, finished_at,
      deadline_at) < to_timestamp(-62135596800);
ALTER TABLE workflow.workflow_run
  DROP CONSTRAINT workflow_run_instants, DROP CONSTRAINT workflow_run_counts,
  ADD CONSTRAINT workflow_run_instants CHECK (
    greatest(created_at, updated_at, run_at, start_by, held_at, deleted_at, lease_until, started_at, finished_at,
      deadline_at) < to_timestamp(253402300800)
    AND least(created_at, updated_at, run_at, start_by, held_at, deleted_at, lease_until, started_at, finished_at,
      deadline_at) >= to_timestamp(-62135596800)) NOT VALID,
  ADD CONSTRAINT workflow_run_counts CHECK (
    greatest(version, lease_epoch, wakes) < 4611686018427387904 AND least(version, lease_epoch, wakes) >= 0
    AND greatest(attempt, crashes) < 1073741824 AND least(attempt, crashes) >= 0
    AND max_attempts BETWEEN 1 AND 1000000000
    AND (status <> 'leased' OR lease_epoch > 0)) NOT VALID;

-- What a run begins with, or a stranger sets, is half of that at most: from the last lawful number no claim can count on.
CREATE FUNCTION workflow.run_counts_too_far() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the counters of run % leave no room to count on', NEW.id
    USING ERRCODE = 'check_violation', CONSTRAINT = 'workflow_run_counts',
          HINT = 'version, lease_epoch and wakes are below 2^61, attempt and crashes below 2^29.';
END $$;
CREATE TRIGGER run_counts_too_far BEFORE INSERT ON workflow.workflow_run FOR EACH ROW
  WHEN (greatest(NEW.version, NEW.lease_epoch, NEW.wakes) >= 2305843009213693952
        OR greatest(NEW.attempt, NEW.crashes) >= 536870912)
  EXECUTE FUNCTION workflow.run_counts_too_far();
-- It would be a lease, or a wait, without an event; the lease without an epoch of its own, too.
CREATE FUNCTION workflow.run_begins_pending() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'no run begins %', NEW.status
    USING ERRCODE = 'check_violation', HINT = 'Insert it pending, or as one that has ended.';
END $$;
CREATE TRIGGER run_begins_pending BEFORE INSERT ON workflow.workflow_run FOR EACH ROW
  WHEN (NEW.status IN ('leased', 'paused')) EXECUTE FUNCTION workflow.run_begins_pending();
CREATE TRIGGER run_counted_too_far BEFORE UPDATE OF wakes, attempt, crashes ON workflow.workflow_run FOR EACH ROW
  WHEN (NEW.version = OLD.version
        AND (NEW.wakes >= 2305843009213693952 OR greatest(NEW.attempt, NEW.crashes) >= 536870912))
  EXECUTE FUNCTION workflow.run_counts_too_far();

UPDATE workflow.workflow_schedule
SET created_at = workflow.in_calendar(created_at), updated_at = workflow.in_calendar(updated_at),
    next_at = workflow.in_calendar(next_at), paused_at = workflow.in_calendar(paused_at),
    last_slot_at = workflow.in_calendar(last_slot_at), last_fired_at = workflow.in_calendar(last_fired_at),
    last_skipped_at = workflow.in_calendar(last_skipped_at)
WHERE greatest(created_at, updated_at, next_at, paused_at, last_slot_at, last_fired_at,
      last_skipped_at) >= to_timestamp(253402300800)
   OR least(created_at, updated_at, next_at, paused_at, last_slot_at, last_fired_at,
      last_skipped_at) < to_timestamp(-62135596800);
UPDATE workflow.workflow_step
SET started_at = workflow.in_calendar(started_at), completed_at = workflow.in_calendar(completed_at),
    due_at = workflow.in_calendar(due_at)
WHERE greatest(started_at, completed_at, due_at) >= to_timestamp(253402300800)
   OR least(started_at, completed_at, due_at) < to_timestamp(-62135596800);
UPDATE workflow.workflow_worker
SET started_at = workflow.in_calendar(started_at), seen_at = workflow.in_calendar(seen_at),
    stopped_at = workflow.in_calendar(stopped_at)
WHERE greatest(started_at, seen_at, stopped_at) >= to_timestamp(253402300800)
   OR least(started_at, seen_at, stopped_at) < to_timestamp(-62135596800);
UPDATE workflow.workflow_registry
SET updated_at = workflow.in_calendar(updated_at)
WHERE updated_at >= to_timestamp(253402300800)
   OR updated_at < to_timestamp(-62135596800);
UPDATE workflow.outbox_lane
SET lease_until = workflow.in_calendar(lease_until)
WHERE lease_until >= to_timestamp(253402300800)
   OR lease_until < to_timestamp(-62135596800);
UPDATE workflow.outbox_lane SET epoch = least(greatest(epoch, 0), 1152921504606846976)
WHERE epoch >= 2305843009213693952 OR epoch < 0;
UPDATE workflow.outbox_rule
SET created_at = workflow.in_calendar(created_at)
WHERE created_at >= to_timestamp(253402300800)
   OR created_at < to_timestamp(-62135596800);
-- An undo run of a name that no run can have would make every cancel of that workflow fail.
UPDATE workflow.workflow_registry
SET on_cancel = CASE WHEN length(on_cancel) BETWEEN 1 AND 200 AND on_cancel !~ '[^A-Za-z0-9_.-]' THEN on_cancel END,
    dead_letter = CASE WHEN length(dead_letter) BETWEEN 1 AND 200 AND dead_letter !~ '[^A-Za-z0-9_.-]'
                       THEN dead_letter END
WHERE NOT (length(on_cancel) BETWEEN 1 AND 200 AND on_cancel !~ '[^A-Za-z0-9_.-]')
   OR NOT (length(dead_letter) BETWEEN 1 AND 200 AND dead_letter !~ '[^A-Za-z0-9_.-]');
DROP FUNCTION workflow.in_calendar(timestamptz);
ALTER TABLE workflow.workflow_schedule
  ADD CONSTRAINT workflow_schedule_instants CHECK (
    greatest(created_at, updated_at, next_at, paused_at, last_slot_at, last_fired_at,
      last_skipped_at) < to_timestamp(253402300800)
    AND least(created_at, updated_at, next_at, paused_at, last_slot_at, last_fired_at,
      last_skipped_at) >= to_timestamp(-62135596800)) NOT VALID,
  ADD CONSTRAINT workflow_schedule_counts CHECK (
    greatest(fired, skipped) < 4611686018427387904 AND greatest(every_us, window_us) < 4611686018427387904) NOT VALID;
ALTER TABLE workflow.workflow_step
  ADD CONSTRAINT workflow_step_instants CHECK (
    greatest(started_at, completed_at, due_at) < to_timestamp(253402300800)
    AND least(started_at, completed_at, due_at) >= to_timestamp(-62135596800)) NOT VALID;
ALTER TABLE workflow.workflow_worker
  ADD CONSTRAINT workflow_worker_instants CHECK (
    greatest(started_at, seen_at, stopped_at) < to_timestamp(253402300800)
    AND least(started_at, seen_at, stopped_at) >= to_timestamp(-62135596800)) NOT VALID;
ALTER TABLE workflow.workflow_registry
  ADD CONSTRAINT workflow_registry_instants CHECK (
    updated_at < to_timestamp(253402300800)
    AND updated_at >= to_timestamp(-62135596800)) NOT VALID,
  ADD CONSTRAINT workflow_registry_on_cancel CHECK (
    length(on_cancel) BETWEEN 1 AND 200 AND on_cancel !~ '[^A-Za-z0-9_.-]') NOT VALID,
  ADD CONSTRAINT workflow_registry_dead_letter CHECK (
    length(dead_letter) BETWEEN 1 AND 200 AND dead_letter !~ '[^A-Za-z0-9_.-]') NOT VALID;
ALTER TABLE workflow.outbox_lane
  ADD CONSTRAINT outbox_lane_instants CHECK (
    lease_until < to_timestamp(253402300800)
    AND lease_until >= to_timestamp(-62135596800)) NOT VALID,
  ADD CONSTRAINT outbox_lane_counts CHECK (epoch >= 0 AND epoch < 4611686018427387904) NOT VALID;
ALTER TABLE workflow.outbox_rule
  ADD CONSTRAINT outbox_rule_instants CHECK (
    created_at < to_timestamp(253402300800)
    AND created_at >= to_timestamp(-62135596800)) NOT VALID;
ALTER TABLE workflow.workflow_signal
  ADD CONSTRAINT workflow_signal_place CHECK (seq >= 0 AND seq < 4611686018427387904) NOT VALID,
  ADD CONSTRAINT workflow_signal_instants CHECK (
    greatest(created_at, consumed_at) < to_timestamp(253402300800)
    AND least(created_at, consumed_at) >= to_timestamp(-62135596800)) NOT VALID;
ALTER TABLE workflow.workflow_event
  ADD CONSTRAINT workflow_event_instants CHECK (
    created_at < to_timestamp(253402300800) AND created_at >= to_timestamp(-62135596800)) NOT VALID;
ALTER TABLE workflow.outbox_event
  DROP CONSTRAINT outbox_event_shape,
  ADD CONSTRAINT outbox_event_shape CHECK (
    sequence >= 1 AND sequence < 4611686018427387904 AND attempt >= 0 AND attempt < 1073741824
    AND greatest(created_at, published_at, due_at, skipped_at) < to_timestamp(253402300800)
    AND least(created_at, published_at, due_at, skipped_at) >= to_timestamp(-62135596800)) NOT VALID;

-- Plain SQL changes a run. Every UPDATE of ours raises version by one and does not come here.
CREATE OR REPLACE FUNCTION workflow.run_moved_by_sql() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  obstacle text;
  is_ours boolean := OLD.status = 'leased'
    AND EXISTS (SELECT FROM workflow.workflow_worker w WHERE w.id = OLD.leased_by);
  takes_over boolean := OLD.status = 'leased' AND NEW.status = 'leased'
    AND (NEW.leased_by <> OLD.leased_by
         OR (OLD.lease_until < now() AND NEW.lease_until > OLD.lease_until AND NOT is_ours));
BEGIN
  IF NEW.deleted_at IS NOT NULL AND OLD.finished_at IS NULL AND NEW.status IN ('pending', 'leased', 'paused') THEN
    NEW.status := 'cancelled';
  END IF;
  IF NEW.version <> OLD.version THEN
    -- A whole row that was read earlier is written back, as object mappers do: it would undo what happened since.
    RAISE EXCEPTION 'the version of run % is not for plain SQL to change', OLD.id
      USING ERRCODE = 'check_violation', HINT = 'Name only the columns that are to change.';
  END IF;
  IF NEW.id <> OLD.id THEN
    RAISE EXCEPTION 'the id of run % is not for plain SQL to change', OLD.id
      USING ERRCODE = 'check_violation', HINT = 'Its trail, its steps and its children are found by it.';
  END IF;
  IF NEW.parent_id IS DISTINCT FROM OLD.parent_id THEN
    RAISE EXCEPTION 'the parent_id of run % is not for plain SQL to change', OLD.id
      USING ERRCODE = 'check_violation', HINT = 'Its parent would wait for an end that never wakes it.';
  END IF;
  IF NEW.wakes < OLD.wakes THEN
    RAISE EXCEPTION 'the wakes of run % only grow', OLD.id
      USING ERRCODE = 'check_violation', HINT = 'A lower number would undo a wake; leave the column alone.';
  END IF;
  IF NEW.deleted_at IS NULL AND OLD.deleted_at IS NOT NULL THEN
    RAISE EXCEPTION 'run % was deleted and stays so', OLD.id
      USING ERRCODE = 'check_violation', HINT = 'Its key may belong to another run by now; insert a new one.';
  END IF;
  IF NEW.lease_epoch <> OLD.lease_epoch THEN
    RAISE EXCEPTION 'the lease_epoch of run % is not for plain SQL to change', OLD.id
      USING ERRCODE = 'check_violation', HINT = 'It is raised by each lease.';
  END IF;
  NEW.version := OLD.version + 1;
  IF NEW.updated_at IN (OLD.updated_at, now()) THEN
    NEW.updated_at := greatest(OLD.updated_at, now());  -- a transaction that began earlier has an earlier now()
  END IF;
  IF NEW.max_attempts IS NULL THEN
    NEW.max_attempts := 3;
    NEW.attempts_unset := true;
  END IF;

  IF OLD.finished_at IS NOT NULL THEN
    IF NEW.status <> OLD.status AND (NEW.status <> 'pending' OR OLD.deleted_at IS NOT NULL) THEN
      RAISE EXCEPTION 'run % has already % and cannot become %', OLD.id, OLD.status, NEW.status
        USING ERRCODE = 'check_violation',
              HINT = 'To run it again, set status = ''pending'' and leave attempt and last_error alone.';
    END IF;
    IF NEW.status = OLD.status
       AND (NEW.attempt, NEW.crashes, NEW.last_error, NEW.result::text, NEW.error::text)
           IS DISTINCT FROM (OLD.attempt, OLD.crashes, OLD.last_error, OLD.result::text, OLD.error::text) THEN
      RAISE EXCEPTION 'run % has already % and keeps its outcome', OLD.id, OLD.status
        USING ERRCODE = 'check_violation', HINT = 'A worker whose lease has ended comes too late.';
    END IF;
  END IF;

  IF is_ours AND NEW.status = 'leased' AND NOT takes_over
     AND (NEW.lease_until > OLD.lease_until
          OR (NEW.attempt, NEW.crashes, NEW.last_error, NEW.result::text, NEW.error::text)
             IS DISTINCT FROM (OLD.attempt, OLD.crashes, OLD.last_error, OLD.result::text, OLD.error::text)) THEN
    -- A heartbeat that comes late would bring a lease that has ended back to life, under its old epoch.
    RAISE EXCEPTION 'run % is leased to %, which alone may prolong its lease and report of it', OLD.id, OLD.leased_by
      USING ERRCODE = 'check_violation', HINT = 'Cancel it, or wait until its lease has ended.';
  END IF;
  IF NEW.status = 'leased' AND (OLD.status <> 'leased' OR takes_over) THEN
    obstacle := CASE
      WHEN NEW.held_at IS NOT NULL THEN 'is held'
      WHEN NEW.deadline_at <= now() THEN 'is past its deadline'
      WHEN NEW.start_by <= now() AND OLD.started_at IS NULL THEN 'is past its start_by'
      WHEN EXISTS (SELECT FROM workflow.workflow_registry g WHERE g.workflow_name = NEW.type AND NOT g.is_enabled)
        THEN 'is of a disabled type' END;
    IF obstacle IS NOT NULL THEN
      -- Not passed over: a poller that reads a run first and then leases it would not notice, and execute it.
      RAISE EXCEPTION 'run % % and cannot be leased', OLD.id, obstacle
        USING ERRCODE = 'check_violation', HINT = 'Until that changes, a later run_at makes pollers pass it by.';
    END IF;
    IF takes_over AND (OLD.lease_until >= now() OR OLD.attempt + OLD.crashes + 1 >= OLD.max_attempts) THEN
      RETURN NULL;  -- somebody has it, or it is for the sweep to end: nothing to lease here
    END IF;
    IF takes_over THEN
      NEW.crashes := OLD.crashes + 1;
      INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data)
      VALUES (NEW.id, 'retried', OLD.lease_epoch, json_build_object('by', 'sql', 'reason', 'crash'));
    END IF;
    NEW.lease_epoch := OLD.lease_epoch + 1;
    NEW.started_at := coalesce(NEW.started_at, now());
    INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data)
    VALUES (NEW.id, 'leased', NEW.lease_epoch, json_build_object('by', 'sql', 'worker', NEW.leased_by));
  ELSIF NEW.status <> OLD.status THEN
    IF NOT (OLD.finished_at IS NOT NULL OR NEW.status = 'cancelled'
            OR (OLD.status = 'leased' AND NEW.status IN ('pending', 'succeeded', 'failed'))) THEN
      RAISE EXCEPTION 'run % is % and cannot become % by plain SQL', OLD.id, OLD.status, NEW.status
        USING ERRCODE = 'check_violation', HINT = 'The legal moves are told in docs/sql-contract.md.';
    END IF;
    IF is_ours AND NEW.status <> 'cancelled' THEN
      RAISE EXCEPTION 'run % is leased to %, which alone may end it or hand it back', OLD.id, OLD.leased_by
        USING ERRCODE = 'check_violation', HINT = 'Cancel it, or wait until its lease has ended.';
    END IF;
    NEW.lease_until := NULL;
    NEW.leased_by := NULL;
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
    VALUES (NEW.id, 'deleted', NEW.lease_epoch, CASE WHEN OLD.idempotency_key IS NULL THEN json_build_object('by', 'sql')
              ELSE json_build_object('by', 'sql', 'idempotency_key', OLD.idempotency_key) END);
  END IF;
  IF NEW.status <> OLD.status OR NEW.deleted_at IS DISTINCT FROM OLD.deleted_at THEN
    -- Its owner, and whoever waits for it, should not have to find out by polling.
    PERFORM pg_notify('simpleworkflow_' || TG_TABLE_SCHEMA, 'changed');
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER run_moved_by_sql BEFORE UPDATE ON workflow.workflow_run FOR EACH ROW
  WHEN (NEW.version <> OLD.version + 1) EXECUTE FUNCTION workflow.run_moved_by_sql();

-- Who names the number means it, also when it is the one that stands there for want of another.
CREATE FUNCTION workflow.run_given_attempts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.attempts_unset := false;
  RETURN NEW;
END $$;
CREATE TRIGGER run_given_attempts BEFORE UPDATE OF max_attempts ON workflow.workflow_run FOR EACH ROW
  WHEN (NEW.version = OLD.version AND NEW.attempts_unset AND NEW.max_attempts IS NOT NULL)
  EXECUTE FUNCTION workflow.run_given_attempts();

-- An operator says pending and no more. A worker that comes late counts its attempt and gives its error as well, maybe
-- the very ones that stand there: UPDATE OF asks what the statement names. Their names let them go before the one above.
CREATE FUNCTION workflow.run_reported_late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'run % has already % and cannot become %', OLD.id, OLD.status, NEW.status
    USING ERRCODE = 'check_violation',
          HINT = 'To run it again, set status = ''pending'' and leave attempt and last_error alone.';
END $$;
CREATE TRIGGER run_counted_late BEFORE UPDATE OF attempt ON workflow.workflow_run FOR EACH ROW
  WHEN (OLD.finished_at IS NOT NULL AND NEW.version = OLD.version AND NEW.status = 'pending' AND NEW.attempt <> 0)
  EXECUTE FUNCTION workflow.run_reported_late();
CREATE TRIGGER run_failed_late BEFORE UPDATE OF last_error ON workflow.workflow_run FOR EACH ROW
  WHEN (OLD.finished_at IS NOT NULL AND NEW.version = OLD.version AND NEW.status = 'pending'
        AND NEW.last_error IS NOT NULL)
  EXECUTE FUNCTION workflow.run_reported_late();

-- How a run ended stays so, whatever version says: an object mapper that counts versions by itself looks like us.
CREATE FUNCTION workflow.run_outcome_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'run % has already % and keeps its outcome', OLD.id, OLD.status
    USING ERRCODE = 'check_violation', HINT = 'app.retry runs it again.';
END $$;
CREATE TRIGGER run_outcome_stays BEFORE UPDATE OF status, result, error, last_error ON workflow.workflow_run FOR EACH ROW
  WHEN (OLD.finished_at IS NOT NULL AND NEW.finished_at IS NOT NULL
        AND (NEW.status <> OLD.status OR NEW.last_error IS DISTINCT FROM OLD.last_error
             OR NEW.result::text IS DISTINCT FROM OLD.result::text OR NEW.error::text IS DISTINCT FROM OLD.error::text))
  EXECUTE FUNCTION workflow.run_outcome_stays();

-- The triggers tell of every move. Workers of simple-workflow tell of theirs as well, on best effort: passed over, from
-- triggers of others too. Of ours, only `created` has no epoch.
CREATE FUNCTION workflow.event_told_already() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RETURN NULL;
END $$;
CREATE TRIGGER event_told_already BEFORE INSERT ON workflow.workflow_event FOR EACH ROW
  WHEN (NEW.lease_epoch IS NULL AND NEW.event_type NOT IN ('started', 'heartbeat')
        AND (NEW.event_type <> 'created' OR pg_trigger_depth() = 0))
  EXECUTE FUNCTION workflow.event_told_already();

-- What was told stays told. Old lines may be deleted.
CREATE FUNCTION workflow.event_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'event % of run % is not to be changed: the trail is append-only', OLD.id, OLD.workflow_id
    USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER event_stays BEFORE UPDATE ON workflow.workflow_event FOR EACH ROW EXECUTE FUNCTION workflow.event_stays();

-- With a run goes what is keyed by it, whoever deletes it; a parent that waits for it learns that it is gone.
-- = ANY (ARRAY(...)) admits one plan only: with IN, a plan made while a table was empty reads it from end to end.
-- The setting is made in the body: as a clause of the function it would be for superusers alone to create.
CREATE FUNCTION workflow.run_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('simpleworkflow.tells', 'removed', true);
  DELETE FROM workflow.workflow_step WHERE run_id = ANY (ARRAY(SELECT id FROM removed));
  DELETE FROM workflow.workflow_signal WHERE run_id = ANY (ARRAY(SELECT id FROM removed));
  DELETE FROM workflow.workflow_event WHERE workflow_id = ANY (ARRAY(SELECT id FROM removed));
  DELETE FROM workflow.outbox_event WHERE aggregate_id = ANY (ARRAY(SELECT id FROM removed));
  PERFORM set_config('simpleworkflow.tells', '', true);
  UPDATE workflow.workflow_run
  SET wakes = wakes + 1, version = version + 1, updated_at = now(),
      run_at = CASE WHEN status = 'paused' THEN least(coalesce(run_at, now()), now()) ELSE run_at END
  WHERE finished_at IS NULL AND id = ANY (ARRAY(SELECT parent_id FROM removed WHERE parent_id IS NOT NULL));
  IF EXISTS (SELECT FROM removed WHERE finished_at IS NULL) THEN
    PERFORM pg_notify('simpleworkflow_' || TG_TABLE_SCHEMA, 'changed');  -- its owner should stop it now
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER run_removed AFTER DELETE ON workflow.workflow_run
  REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION workflow.run_removed();
DELETE FROM workflow.workflow_step s WHERE NOT EXISTS (SELECT FROM workflow.workflow_run r WHERE r.id = s.run_id);
DELETE FROM workflow.workflow_signal g WHERE NOT EXISTS (SELECT FROM workflow.workflow_run r WHERE r.id = g.run_id);
DELETE FROM workflow.workflow_event e WHERE NOT EXISTS (SELECT FROM workflow.workflow_run r WHERE r.id = e.workflow_id);

-- The newest event of a run holds the run's number: without it the next one would begin again at 1, and two events would
-- have one id. It is put back rather than kept by a trigger of each row: that is one look per statement, and our relay
-- removes whole batches. What goes with its run is not looked at, or `prune` would take a fifth longer. It runs
-- with the rights of its owner, so that a role needs DELETE alone; and no other role may use it on a table of its own.
CREATE FUNCTION workflow.outbox_number_stays() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  WITH owner AS MATERIALIZED (
    SELECT r.id FROM workflow.workflow_run r WHERE r.id = ANY (ARRAY(SELECT aggregate_id FROM removed))),
  newest AS MATERIALIZED (
    SELECT DISTINCT ON (d.aggregate_id) d.* FROM removed d JOIN owner ON owner.id = d.aggregate_id
    ORDER BY d.aggregate_id, d.sequence DESC)
  INSERT INTO workflow.outbox_event (id, aggregate_id, sequence, event_type, created_at, published_at, payload, status,
    attempt, due_at, skipped_at, skipped_by, skip_reason, last_error)
  OVERRIDING SYSTEM VALUE
  SELECT n.id, n.aggregate_id, n.sequence, n.event_type, n.created_at, n.published_at, n.payload, n.status,
         n.attempt, n.due_at, n.skipped_at, n.skipped_by, n.skip_reason, n.last_error
  FROM newest n
  WHERE n.sequence > coalesce(
    (SELECT max(o.sequence) FROM workflow.outbox_event o WHERE o.aggregate_id = n.aggregate_id), 0);
  RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION workflow.outbox_number_stays() FROM PUBLIC;
CREATE TRIGGER outbox_number_stays AFTER DELETE ON workflow.outbox_event
  REFERENCING OLD TABLE AS removed FOR EACH STATEMENT
  WHEN (current_setting('simpleworkflow.tells', true) IS DISTINCT FROM 'removed')
  EXECUTE FUNCTION workflow.outbox_number_stays();

CREATE FUNCTION workflow.outbox_place_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'event % of run % keeps its run and its number', OLD.sequence, OLD.aggregate_id
    USING ERRCODE = 'check_violation', HINT = 'Both make the id by which others know it; insert another one.';
END $$;
CREATE TRIGGER outbox_place_stays BEFORE UPDATE OF aggregate_id, sequence ON workflow.outbox_event FOR EACH ROW
  WHEN (NEW.aggregate_id <> OLD.aggregate_id OR NEW.sequence <> OLD.sequence)
  EXECUTE FUNCTION workflow.outbox_place_stays();

-- A step whose record is gone would run again, and nobody would be told. min(): LIMIT might read the runs from end to end.
CREATE FUNCTION workflow.steps_stay() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  open_run text := (SELECT min(r.id::text) FROM workflow.workflow_run r
                    WHERE r.id = ANY (ARRAY(SELECT run_id FROM removed)) AND r.finished_at IS NULL);
BEGIN
  IF open_run IS NOT NULL THEN
    RAISE EXCEPTION 'run % has not ended and keeps its steps: without their records they would run again', open_run
      USING ERRCODE = 'check_violation', HINT = 'Cancel the run first, or delete it with its steps.';
  END IF;
  RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION workflow.steps_stay() FROM PUBLIC;
CREATE TRIGGER steps_stay AFTER DELETE ON workflow.workflow_step
  REFERENCING OLD TABLE AS removed FOR EACH STATEMENT
  WHEN (current_setting('simpleworkflow.tells', true) IS DISTINCT FROM 'removed')
  EXECUTE FUNCTION workflow.steps_stay();

-- A step keeps its place and its kind, and what it came to. Published values alone are written again and again; a failed
-- step is put aside when its run is retried (clear_steps).
CREATE FUNCTION workflow.step_output_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'step % of run % keeps its output, its kind and its place', OLD.step_id, OLD.run_id
    USING ERRCODE = 'check_violation', HINT = 'Otherwise it would run again, or another value would come back.';
END $$;
CREATE TRIGGER step_output_stays BEFORE UPDATE OF run_id, step_id, kind, status, output, error ON workflow.workflow_step
  FOR EACH ROW WHEN (
    NEW.run_id <> OLD.run_id OR NEW.kind <> OLD.kind
    OR ((NEW.step_id <> OLD.step_id OR NEW.status <> OLD.status)
        AND (NEW.step_id <> OLD.step_id OR (OLD.completed_at IS NOT NULL AND OLD.kind <> 'publish'))
        AND NOT (OLD.status = 'failed' AND NEW.status = 'superseded'
                 AND NEW.step_id = '@superseded ' || OLD.lease_epoch || ' ' || OLD.step_id))
    OR (OLD.completed_at IS NOT NULL AND OLD.kind <> 'publish'
        AND (NEW.output::text IS DISTINCT FROM OLD.output::text OR NEW.error::text IS DISTINCT FROM OLD.error::text)))
  EXECUTE FUNCTION workflow.step_output_stays();

-- Every signal is numbered here, under the lock of its run. Ours says seq = -1: its run was woken before. All others come
-- from outside, whatever seq they give.
CREATE OR REPLACE FUNCTION workflow.signal_sent_by_sql() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.seq <> -1 THEN
    UPDATE workflow.workflow_run
    SET wakes = wakes + 1, version = version + 1, updated_at = now(),
        run_at = CASE WHEN status = 'paused' AND (run_at IS NULL OR run_at > now()) THEN now() ELSE run_at END
    WHERE id = NEW.run_id AND finished_at IS NULL;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'run % has finished, or there is none; the signal was not accepted', NEW.run_id
        USING ERRCODE = 'check_violation';
    END IF;
    PERFORM pg_notify('simpleworkflow_' || TG_TABLE_SCHEMA, 'changed');
  ELSIF NOT EXISTS (SELECT FROM workflow.workflow_run r WHERE r.id = NEW.run_id AND r.finished_at IS NULL) THEN
    RAISE EXCEPTION 'run % has finished, or there is none; the signal was not accepted', NEW.run_id
      USING ERRCODE = 'check_violation';
  END IF;
  NEW.seq := nextval('workflow.workflow_event_id_seq');
  RETURN NEW;
END $$;
DROP TRIGGER signal_sent_by_sql ON workflow.workflow_signal;
CREATE TRIGGER signal_sent_by_sql BEFORE INSERT ON workflow.workflow_signal FOR EACH ROW
  EXECUTE FUNCTION workflow.signal_sent_by_sql();

CREATE FUNCTION workflow.signal_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.run_id <> OLD.run_id THEN
    RAISE EXCEPTION 'signal % was sent to run % and stays there', OLD.id, OLD.run_id
      USING ERRCODE = 'check_violation', HINT = 'Insert another signal.';
  END IF;
  RAISE EXCEPTION 'run % has taken signal %, which is not to be given again', OLD.run_id, OLD.id
    USING ERRCODE = 'check_violation', HINT = 'Insert another signal.';
END $$;
CREATE TRIGGER signal_stays BEFORE UPDATE OF run_id, consumed_at ON workflow.workflow_signal FOR EACH ROW
  WHEN (NEW.run_id <> OLD.run_id OR (NEW.consumed_at IS NULL AND OLD.consumed_at IS NOT NULL))
  EXECUTE FUNCTION workflow.signal_stays();

-- An event of somebody else is numbered under the lock of its run, like ours.
CREATE FUNCTION workflow.outbox_event_numbered() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM workflow.workflow_run WHERE id = NEW.aggregate_id FOR NO KEY UPDATE;
  NEW.sequence := 1 + coalesce(
    (SELECT max(o.sequence) FROM workflow.outbox_event o WHERE o.aggregate_id = NEW.aggregate_id), 0);
  RETURN NEW;
END $$;
CREATE TRIGGER outbox_event_numbered BEFORE INSERT ON workflow.outbox_event FOR EACH ROW
  WHEN (NEW.sequence IS NULL) EXECUTE FUNCTION workflow.outbox_event_numbered();

-- A child's start and its end can be told to belong together: both name the child, and where it was started.
DROP VIEW workflow.workflow_history;
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
         CASE p.kind WHEN 'step' THEN
           json_build_object('activity_name', p.name, 'step_id', p.place_id, 'input', p.input)
         ELSE json_build_object('activity_name', p.name, 'step_id', p.place_id, 'child_id', p.output, 'input', p.input) END
  FROM piece p WHERE p.kind IN ('step', 'child')
  UNION ALL
  SELECT p.run_id, coalesce(p.done_seq, p.seq), 1,
         CASE WHEN p.error IS NULL THEN 'ActivityCompleted' ELSE 'ActivityFailed' END, p.completed_at,
         json_build_object('activity_name', p.name, 'step_id', p.place_id, 'result', p.output, 'error', p.error)
  FROM piece p WHERE p.kind = 'step' AND p.completed_at IS NOT NULL
  UNION ALL
  SELECT p.run_id, coalesce(p.done_seq, p.seq), 1,
         CASE WHEN p.error IS NULL THEN 'ActivityCompleted' ELSE 'ActivityFailed' END, p.completed_at,
         json_build_object('activity_name', p.name, 'step_id', coalesce(c.step_id, p.place_id),
                           'child_id', substring(p.place_id FROM '@result ([^#]*)'), 'result', p.output, 'error', p.error)
  FROM piece p LEFT JOIN workflow.workflow_step c ON c.run_id = p.run_id AND c.kind = 'child'
    AND c.output::text = '"' || substring(p.place_id FROM '@result ([^#]*)') || '"'
  WHERE p.kind = 'result' AND p.completed_at IS NOT NULL
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

-- Newest first: the id of a run that began by itself tells when it was created. A child's carries its parent's time, and
-- somebody else's may tell nothing: those stand here, and no others, because every index costs a run three entries.
CREATE INDEX workflow_run_created ON workflow.workflow_run (created_at, id)
  WHERE id >= '04000000-0000-0000-0000-000000000000' OR get_byte(uuid_send(id), 6) >> 4 <> 7;

-- migrate:down

DROP INDEX workflow.workflow_run_created;
DROP VIEW workflow.workflow_history;
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

DROP TRIGGER signal_stays ON workflow.workflow_signal;
DROP FUNCTION workflow.signal_stays();
DROP TRIGGER signal_sent_by_sql ON workflow.workflow_signal;
CREATE OR REPLACE FUNCTION workflow.signal_sent_by_sql() RETURNS trigger LANGUAGE plpgsql AS $$
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
DROP TRIGGER step_output_stays ON workflow.workflow_step;
DROP FUNCTION workflow.step_output_stays();
DROP TRIGGER steps_stay ON workflow.workflow_step;
DROP FUNCTION workflow.steps_stay();
DROP TRIGGER outbox_place_stays ON workflow.outbox_event;
DROP FUNCTION workflow.outbox_place_stays();
DROP TRIGGER outbox_number_stays ON workflow.outbox_event;
DROP FUNCTION workflow.outbox_number_stays();
DROP TRIGGER outbox_event_numbered ON workflow.outbox_event;
DROP FUNCTION workflow.outbox_event_numbered();
DROP TRIGGER run_removed ON workflow.workflow_run;
DROP FUNCTION workflow.run_removed();
DROP TRIGGER event_told_already ON workflow.workflow_event;
DROP FUNCTION workflow.event_told_already();
DROP TRIGGER event_stays ON workflow.workflow_event;
DROP FUNCTION workflow.event_stays();
DROP TRIGGER run_outcome_stays ON workflow.workflow_run;
DROP FUNCTION workflow.run_outcome_stays();
DROP TRIGGER run_given_attempts ON workflow.workflow_run;
DROP FUNCTION workflow.run_given_attempts();
DROP TRIGGER run_failed_late ON workflow.workflow_run;
DROP TRIGGER run_counted_late ON workflow.workflow_run;
DROP FUNCTION workflow.run_reported_late();
DROP TRIGGER run_moved_by_sql ON workflow.workflow_run;
CREATE OR REPLACE FUNCTION workflow.run_moved_by_sql() RETURNS trigger LANGUAGE plpgsql AS $$
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

ALTER TABLE workflow.outbox_event
  DROP CONSTRAINT outbox_event_shape,
  ADD CONSTRAINT outbox_event_shape CHECK (sequence >= 1 AND isfinite(created_at)) NOT VALID;
ALTER TABLE workflow.workflow_event DROP CONSTRAINT workflow_event_instants;
ALTER TABLE workflow.workflow_signal
  DROP CONSTRAINT workflow_signal_instants, DROP CONSTRAINT workflow_signal_place;
ALTER TABLE workflow.workflow_step DROP CONSTRAINT workflow_step_instants;
ALTER TABLE workflow.workflow_worker DROP CONSTRAINT workflow_worker_instants;
ALTER TABLE workflow.workflow_registry DROP CONSTRAINT workflow_registry_instants,
  DROP CONSTRAINT workflow_registry_on_cancel, DROP CONSTRAINT workflow_registry_dead_letter;
ALTER TABLE workflow.outbox_lane DROP CONSTRAINT outbox_lane_instants, DROP CONSTRAINT outbox_lane_counts;
ALTER TABLE workflow.outbox_rule DROP CONSTRAINT outbox_rule_instants;
ALTER TABLE workflow.workflow_schedule
  DROP CONSTRAINT workflow_schedule_counts, DROP CONSTRAINT workflow_schedule_instants;
ALTER TABLE workflow.workflow_run
  DROP CONSTRAINT workflow_run_counts, DROP CONSTRAINT workflow_run_instants,
  ADD CONSTRAINT workflow_run_counts CHECK (attempt >= 0 AND crashes >= 0 AND max_attempts >= 1 AND lease_epoch >= 0),
  ADD CONSTRAINT workflow_run_instants CHECK (isfinite(run_at) AND isfinite(deadline_at) AND isfinite(start_by));

DROP TRIGGER run_begins_pending ON workflow.workflow_run;
DROP FUNCTION workflow.run_begins_pending();
DROP TRIGGER run_counted_too_far ON workflow.workflow_run;
DROP TRIGGER run_counts_too_far ON workflow.workflow_run;
DROP FUNCTION workflow.run_counts_too_far();
DROP TRIGGER run_allows_attempts ON workflow.workflow_run;
DROP FUNCTION workflow.run_allows_attempts();
UPDATE workflow.workflow_run SET max_attempts = NULL, version = version + 1 WHERE attempts_unset AND lease_epoch = 0;
ALTER TABLE workflow.workflow_run DROP COLUMN attempts_unset;
DROP TRIGGER run_frees_key ON workflow.workflow_run;
DROP FUNCTION workflow.run_frees_key();
DROP INDEX workflow.workflow_run_idempotency;
CREATE UNIQUE INDEX workflow_run_idempotency ON workflow.workflow_run (idempotency_key)
  WHERE idempotency_key IS NOT NULL AND deleted_at IS NULL;
