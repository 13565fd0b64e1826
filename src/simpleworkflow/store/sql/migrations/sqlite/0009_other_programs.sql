-- What other programs may write, and what they may not: see the same migration for PostgreSQL. Here plain SQL never leases
-- a run, so most of its rules have nothing to do. A table cannot be given a CHECK later, so triggers look at what others
-- insert or change. What is there already is brought within the limits where they look at the whole row.

-- migrate:up

-- Counters that leave no room to count on would have the triggers below refuse the claims of their type.
UPDATE workflow_run
SET version = CAST(min(max(version, 0), 1152921504606846976) AS INTEGER),
    lease_epoch = CAST(min(lease_epoch, 1152921504606846976) AS INTEGER),
    wakes = CAST(min(max(wakes, 0), 1152921504606846976) AS INTEGER),
    attempt = CAST(min(attempt, 268435456) AS INTEGER), crashes = CAST(min(crashes, 268435456) AS INTEGER)
WHERE max(version, lease_epoch, wakes) >= 2305843009213693952 OR min(version, wakes) < 0
   OR max(attempt, crashes) >= 536870912;

-- So would what nobody can read: a parent that is no run is none, a BLOB becomes text, and what is no JSON is quoted.
UPDATE workflow_run SET parent_id = NULL
WHERE NOT (typeof(parent_id) = 'text' AND length(CAST(parent_id AS BLOB)) = 36
           AND parent_id GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9a-f]'));
UPDATE workflow_run
SET last_error = CAST(last_error AS TEXT), error = CAST(error AS TEXT), result = CAST(result AS TEXT),
    leased_by = CAST(leased_by AS TEXT), hold_reason = CAST(hold_reason AS TEXT),
    delete_reason = CAST(delete_reason AS TEXT), idempotency_key = CAST(idempotency_key AS TEXT),
    traceparent = CAST(traceparent AS TEXT)
WHERE 'blob' IN (typeof(last_error), typeof(error), typeof(result), typeof(leased_by), typeof(hold_reason),
                 typeof(delete_reason), typeof(idempotency_key), typeof(traceparent));
UPDATE workflow_run
SET result = CASE WHEN json_valid(coalesce(result, 'null')) THEN result ELSE json_quote(result) END,
    error = CASE WHEN json_valid(coalesce(error, 'null')) THEN error ELSE json_object('message', error) END
WHERE NOT (json_valid(coalesce(result, 'null')) AND json_valid(coalesce(error, 'null')));
UPDATE workflow_run SET max_attempts = min(max(CAST(max_attempts AS INTEGER), 1), 1000000000)
WHERE typeof(max_attempts) NOT IN ('integer', 'null') OR max_attempts > 1000000000;

-- An undo run of a name that no run can have would never start. What no boolean is was taken for false by claims.
UPDATE workflow_registry
SET on_cancel = CASE WHEN length(on_cancel) BETWEEN 1 AND 200 AND on_cancel NOT GLOB '*[^A-Za-z0-9_.-]*'
                       AND typeof(on_cancel) = 'text' THEN on_cancel END,
    dead_letter = CASE WHEN length(dead_letter) BETWEEN 1 AND 200 AND dead_letter NOT GLOB '*[^A-Za-z0-9_.-]*'
                         AND typeof(dead_letter) = 'text' THEN dead_letter END,
    is_enabled = CASE WHEN is_enabled OR lower(is_enabled) IN ('true', 't', 'yes', 'on') THEN 1 ELSE 0 END;

-- Signals that nobody can read would hold up the runs that they were sent to. They get an id of our own; what is no JSON
-- is quoted.
UPDATE workflow_signal
SET id = substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 1, 8) || '-' ||
         substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 9, 4) || '-7' ||
         substr(lower(hex(randomblob(2))), 2) || '-' || substr('89ab', 1 + (random() & 3), 1) ||
         substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6)))
WHERE NOT (typeof(id) = 'text' AND length(CAST(id AS BLOB)) = 36
           AND id GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9a-f]'));
UPDATE workflow_signal SET payload = json_quote(CAST(payload AS TEXT))
WHERE NOT (typeof(payload) = 'text' AND json_valid(payload));

UPDATE workflow_event SET data = json_object('text', CAST(data AS TEXT))
WHERE data IS NOT NULL AND NOT (typeof(data) = 'text' AND json_valid(data));

-- The limits look at the whole row: an instant that is none would have every later statement refused. It becomes now.
UPDATE workflow_run
SET updated_at = CASE WHEN typeof(updated_at) IN ('integer', 'null') THEN max(min(updated_at, hi), lo) ELSE now END,
    started_at = CASE WHEN typeof(started_at) IN ('integer', 'null') THEN max(min(started_at, hi), lo) ELSE now END,
    finished_at = CASE WHEN typeof(finished_at) IN ('integer', 'null') THEN max(min(finished_at, hi), lo) ELSE now END,
    held_at = CASE WHEN typeof(held_at) IN ('integer', 'null') THEN max(min(held_at, hi), lo) ELSE now END,
    deleted_at = CASE WHEN typeof(deleted_at) IN ('integer', 'null') THEN max(min(deleted_at, hi), lo) ELSE now END,
    lease_until = CASE WHEN typeof(lease_until) IN ('integer', 'null') THEN max(min(lease_until, hi), lo) ELSE now END,
    created_at = max(min(created_at, hi), lo),
    run_at = max(min(run_at, hi), lo),
    start_by = max(min(start_by, hi), lo),
    deadline_at = max(min(deadline_at, hi), lo)
FROM (SELECT -62135596800000000 AS lo, 253402214400000000 AS hi,
             CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000 AS now)
WHERE max(coalesce(updated_at, 0), coalesce(started_at, 0), coalesce(finished_at, 0), coalesce(held_at, 0),
    coalesce(deleted_at, 0), coalesce(lease_until, 0), coalesce(created_at, 0), coalesce(run_at, 0),
    coalesce(start_by, 0), coalesce(deadline_at, 0)) > hi
   OR min(coalesce(updated_at, 0), coalesce(started_at, 0), coalesce(finished_at, 0), coalesce(held_at, 0),
    coalesce(deleted_at, 0), coalesce(lease_until, 0), coalesce(created_at, 0), coalesce(run_at, 0),
    coalesce(start_by, 0), coalesce(deadline_at, 0)) < lo
   OR replace(replace(typeof(updated_at) || typeof(started_at) || typeof(finished_at) || typeof(held_at) ||
    typeof(deleted_at) || typeof(lease_until), 'integer', ''), 'null', '') <> '';
UPDATE workflow_schedule
SET created_at = CASE WHEN typeof(created_at) IN ('integer', 'null') THEN max(min(created_at, hi), lo) ELSE now END,
    updated_at = CASE WHEN typeof(updated_at) IN ('integer', 'null') THEN max(min(updated_at, hi), lo) ELSE now END,
    last_slot_at = CASE WHEN typeof(last_slot_at) IN ('integer', 'null') THEN max(min(last_slot_at, hi), lo) ELSE now END,
    last_fired_at = CASE WHEN typeof(last_fired_at) IN ('integer', 'null') THEN max(min(last_fired_at, hi), lo) ELSE now END,
    last_skipped_at = CASE WHEN typeof(last_skipped_at) IN ('integer', 'null') THEN max(min(last_skipped_at, hi), lo) ELSE now END,
    next_at = max(min(next_at, hi), lo),
    paused_at = max(min(paused_at, hi), lo),
    fired = min(max(CAST(fired AS INTEGER), 0), 1152921504606846976),
    skipped = min(max(CAST(skipped AS INTEGER), 0), 1152921504606846976)
FROM (SELECT -62135596800000000 AS lo, 253402214400000000 AS hi,
             CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000 AS now)
WHERE max(coalesce(created_at, 0), coalesce(updated_at, 0), coalesce(last_slot_at, 0), coalesce(last_fired_at, 0),
    coalesce(last_skipped_at, 0), coalesce(next_at, 0), coalesce(paused_at, 0)) > hi
   OR min(coalesce(created_at, 0), coalesce(updated_at, 0), coalesce(last_slot_at, 0), coalesce(last_fired_at, 0),
    coalesce(last_skipped_at, 0), coalesce(next_at, 0), coalesce(paused_at, 0)) < lo
   OR replace(replace(typeof(created_at) || typeof(updated_at) || typeof(last_slot_at) || typeof(last_fired_at) ||
    typeof(last_skipped_at) || typeof(fired) || typeof(skipped), 'integer', ''), 'null', '') <> ''
   OR max(fired, skipped) > 2305843009213693952 OR min(fired, skipped) < 0;
UPDATE workflow_registry
SET updated_at = CASE WHEN typeof(updated_at) IN ('integer', 'null') THEN max(min(updated_at, hi), lo) ELSE now END
FROM (SELECT -62135596800000000 AS lo, 253402214400000000 AS hi,
             CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000 AS now)
WHERE updated_at NOT BETWEEN lo AND hi
   OR replace(replace(typeof(updated_at), 'integer', ''), 'null', '') <> '';

-- A deleted run gives its key up; the trail keeps it.
UPDATE workflow_event
SET data = json_set(CASE WHEN json_valid(data) THEN data ELSE '{}' END, '$.idempotency_key',
                    (SELECT r.idempotency_key FROM workflow_run r WHERE r.id = workflow_event.workflow_id))
WHERE event_type = 'deleted' AND workflow_id IN (
  SELECT r.id FROM workflow_run r WHERE r.deleted_at IS NOT NULL AND r.idempotency_key IS NOT NULL);
UPDATE workflow_run SET idempotency_key = NULL
WHERE deleted_at IS NOT NULL AND idempotency_key IS NOT NULL;
DROP INDEX workflow_run_idempotency;
CREATE UNIQUE INDEX workflow_run_idempotency ON workflow_run (idempotency_key);

CREATE TRIGGER run_frees_key AFTER UPDATE OF deleted_at, idempotency_key ON workflow_run
WHEN NEW.deleted_at IS NOT NULL AND NEW.idempotency_key IS NOT NULL
BEGIN
  UPDATE workflow_run SET idempotency_key = NULL, version = version + 1 WHERE id = NEW.id;
END;

CREATE TRIGGER run_has_no_key AFTER INSERT ON workflow_run
WHEN NEW.deleted_at IS NOT NULL AND NEW.idempotency_key IS NOT NULL
BEGIN
  UPDATE workflow_run SET idempotency_key = NULL, version = version + 1 WHERE id = NEW.id;
END;

DROP TRIGGER run_cancelled_by_sql;
CREATE TRIGGER run_cancelled_by_sql BEFORE UPDATE OF status, deleted_at ON workflow_run
WHEN NEW.version = OLD.version AND OLD.finished_at IS NULL
     AND (NEW.status = 'cancelled' OR (NEW.deleted_at IS NOT NULL AND OLD.deleted_at IS NULL))
BEGIN
  INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, data)
  VALUES (OLD.id, 'cancelled', OLD.lease_epoch, '{"by":"sql"}');
  INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, data)
  SELECT OLD.id, 'deleted', OLD.lease_epoch,
         CASE WHEN OLD.idempotency_key IS NULL THEN '{"by":"sql"}'
              ELSE json_object('by', 'sql', 'idempotency_key', OLD.idempotency_key) END
  WHERE NEW.deleted_at IS NOT NULL;
  UPDATE workflow_run
  SET status = 'cancelled', version = version + 1, lease_until = NULL, leased_by = NULL,
      finished_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000,
      updated_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000,
      last_error = NEW.last_error, deleted_at = NEW.deleted_at, delete_reason = NEW.delete_reason,
      idempotency_key = CASE WHEN NEW.deleted_at IS NULL THEN idempotency_key END
  WHERE id = OLD.id;
  SELECT RAISE(IGNORE);
END;

DROP TRIGGER run_deleted_by_sql;
CREATE TRIGGER run_deleted_by_sql AFTER UPDATE OF deleted_at ON workflow_run
WHEN NEW.version = OLD.version AND OLD.finished_at IS NOT NULL
     AND NEW.deleted_at IS NOT NULL AND OLD.deleted_at IS NULL AND NEW.status = OLD.status
BEGIN
  INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, data)
  VALUES (OLD.id, 'deleted', OLD.lease_epoch,
          CASE WHEN OLD.idempotency_key IS NULL THEN '{"by":"sql"}'
               ELSE json_object('by', 'sql', 'idempotency_key', OLD.idempotency_key) END);
END;

-- Whether max_attempts is only what others are shown until the first claim puts the workflow's own number there.
ALTER TABLE workflow_run ADD COLUMN attempts_unset INTEGER NOT NULL DEFAULT 0;

-- Every UPDATE of ours raises version by one; all others are somebody else's. A whole row that was read earlier and is
-- written back, as object mappers do, would undo what happened since.
CREATE TRIGGER run_version_stays BEFORE UPDATE OF version ON workflow_run
WHEN NEW.version NOT IN (OLD.version, OLD.version + 1)
BEGIN
  SELECT RAISE(ABORT, 'the version of a run is not for plain SQL to change: name only the columns that are to change');
END;
-- How a run ended stays so, whatever version says: an object mapper that counts versions by itself looks like us. Where
-- triggers fire themselves, a cancel may meet a run again that it has cancelled just now: run_swept_too_late drops that.
CREATE TRIGGER run_outcome_stays BEFORE UPDATE OF result, error, last_error, attempt, crashes ON workflow_run
WHEN OLD.finished_at IS NOT NULL AND CASE WHEN NEW.version = OLD.version THEN
       NEW.result IS NOT OLD.result OR NEW.error IS NOT OLD.error OR NEW.last_error IS NOT OLD.last_error
       OR NEW.attempt IS NOT OLD.attempt OR NEW.crashes IS NOT OLD.crashes
     ELSE NEW.finished_at IS NOT NULL AND NEW.status = OLD.status
       AND (NEW.result IS NOT OLD.result OR NEW.error IS NOT OLD.error
            OR (NEW.last_error IS NOT OLD.last_error AND substr(NEW.last_error, 1, 16) IS NOT 'its parent ended')) END
BEGIN
  SELECT RAISE(ABORT, 'the run has ended already and keeps its outcome: its result, its errors and what it counted');
END;
CREATE TRIGGER run_id_stays BEFORE UPDATE OF id ON workflow_run
WHEN NEW.id <> OLD.id
BEGIN
  SELECT RAISE(ABORT, 'the id of a run is not to be changed: its trail, its steps and its children are found by it');
END;
CREATE TRIGGER run_parent_stays BEFORE UPDATE OF parent_id ON workflow_run
WHEN NEW.version = OLD.version AND NEW.parent_id IS NOT OLD.parent_id
BEGIN
  SELECT RAISE(ABORT, 'the parent_id of a run is not for plain SQL to change: its parent would wait for an end that never wakes it');
END;
CREATE TRIGGER run_wakes_stay BEFORE UPDATE OF wakes ON workflow_run
WHEN NEW.version = OLD.version AND NEW.wakes < OLD.wakes
BEGIN
  SELECT RAISE(ABORT, 'the wakes of a run only grow: a lower number would undo a wake; leave the column alone');
END;
CREATE TRIGGER run_deleted_stays BEFORE UPDATE OF deleted_at ON workflow_run
WHEN NEW.version = OLD.version AND NEW.deleted_at IS NULL AND OLD.deleted_at IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'the run was deleted and stays so: its key may belong to another run by now; insert a new one');
END;
CREATE TRIGGER run_lease_stays BEFORE UPDATE OF lease_until, attempt, crashes, last_error, result, error ON workflow_run
WHEN NEW.version = OLD.version AND OLD.status = 'leased' AND NEW.status = 'leased'
     AND (NEW.lease_until > OLD.lease_until OR NEW.attempt <> OLD.attempt OR NEW.crashes <> OLD.crashes
          OR NEW.last_error IS NOT OLD.last_error OR NEW.result IS NOT OLD.result OR NEW.error IS NOT OLD.error)
     AND EXISTS (SELECT 1 FROM workflow_worker w WHERE w.id = OLD.leased_by)
BEGIN
  SELECT RAISE(ABORT, 'the run is leased to a worker, which alone may prolong its lease and report of it');
END;
CREATE TRIGGER run_leased_by_sql BEFORE UPDATE OF leased_by, lease_epoch ON workflow_run
WHEN NEW.version = OLD.version AND NEW.status = OLD.status
     AND (NEW.leased_by IS NOT OLD.leased_by OR NEW.lease_epoch <> OLD.lease_epoch)
BEGIN
  SELECT RAISE(ABORT, 'plain SQL may not lease a run; use the API');
END;
CREATE TRIGGER run_updated_by_sql AFTER UPDATE ON workflow_run
WHEN NEW.version = OLD.version
BEGIN
  UPDATE workflow_run
  SET version = version + 1,
      updated_at = CASE WHEN NEW.updated_at <> OLD.updated_at THEN NEW.updated_at
                        ELSE max(CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000, updated_at) END
  WHERE id = NEW.id;
END;

-- Who names the number means it, also when it is the one that stands there for want of another.
CREATE TRIGGER run_given_attempts AFTER UPDATE OF max_attempts ON workflow_run
WHEN NEW.version = OLD.version AND NEW.attempts_unset AND NEW.max_attempts IS NOT NULL
BEGIN
  UPDATE workflow_run SET attempts_unset = 0, version = version + 1 WHERE id = NEW.id;
END;

CREATE TRIGGER run_limits BEFORE INSERT ON workflow_run
WHEN NOT (max(coalesce(NEW.created_at, 0), coalesce(NEW.updated_at, 0), coalesce(NEW.run_at, 0),
    coalesce(NEW.start_by, 0), coalesce(NEW.held_at, 0), coalesce(NEW.deleted_at, 0),
    coalesce(NEW.lease_until, 0), coalesce(NEW.started_at, 0), coalesce(NEW.finished_at, 0),
    coalesce(NEW.deadline_at, 0)) <= 253402300799999999
  AND min(coalesce(NEW.created_at, 0), coalesce(NEW.updated_at, 0), coalesce(NEW.run_at, 0),
    coalesce(NEW.start_by, 0), coalesce(NEW.held_at, 0), coalesce(NEW.deleted_at, 0),
    coalesce(NEW.lease_until, 0), coalesce(NEW.started_at, 0), coalesce(NEW.finished_at, 0),
    coalesce(NEW.deadline_at, 0)) >= -62135596800000000
  AND max(NEW.version, NEW.lease_epoch, NEW.wakes) <= 2305843009213693951
  AND min(NEW.version, NEW.lease_epoch, NEW.wakes) >= 0
  AND max(NEW.attempt, NEW.crashes) <= 536870911 AND coalesce(NEW.max_attempts, 1) <= 1000000000
  AND replace(replace(typeof(NEW.created_at) || typeof(NEW.updated_at) || typeof(NEW.run_at) || typeof(NEW.start_by)
    || typeof(NEW.held_at) || typeof(NEW.deleted_at) || typeof(NEW.lease_until) || typeof(NEW.started_at)
    || typeof(NEW.finished_at) || typeof(NEW.deadline_at) || typeof(NEW.version) || typeof(NEW.lease_epoch)
    || typeof(NEW.wakes) || typeof(NEW.attempt) || typeof(NEW.crashes) || typeof(NEW.max_attempts)
    || typeof(NEW.priority) || typeof(NEW.attempts_unset), 'integer', ''), 'null', '') = ''
  AND 'blob' NOT IN (typeof(NEW.id), typeof(NEW.parent_id), typeof(NEW.type), typeof(NEW.payload), typeof(NEW.leased_by),
    typeof(NEW.last_error), typeof(NEW.error), typeof(NEW.result), typeof(NEW.hold_reason), typeof(NEW.delete_reason),
    typeof(NEW.idempotency_key), typeof(NEW.traceparent))
  AND json_valid(coalesce(NEW.result, 'null')) AND json_valid(coalesce(NEW.error, 'null'))
  AND length(CAST(NEW.id AS BLOB)) = 36
  AND (NEW.parent_id IS NULL OR (length(CAST(NEW.parent_id AS BLOB)) = 36 AND NEW.parent_id
    GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9a-f]'))))
BEGIN
  SELECT RAISE(ABORT, 'workflow_run_limits: ids are UUIDs in lower case with hyphens, instants are whole microseconds between the years 1 and 9999, counters are below 2^61, attempt and crashes below 2^29, max_attempts is at most 1000000000, texts are no BLOBs, results and errors are JSON');
END;
CREATE TRIGGER run_limits_kept BEFORE UPDATE ON workflow_run
WHEN NEW.version = OLD.version
  AND NOT (max(coalesce(NEW.created_at, 0), coalesce(NEW.updated_at, 0), coalesce(NEW.run_at, 0),
    coalesce(NEW.start_by, 0), coalesce(NEW.held_at, 0), coalesce(NEW.deleted_at, 0),
    coalesce(NEW.lease_until, 0), coalesce(NEW.started_at, 0), coalesce(NEW.finished_at, 0),
    coalesce(NEW.deadline_at, 0)) <= 253402300799999999
  AND min(coalesce(NEW.created_at, 0), coalesce(NEW.updated_at, 0), coalesce(NEW.run_at, 0),
    coalesce(NEW.start_by, 0), coalesce(NEW.held_at, 0), coalesce(NEW.deleted_at, 0),
    coalesce(NEW.lease_until, 0), coalesce(NEW.started_at, 0), coalesce(NEW.finished_at, 0),
    coalesce(NEW.deadline_at, 0)) >= -62135596800000000
  AND max(NEW.version, NEW.lease_epoch, NEW.wakes) <= 2305843009213693951
  AND min(NEW.version, NEW.lease_epoch, NEW.wakes) >= 0
  AND max(NEW.attempt, NEW.crashes) <= 536870911 AND coalesce(NEW.max_attempts, 1) <= 1000000000
  AND replace(replace(typeof(NEW.created_at) || typeof(NEW.updated_at) || typeof(NEW.run_at) || typeof(NEW.start_by)
    || typeof(NEW.held_at) || typeof(NEW.deleted_at) || typeof(NEW.lease_until) || typeof(NEW.started_at)
    || typeof(NEW.finished_at) || typeof(NEW.deadline_at) || typeof(NEW.version) || typeof(NEW.lease_epoch)
    || typeof(NEW.wakes) || typeof(NEW.attempt) || typeof(NEW.crashes) || typeof(NEW.max_attempts)
    || typeof(NEW.priority) || typeof(NEW.attempts_unset), 'integer', ''), 'null', '') = ''
  AND 'blob' NOT IN (typeof(NEW.id), typeof(NEW.parent_id), typeof(NEW.type), typeof(NEW.payload), typeof(NEW.leased_by),
    typeof(NEW.last_error), typeof(NEW.error), typeof(NEW.result), typeof(NEW.hold_reason), typeof(NEW.delete_reason),
    typeof(NEW.idempotency_key), typeof(NEW.traceparent))
  AND json_valid(coalesce(NEW.result, 'null')) AND json_valid(coalesce(NEW.error, 'null'))
  AND length(CAST(NEW.id AS BLOB)) = 36
  AND (NEW.parent_id IS NULL OR (length(CAST(NEW.parent_id AS BLOB)) = 36 AND NEW.parent_id
    GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9a-f]'))))
BEGIN
  SELECT RAISE(ABORT, 'workflow_run_limits: ids are UUIDs in lower case with hyphens, instants are whole microseconds between the years 1 and 9999, counters are below 2^61, attempt and crashes below 2^29, max_attempts is at most 1000000000, texts are no BLOBs, results and errors are JSON');
END;
-- It would be a lease, or a wait, without an event; the lease without an epoch of its own, too.
CREATE TRIGGER run_begins_pending BEFORE INSERT ON workflow_run
WHEN NEW.status IN ('leased', 'paused')
BEGIN
  SELECT RAISE(ABORT, 'no run begins leased or paused: insert it pending, or as one that has ended');
END;
CREATE TRIGGER schedule_limits BEFORE INSERT ON workflow_schedule
WHEN NOT (max(coalesce(NEW.created_at, 0), coalesce(NEW.updated_at, 0), coalesce(NEW.next_at, 0),
    coalesce(NEW.paused_at, 0), coalesce(NEW.last_slot_at, 0), coalesce(NEW.last_fired_at, 0),
    coalesce(NEW.last_skipped_at, 0)) <= 253402300799999999
  AND min(coalesce(NEW.created_at, 0), coalesce(NEW.updated_at, 0), coalesce(NEW.next_at, 0),
    coalesce(NEW.paused_at, 0), coalesce(NEW.last_slot_at, 0), coalesce(NEW.last_fired_at, 0),
    coalesce(NEW.last_skipped_at, 0)) >= -62135596800000000
  AND max(NEW.fired, NEW.skipped, coalesce(NEW.every_us, 0), coalesce(NEW.window_us, 0)) <= 4611686018427387903
  AND replace(replace(typeof(NEW.created_at) || typeof(NEW.updated_at) || typeof(NEW.last_slot_at)
    || typeof(NEW.last_fired_at) || typeof(NEW.last_skipped_at) || typeof(NEW.fired) || typeof(NEW.skipped),
    'integer', ''), 'null', '') = ''
  AND 'blob' NOT IN (typeof(NEW.name), typeof(NEW.type), typeof(NEW.payload), typeof(NEW.cron), typeof(NEW.tz),
    typeof(NEW.origin), typeof(NEW.pause_reason), typeof(NEW.trouble), typeof(NEW.last_run_id), typeof(NEW.extra_run_id))
  AND (NEW.last_run_id IS NULL OR (length(CAST(NEW.last_run_id AS BLOB)) = 36 AND NEW.last_run_id
    GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9a-f]')))
  AND (NEW.extra_run_id IS NULL OR (length(CAST(NEW.extra_run_id AS BLOB)) = 36 AND NEW.extra_run_id
    GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9a-f]'))))
BEGIN
  SELECT RAISE(ABORT, 'workflow_schedule_limits: ids are UUIDs in lower case with hyphens, texts are no BLOBs, instants are whole microseconds between the years 1 and 9999, counters are below 2^62');
END;
CREATE TRIGGER schedule_limits_kept BEFORE UPDATE ON workflow_schedule
WHEN NOT (max(coalesce(NEW.created_at, 0), coalesce(NEW.updated_at, 0), coalesce(NEW.next_at, 0),
    coalesce(NEW.paused_at, 0), coalesce(NEW.last_slot_at, 0), coalesce(NEW.last_fired_at, 0),
    coalesce(NEW.last_skipped_at, 0)) <= 253402300799999999
  AND min(coalesce(NEW.created_at, 0), coalesce(NEW.updated_at, 0), coalesce(NEW.next_at, 0),
    coalesce(NEW.paused_at, 0), coalesce(NEW.last_slot_at, 0), coalesce(NEW.last_fired_at, 0),
    coalesce(NEW.last_skipped_at, 0)) >= -62135596800000000
  AND max(NEW.fired, NEW.skipped, coalesce(NEW.every_us, 0), coalesce(NEW.window_us, 0)) <= 4611686018427387903
  AND replace(replace(typeof(NEW.created_at) || typeof(NEW.updated_at) || typeof(NEW.last_slot_at)
    || typeof(NEW.last_fired_at) || typeof(NEW.last_skipped_at) || typeof(NEW.fired) || typeof(NEW.skipped),
    'integer', ''), 'null', '') = ''
  AND 'blob' NOT IN (typeof(NEW.name), typeof(NEW.type), typeof(NEW.payload), typeof(NEW.cron), typeof(NEW.tz),
    typeof(NEW.origin), typeof(NEW.pause_reason), typeof(NEW.trouble), typeof(NEW.last_run_id), typeof(NEW.extra_run_id))
  AND (NEW.last_run_id IS NULL OR (length(CAST(NEW.last_run_id AS BLOB)) = 36 AND NEW.last_run_id
    GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9a-f]')))
  AND (NEW.extra_run_id IS NULL OR (length(CAST(NEW.extra_run_id AS BLOB)) = 36 AND NEW.extra_run_id
    GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9a-f]'))))
BEGIN
  SELECT RAISE(ABORT, 'workflow_schedule_limits: ids are UUIDs in lower case with hyphens, texts are no BLOBs, instants are whole microseconds between the years 1 and 9999, counters are below 2^62');
END;
-- One comparison of each for every step: a trigger of half a microsecond.
CREATE TRIGGER step_limits BEFORE INSERT ON workflow_step
WHEN NEW.started_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR NEW.completed_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR NEW.due_at NOT BETWEEN -62135596800000000 AND 253402300799999999
BEGIN
  SELECT RAISE(ABORT, 'workflow_step_limits: instants are whole microseconds between the years 1 and 9999');
END;
CREATE TRIGGER step_limits_kept BEFORE UPDATE OF started_at, completed_at, due_at ON workflow_step
WHEN NEW.started_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR NEW.completed_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR NEW.due_at NOT BETWEEN -62135596800000000 AND 253402300799999999
BEGIN
  SELECT RAISE(ABORT, 'workflow_step_limits: instants are whole microseconds between the years 1 and 9999');
END;
CREATE TRIGGER worker_limits BEFORE INSERT ON workflow_worker
WHEN NEW.started_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR NEW.seen_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR NEW.stopped_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR replace(replace(typeof(NEW.started_at) || typeof(NEW.seen_at) || typeof(NEW.stopped_at), 'integer', ''), 'null', '') <> ''
BEGIN
  SELECT RAISE(ABORT, 'workflow_worker_limits: instants are whole microseconds between the years 1 and 9999');
END;
CREATE TRIGGER worker_limits_kept BEFORE UPDATE OF started_at, seen_at, stopped_at ON workflow_worker
WHEN NEW.started_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR NEW.seen_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR NEW.stopped_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR replace(replace(typeof(NEW.started_at) || typeof(NEW.seen_at) || typeof(NEW.stopped_at), 'integer', ''), 'null', '') <> ''
BEGIN
  SELECT RAISE(ABORT, 'workflow_worker_limits: instants are whole microseconds between the years 1 and 9999');
END;
CREATE TRIGGER registry_limits BEFORE INSERT ON workflow_registry
WHEN NEW.updated_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR replace(replace(typeof(NEW.updated_at), 'integer', ''), 'null', '') <> ''
  OR typeof(NEW.is_enabled) <> 'integer' OR NEW.is_enabled NOT IN (0, 1)
  OR typeof(NEW.on_cancel) NOT IN ('text', 'null') OR typeof(NEW.dead_letter) NOT IN ('text', 'null')
  OR length(NEW.on_cancel) NOT BETWEEN 1 AND 200 OR NEW.on_cancel GLOB '*[^A-Za-z0-9_.-]*'
  OR length(NEW.dead_letter) NOT BETWEEN 1 AND 200 OR NEW.dead_letter GLOB '*[^A-Za-z0-9_.-]*'
BEGIN
  SELECT RAISE(ABORT, 'workflow_registry_limits: is_enabled is 0 or 1, on_cancel and dead_letter are names of 1 to 200 characters of A-Z a-z 0-9 _ . -, instants are whole microseconds between the years 1 and 9999');
END;
CREATE TRIGGER registry_limits_kept BEFORE UPDATE OF updated_at, is_enabled, on_cancel, dead_letter ON workflow_registry
WHEN NEW.updated_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR replace(replace(typeof(NEW.updated_at), 'integer', ''), 'null', '') <> ''
  OR typeof(NEW.is_enabled) <> 'integer' OR NEW.is_enabled NOT IN (0, 1)
  OR typeof(NEW.on_cancel) NOT IN ('text', 'null') OR typeof(NEW.dead_letter) NOT IN ('text', 'null')
  OR length(NEW.on_cancel) NOT BETWEEN 1 AND 200 OR NEW.on_cancel GLOB '*[^A-Za-z0-9_.-]*'
  OR length(NEW.dead_letter) NOT BETWEEN 1 AND 200 OR NEW.dead_letter GLOB '*[^A-Za-z0-9_.-]*'
BEGIN
  SELECT RAISE(ABORT, 'workflow_registry_limits: is_enabled is 0 or 1, on_cancel and dead_letter are names of 1 to 200 characters of A-Z a-z 0-9 _ . -, instants are whole microseconds between the years 1 and 9999');
END;
CREATE TRIGGER lane_limits BEFORE INSERT ON outbox_lane
WHEN NEW.lease_until NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR NEW.epoch NOT BETWEEN 0 AND 4611686018427387903
  OR replace(replace(typeof(NEW.lease_until) || typeof(NEW.epoch), 'integer', ''), 'null', '') <> ''
BEGIN
  SELECT RAISE(ABORT, 'outbox_lane_limits: instants are whole microseconds between the years 1 and 9999, counters are below 2^62');
END;
CREATE TRIGGER lane_limits_kept BEFORE UPDATE OF lease_until, epoch ON outbox_lane
WHEN NEW.lease_until NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR NEW.epoch NOT BETWEEN 0 AND 4611686018427387903
  OR replace(replace(typeof(NEW.lease_until) || typeof(NEW.epoch), 'integer', ''), 'null', '') <> ''
BEGIN
  SELECT RAISE(ABORT, 'outbox_lane_limits: instants are whole microseconds between the years 1 and 9999, counters are below 2^62');
END;
CREATE TRIGGER rule_limits BEFORE INSERT ON outbox_rule
WHEN NEW.created_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR replace(replace(typeof(NEW.created_at), 'integer', ''), 'null', '') <> ''
BEGIN
  SELECT RAISE(ABORT, 'outbox_rule_limits: instants are whole microseconds between the years 1 and 9999');
END;
CREATE TRIGGER rule_limits_kept BEFORE UPDATE OF created_at ON outbox_rule
WHEN NEW.created_at NOT BETWEEN -62135596800000000 AND 253402300799999999
  OR replace(replace(typeof(NEW.created_at), 'integer', ''), 'null', '') <> ''
BEGIN
  SELECT RAISE(ABORT, 'outbox_rule_limits: instants are whole microseconds between the years 1 and 9999');
END;
CREATE TRIGGER signal_limits BEFORE INSERT ON workflow_signal
WHEN NOT (NEW.id GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9a-f]') AND length(CAST(NEW.id AS BLOB)) = 36
  AND NEW.run_id GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9a-f]') AND length(CAST(NEW.run_id AS BLOB)) = 36
  AND NEW.seq BETWEEN -1 AND 4611686018427387903
  AND NEW.created_at BETWEEN -62135596800000000 AND 253402300799999999
  AND coalesce(NEW.consumed_at, 0) BETWEEN -62135596800000000 AND 253402300799999999
  AND typeof(NEW.seq) = 'integer' AND typeof(NEW.created_at) = 'integer'
  AND typeof(NEW.consumed_at) IN ('integer', 'null') AND typeof(NEW.id) = 'text' AND typeof(NEW.run_id) = 'text'
  AND typeof(NEW.name) = 'text' AND typeof(NEW.consumed_by) IN ('text', 'null')
  AND typeof(NEW.payload) = 'text' AND json_valid(NEW.payload))
BEGIN
  SELECT RAISE(ABORT, 'workflow_signal_limits: ids are UUIDs in lower case with hyphens, instants are whole microseconds between the years 1 and 9999, counters are below 2^62, payload is JSON text');
END;
CREATE TRIGGER signal_limits_kept BEFORE UPDATE OF id, run_id, seq, created_at, consumed_at, consumed_by, name, payload
ON workflow_signal
WHEN NOT (NEW.id GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9a-f]') AND length(CAST(NEW.id AS BLOB)) = 36
  AND NEW.run_id GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9a-f]') AND length(CAST(NEW.run_id AS BLOB)) = 36
  AND NEW.seq BETWEEN 0 AND 4611686018427387903
  AND NEW.created_at BETWEEN -62135596800000000 AND 253402300799999999
  AND coalesce(NEW.consumed_at, 0) BETWEEN -62135596800000000 AND 253402300799999999
  AND typeof(NEW.seq) = 'integer' AND typeof(NEW.created_at) = 'integer'
  AND typeof(NEW.consumed_at) IN ('integer', 'null') AND typeof(NEW.id) = 'text' AND typeof(NEW.run_id) = 'text'
  AND typeof(NEW.name) = 'text' AND typeof(NEW.consumed_by) IN ('text', 'null')
  AND typeof(NEW.payload) = 'text' AND json_valid(NEW.payload))
BEGIN
  SELECT RAISE(ABORT, 'workflow_signal_limits: ids are UUIDs in lower case with hyphens, instants are whole microseconds between the years 1 and 9999, counters are below 2^62, payload is JSON text');
END;

CREATE TRIGGER event_limits BEFORE INSERT ON workflow_event
WHEN NOT (typeof(NEW.workflow_id) = 'text' AND length(CAST(NEW.workflow_id AS BLOB)) = 36
  AND NEW.workflow_id GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9a-f]')
  AND typeof(NEW.created_at) = 'integer' AND NEW.created_at BETWEEN -62135596800000000 AND 253402300799999999
  AND typeof(NEW.lease_epoch) IN ('integer', 'null')
  AND (NEW.data IS NULL OR (typeof(NEW.data) = 'text' AND json_valid(NEW.data))))
BEGIN
  SELECT RAISE(ABORT, 'workflow_event_limits: workflow_id is the id of a run as it stands in workflow_run, created_at is whole microseconds between the years 1 and 9999, data is JSON text');
END;
-- What was told stays told. Old lines may be deleted.
CREATE TRIGGER event_stays BEFORE UPDATE ON workflow_event
BEGIN
  SELECT RAISE(ABORT, 'an event is not to be changed: the trail is append-only');
END;

-- Every signal is numbered here. Ours says seq = -1: its run was woken before. All others come from outside, whatever seq
-- they give.
DROP TRIGGER signal_sent_by_sql;
CREATE TRIGGER signal_sent_by_sql AFTER INSERT ON workflow_signal WHEN NEW.seq <> -1
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
CREATE TRIGGER signal_numbered AFTER INSERT ON workflow_signal WHEN NEW.seq = -1
BEGIN
  SELECT RAISE(ABORT, 'the run has finished, or there is none; the signal was not accepted')
  WHERE NOT EXISTS (SELECT 1 FROM workflow_run WHERE id = NEW.run_id AND finished_at IS NULL);
  UPDATE workflow_signal SET seq = (SELECT q.last * 1048576 + q.n FROM workflow_sequence q) WHERE id = NEW.id;
END;
-- INSERT OR REPLACE removes a row without asking its triggers, and the run would be told twice. It is known by this: its
-- policy takes the place of the one that is written here, and the row of workflow_sequence is replaced.
CREATE TRIGGER signal_not_replaced BEFORE INSERT ON workflow_signal
WHEN EXISTS (SELECT 1 FROM workflow_signal s WHERE s.id = NEW.id)
BEGIN
  INSERT OR IGNORE INTO workflow_sequence (one, last, n) SELECT 1, q.last, -1 FROM workflow_sequence q;
  SELECT RAISE(ABORT, 'a signal of this id is there already and is not to be replaced; use ON CONFLICT')
  WHERE EXISTS (SELECT 1 FROM workflow_sequence q WHERE q.n = -1);
END;
CREATE TRIGGER signal_stays BEFORE UPDATE OF run_id, consumed_at ON workflow_signal
WHEN NEW.run_id <> OLD.run_id OR (NEW.consumed_at IS NULL AND OLD.consumed_at IS NOT NULL)
BEGIN
  SELECT RAISE(ABORT, 'a signal stays with the run that it was sent to, and one that was taken is not to be given again: insert another one');
END;

-- A step whose record is gone would run again, and nobody would be told. Published values alone are written again and
-- again.
CREATE TRIGGER steps_stay BEFORE DELETE ON workflow_step
WHEN EXISTS (SELECT 1 FROM workflow_run r WHERE r.id = OLD.run_id AND r.finished_at IS NULL)
BEGIN
  SELECT RAISE(ABORT, 'the run has not ended and keeps its steps: without their records they would run again; cancel it first, or delete it with its steps');
END;
-- Every step keeps its place and its kind, too. A failed one is put aside when its run is retried (clear_steps).
CREATE TRIGGER step_output_stays BEFORE UPDATE OF run_id, step_id, kind, status, output, error ON workflow_step
WHEN NEW.run_id <> OLD.run_id OR NEW.kind <> OLD.kind
  OR ((NEW.step_id <> OLD.step_id OR NEW.status <> OLD.status)
      AND (NEW.step_id <> OLD.step_id OR (OLD.completed_at IS NOT NULL AND OLD.kind <> 'publish'))
      AND NOT (OLD.status = 'failed' AND NEW.status = 'superseded'
               AND NEW.step_id = '@superseded ' || OLD.lease_epoch || ' ' || OLD.step_id))
  OR (OLD.completed_at IS NOT NULL AND OLD.kind <> 'publish'
      AND (NEW.output IS NOT OLD.output OR NEW.error IS NOT OLD.error))
BEGIN
  SELECT RAISE(ABORT, 'a step keeps its output, its kind and its place: otherwise it would run again, or another value would come back');
END;

-- The triggers tell of every move; what others tell of them as well is passed over.
CREATE TRIGGER event_told_already BEFORE INSERT ON workflow_event
WHEN NEW.lease_epoch IS NULL AND NEW.event_type NOT IN ('started', 'heartbeat')
     AND (NEW.event_type <> 'created' OR EXISTS (SELECT 1 FROM workflow_event e WHERE e.workflow_id = NEW.workflow_id))
BEGIN
  SELECT RAISE(IGNORE);
END;

-- With a run goes what is keyed by it, whoever deletes it; a parent that waits for it learns that it is gone.
CREATE TRIGGER run_removed AFTER DELETE ON workflow_run
BEGIN
  DELETE FROM workflow_step WHERE run_id = OLD.id;
  DELETE FROM workflow_signal WHERE run_id = OLD.id;
  DELETE FROM workflow_event WHERE workflow_id = OLD.id;
  DELETE FROM outbox_event WHERE aggregate_id = OLD.id;
  UPDATE workflow_run
  SET wakes = wakes + 1, version = version + 1,
      run_at = CASE WHEN status = 'paused' THEN updated_at ELSE run_at END
  WHERE id = OLD.parent_id AND finished_at IS NULL;
END;
DELETE FROM workflow_step WHERE run_id NOT IN (SELECT r.id FROM workflow_run r);
DELETE FROM workflow_signal WHERE run_id NOT IN (SELECT r.id FROM workflow_run r);
DELETE FROM workflow_event WHERE workflow_id NOT IN (SELECT r.id FROM workflow_run r);

-- INSERT OR REPLACE removes a row without asking its triggers. A new run has no trail yet.
DROP TRIGGER run_created;
CREATE TRIGGER run_created AFTER INSERT ON workflow_run
BEGIN
  SELECT RAISE(ABORT, 'a run of this id is there already and is not to be replaced; use ON CONFLICT')
  WHERE EXISTS (SELECT 1 FROM workflow_event e WHERE e.workflow_id = NEW.id);
  INSERT INTO workflow_event (workflow_id, event_type, created_at) VALUES (NEW.id, 'created', NEW.created_at);
END;

-- An event of somebody else is numbered here: the row is inserted anew, with its number, in place of theirs.
DROP TRIGGER outbox_event_shape;
CREATE TRIGGER outbox_event_shape BEFORE INSERT ON outbox_event
WHEN NEW.sequence IS NOT NULL AND NOT (
  typeof(NEW.sequence) = 'integer' AND NEW.sequence BETWEEN 1 AND 4611686018427387903 AND typeof(NEW.event_type) = 'text'
  AND typeof(NEW.created_at) = 'integer' AND typeof(NEW.payload) = 'text' AND json_valid(NEW.payload)
  AND NEW.created_at BETWEEN -62135596800000000 AND 253402300799999999
  AND length(NEW.aggregate_id) = 36 AND NEW.aggregate_id NOT GLOB '*[^0-9a-f-]*'
  AND length(replace(NEW.aggregate_id, '-', '')) = 32
  AND substr(NEW.aggregate_id, 9, 1) || substr(NEW.aggregate_id, 14, 1) || substr(NEW.aggregate_id, 19, 1)
      || substr(NEW.aggregate_id, 24, 1) = '----')
BEGIN
  SELECT RAISE(ABORT, 'outbox_event_shape: aggregate_id is the id of a run as it stands in workflow_run, sequence counts from 1, created_at is whole microseconds since 1970, payload is JSON text');
END;
CREATE TRIGGER outbox_event_numbered BEFORE INSERT ON outbox_event
WHEN NEW.sequence IS NULL
BEGIN
  INSERT INTO outbox_event (aggregate_id, sequence, event_type, created_at, published_at, payload, status, attempt,
    due_at, skipped_at, skipped_by, skip_reason, last_error)
  VALUES (NEW.aggregate_id,
          1 + coalesce((SELECT max(o.sequence) FROM outbox_event o WHERE o.aggregate_id = NEW.aggregate_id), 0),
          NEW.event_type, NEW.created_at, NEW.published_at, NEW.payload, NEW.status, NEW.attempt,
          NEW.due_at, NEW.skipped_at, NEW.skipped_by, NEW.skip_reason, NEW.last_error);
  SELECT RAISE(IGNORE);
END;

-- The newest event of a run holds the run's number: without it the next one would begin again at 1, and two events would
-- have one id.
CREATE TRIGGER outbox_number_stays BEFORE DELETE ON outbox_event
WHEN EXISTS (SELECT 1 FROM workflow_run r WHERE r.id = OLD.aggregate_id)
     AND NOT EXISTS (SELECT 1 FROM outbox_event o WHERE o.aggregate_id = OLD.aggregate_id AND o.sequence > OLD.sequence)
BEGIN
  SELECT RAISE(IGNORE);
END;

CREATE TRIGGER outbox_place_stays BEFORE UPDATE OF aggregate_id, sequence ON outbox_event
WHEN NEW.aggregate_id <> OLD.aggregate_id OR NEW.sequence <> OLD.sequence
BEGIN
  SELECT RAISE(ABORT, 'an event keeps its run and its number: both make the id by which others know it');
END;

-- A child's start and its end can be told to belong together: both name the child, and where it was started.
DROP VIEW workflow_history;
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
         CASE p.kind WHEN 'step' THEN
           json_object('activity_name', p.name, 'step_id', p.place_id, 'input', json(p.input))
         ELSE json_object('activity_name', p.name, 'step_id', p.place_id, 'child_id', json(p.output),
                          'input', json(p.input)) END
  FROM piece p WHERE p.kind IN ('step', 'child')
  UNION ALL
  SELECT p.run_id, coalesce(p.done_seq, p.seq), p.tie, 1,
         CASE WHEN p.error IS NULL THEN 'ActivityCompleted' ELSE 'ActivityFailed' END, p.completed_at,
         json_object('activity_name', p.name, 'step_id', p.place_id, 'result', json(p.output), 'error', json(p.error))
  FROM piece p WHERE p.kind = 'step' AND p.completed_at IS NOT NULL
  UNION ALL
  SELECT p.run_id, coalesce(p.done_seq, p.seq), p.tie, 1,
         CASE WHEN p.error IS NULL THEN 'ActivityCompleted' ELSE 'ActivityFailed' END, p.completed_at,
         json_object('activity_name', p.name, 'step_id', coalesce(c.step_id, p.place_id),
                     'child_id', substr(p.place_id, instr(p.place_id, '@result ') + 8, 36),
                     'result', json(p.output), 'error', json(p.error))
  FROM piece p LEFT JOIN workflow_step c ON c.run_id = p.run_id AND c.kind = 'child'
    AND c.output = '"' || substr(p.place_id, instr(p.place_id, '@result ') + 8, 36) || '"'
  WHERE p.kind = 'result' AND p.completed_at IS NOT NULL
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

-- Newest first: the id of a child carries its parent's time, and somebody else's may tell nothing.
CREATE INDEX workflow_run_created ON workflow_run (created_at, id);

-- migrate:down

DROP INDEX workflow_run_created;
DROP VIEW workflow_history;
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

DROP TRIGGER outbox_place_stays;
DROP TRIGGER outbox_number_stays;
DROP TRIGGER outbox_event_numbered;
DROP TRIGGER outbox_event_shape;
CREATE TRIGGER outbox_event_shape BEFORE INSERT ON outbox_event
WHEN NOT (
  typeof(NEW.sequence) = 'integer' AND NEW.sequence >= 1 AND typeof(NEW.event_type) = 'text'
  AND typeof(NEW.created_at) = 'integer' AND typeof(NEW.payload) = 'text' AND json_valid(NEW.payload)
  AND length(NEW.aggregate_id) = 36 AND NEW.aggregate_id NOT GLOB '*[^0-9a-f-]*'
  AND length(replace(NEW.aggregate_id, '-', '')) = 32
  AND substr(NEW.aggregate_id, 9, 1) || substr(NEW.aggregate_id, 14, 1) || substr(NEW.aggregate_id, 19, 1)
      || substr(NEW.aggregate_id, 24, 1) = '----')
BEGIN
  SELECT RAISE(ABORT, 'outbox_event_shape: aggregate_id is the id of a run as it stands in workflow_run, sequence counts from 1, created_at is whole microseconds since 1970, payload is JSON text');
END;
DROP TRIGGER run_created;
CREATE TRIGGER run_created AFTER INSERT ON workflow_run
BEGIN
  INSERT INTO workflow_event (workflow_id, event_type, created_at) VALUES (NEW.id, 'created', NEW.created_at);
END;
DROP TRIGGER run_removed;
DROP TRIGGER event_told_already;
DROP TRIGGER step_output_stays;
DROP TRIGGER steps_stay;
DROP TRIGGER signal_stays;
DROP TRIGGER signal_not_replaced;
DROP TRIGGER signal_numbered;
DROP TRIGGER signal_sent_by_sql;
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
DROP TRIGGER event_stays;
DROP TRIGGER event_limits;
DROP TRIGGER signal_limits_kept;
DROP TRIGGER rule_limits_kept;
DROP TRIGGER rule_limits;
DROP TRIGGER lane_limits_kept;
DROP TRIGGER lane_limits;
DROP TRIGGER registry_limits_kept;
DROP TRIGGER registry_limits;
DROP TRIGGER worker_limits_kept;
DROP TRIGGER worker_limits;
DROP TRIGGER step_limits_kept;
DROP TRIGGER step_limits;
DROP TRIGGER signal_limits;
DROP TRIGGER schedule_limits_kept;
DROP TRIGGER schedule_limits;
DROP TRIGGER run_begins_pending;
DROP TRIGGER run_limits_kept;
DROP TRIGGER run_limits;
DROP TRIGGER run_given_attempts;
DROP TRIGGER run_lease_stays;
DROP TRIGGER run_deleted_stays;
DROP TRIGGER run_wakes_stay;
DROP TRIGGER run_parent_stays;
DROP TRIGGER run_id_stays;
DROP TRIGGER run_updated_by_sql;
DROP TRIGGER run_leased_by_sql;
DROP TRIGGER run_outcome_stays;
DROP TRIGGER run_version_stays;
UPDATE workflow_run SET max_attempts = NULL, version = version + 1 WHERE attempts_unset AND lease_epoch = 0;
ALTER TABLE workflow_run DROP COLUMN attempts_unset;
DROP TRIGGER run_deleted_by_sql;
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
DROP TRIGGER run_cancelled_by_sql;
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
DROP TRIGGER run_has_no_key;
DROP TRIGGER run_frees_key;
DROP INDEX workflow_run_idempotency;
CREATE UNIQUE INDEX workflow_run_idempotency ON workflow_run (idempotency_key)
  WHERE idempotency_key IS NOT NULL AND deleted_at IS NULL;
