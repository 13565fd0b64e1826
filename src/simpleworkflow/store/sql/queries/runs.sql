-- Runs: create, claim, settle, renew, sweep, control. model/moves.py says which moves are allowed. A statement here
-- checks that the run is still in the state it expects and, where a lease is needed, that the lease is still the
-- caller's, and makes one move. Every UPDATE increments version: by that the triggers tell our writes from those of
-- plain SQL. Batches are sorted by run id, so that row locks are taken in the order of ids.
-- A lease is proved by run, epoch and worker in one comparison, {valid_epoch} = b.epoch. As separate conditions, status
-- = 'leased' would look so selective to the planner that it would read a young table, or the index of leased runs, from
-- end to end instead of looking up each run. Why the worker is compared too: docs/decisions/0025.

-- fragment: run_columns
r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, {chosen_attempts} AS max_attempts, r.lease_until, r.leased_by,
r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.idempotency_key, r.created_at,
r.updated_at, r.started_at, r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.error AS error_json,
r.result AS result_json, r.payload AS payload_json, r.traceparent

-- fragment: chosen_attempts
CASE WHEN r.attempts_unset AND r.lease_epoch = 0 THEN NULL ELSE r.max_attempts END

-- fragment: valid_epoch
CASE WHEN r.status = 'leased' AND r.leased_by = :worker THEN r.lease_epoch END

-- fragment: worker_told
json_extract(e.data, '$.worker')

-- fragment: json_object
json_object

-- fragment: told
CASE WHEN :telling THEN NULL END AS told

-- name: insert_runs
-- Inserts the runs that do not exist yet. Runs whose id or key is taken, or whose definition is disabled, are skipped;
-- the caller reads them afterwards. With :telling the commit also notifies those who listen for work, see
-- docs/decisions/0014. On SQLite the driver does that.
-- batch: n(run_id uuid, type text, payload json, priority integer, run_at timestamptz, delay bigint, idempotency_key text, max_attempts integer, start_within bigint, parent_id uuid, traceparent text)
-- param: telling boolean
INSERT INTO workflow.workflow_run
  (id, type, payload, priority, run_at, idempotency_key, max_attempts, attempts_unset, start_by, parent_id, traceparent,
   created_at, updated_at)
SELECT n.run_id, n.type, n.payload, n.priority, coalesce(n.run_at, :now + us(n.delay)), n.idempotency_key,
       coalesce(n.max_attempts, 3), n.max_attempts IS NULL, coalesce(n.run_at, :now + us(n.delay)) + us(n.start_within),
       n.parent_id, n.traceparent, :now, :now
FROM :n
WHERE NOT EXISTS (SELECT 1 FROM workflow.workflow_registry g WHERE g.workflow_name = n.type AND NOT g.is_enabled)
ON CONFLICT DO NOTHING
RETURNING id, {told}

-- name: runs_like
-- The runs that have one of these ids or keys already.
-- batch: n(run_id uuid, idempotency_key text)
SELECT r.id, r.idempotency_key, r.type, CAST(r.payload AS text) AS payload_json
FROM :n JOIN workflow.workflow_run r ON r.id = n.run_id
UNION
SELECT r.id, r.idempotency_key, r.type, CAST(r.payload AS text)
FROM :n JOIN workflow.workflow_run r ON r.idempotency_key = n.idempotency_key
WHERE r.idempotency_key IS NOT NULL AND r.deleted_at IS NULL

-- fragment: lanes_with(crashes)
WITH RECURSIVE lane(type, priority, run_at, high) AS (
  SELECT h.type, h.priority, h.run_at, span.high
  FROM :span JOIN workflow.workflow_run h ON h.rowid = coalesce(
    (SELECT r.rowid FROM workflow.workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND {crashes}
       AND r.type = span.type AND r.priority > span.priority
     ORDER BY r.priority, r.run_at LIMIT 1),
    (SELECT r.rowid FROM workflow.workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND {crashes}
       AND r.type > span.type AND r.type < span.high
     ORDER BY r.type, r.priority, r.run_at LIMIT 1))
  UNION ALL
  SELECT h.type, h.priority, h.run_at, lane.high
  FROM lane JOIN workflow.workflow_run h ON h.rowid = coalesce(
    (SELECT r.rowid FROM workflow.workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND {crashes}
       AND r.type = lane.type AND r.priority > lane.priority
     ORDER BY r.priority, r.run_at LIMIT 1),
    (SELECT r.rowid FROM workflow.workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND {crashes}
       AND r.type > lane.type AND r.type < lane.high
     ORDER BY r.type, r.priority, r.run_at LIMIT 1))
  ORDER BY 1, 2
)
SELECT l.type, l.priority, CASE WHEN l.run_at <= :now AND NOT EXISTS (
    SELECT 1 FROM workflow.workflow_registry g WHERE g.workflow_name = l.type AND NOT g.is_enabled)
  THEN 1 ELSE 0 END AS due, l.run_at - :now AS due_in
FROM (SELECT type, priority, run_at FROM lane LIMIT :limit) AS l

-- name: find_lanes
-- The lanes (type, priority) in the given spans that have a due run, found by a loose index scan: a few pages for each
-- lane, however many runs wait. They come in the order of (type, priority). A span starts after a place (type,
-- priority), so that a caller can walk many lanes in parts. SQLite looks for the next lane in two places, first in the
-- same type and then in the types behind it: with (type, priority) > (...) it would seek by the first column only and
-- read a whole lane to find its end.
-- batch: span(type text, priority integer, high text)
-- param: limit integer
{lanes_with(r.crashes = 0)}

-- name: find_suspect_lanes
-- The same lanes of runs whose last execution ended with the crash of its process.
-- batch: span(type text, priority integer, high text)
-- param: limit integer
{lanes_with(r.crashes > 0)}

-- fragment: claim_with(crashes)
UPDATE workflow.workflow_run
SET status = 'leased', version = version + 1, lease_epoch = lease_epoch + 1, leased_by = :worker,
    lease_until = :now + us((SELECT lane.lease FROM :lane)),
    max_attempts = CASE WHEN max_attempts IS NULL OR (attempts_unset AND lease_epoch = 0)
                        THEN (SELECT lane.max_attempts FROM :lane) ELSE max_attempts END,
    deadline_at = coalesce(deadline_at, :now + us((SELECT lane.timeout FROM :lane))),
    started_at = coalesce(started_at, :now), updated_at = :now
WHERE id IN (
  SELECT r.id FROM workflow.workflow_run r
  WHERE r.status IN ('pending', 'paused') AND r.run_at <= :now AND r.held_at IS NULL AND {crashes}
    AND r.type = (SELECT lane.type FROM :lane) AND r.priority = (SELECT lane.priority FROM :lane)
    AND r.run_at >= coalesce((SELECT lane.low FROM :lane), -9223372036854775807)
    AND NOT EXISTS (SELECT 1 FROM workflow.workflow_registry g, :lane WHERE g.workflow_name = lane.type AND NOT g.is_enabled)
    AND (r.deadline_at IS NULL OR r.deadline_at > :now)
    AND (r.start_by IS NULL OR r.start_by > :now OR r.started_at IS NOT NULL)
  ORDER BY r.run_at, r.id LIMIT :limit)
RETURNING id, type, lease_epoch AS epoch, attempt, crashes, max_attempts, priority, payload,
  (lease_until - :now) / 1000000.0 AS lease_seconds, (deadline_at - :now) / 1000000.0 AS deadline_in, parent_id, wakes,
  idempotency_key, run_at, :now AS claimed_at, traceparent

-- name: claim_lanes
-- Leases the first due runs of the given lanes, in order; the columns of the answer are the fields of Lease. SQLite has
-- no LATERAL, so there the caller gives one lane at a time.
-- batch: lane(type text, priority integer, max_attempts integer, lease bigint, timeout bigint, low timestamptz)
-- param: limit integer, worker text
{claim_with(r.crashes = 0)}

-- name: claim_suspect_lanes
-- The same for runs that crashed, with so many crashes.
-- batch: lane(type text, priority integer, max_attempts integer, lease bigint, timeout bigint, low timestamptz)
-- param: limit integer, worker text
-- param: least integer, most integer
{claim_with(r.crashes > 0 AND r.crashes BETWEEN :least AND :most)}

-- name: log_leased
-- batch: e(run_id uuid, epoch bigint)
-- param: worker text
INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
SELECT e.run_id, 'leased', e.epoch, json_object('worker', :worker), :now FROM :e

-- name: lock_runs
-- Locks the rows of a batch and of the parents that it will wake, in the order of ids, before anything is written. In
-- the opposite order (child, then parent) it would deadlock with a cancel (parent, then children).
-- batch: b(run_id uuid)
SELECT r.id FROM workflow.workflow_run r
WHERE r.id IN (SELECT b.run_id FROM :b)
   OR r.id IN (SELECT c.parent_id FROM :b JOIN workflow.workflow_run c ON c.id = b.run_id)
ORDER BY r.id

-- fragment: never_started
b.started = 0 AND b.status = 'pending' AND r.attempt = 0 AND r.crashes = 0
AND (SELECT 1 FROM workflow.workflow_event e
     WHERE e.workflow_id = r.id AND e.event_type IN ('started', 'retried', 'heartbeat') LIMIT 1) IS NULL
AND (SELECT 1 FROM workflow.workflow_step s WHERE s.run_id = r.id LIMIT 1) IS NULL

-- name: settle_runs
-- Ends executions (success, failure, retry, release, overrun), only under the caller's own lease. A run that is given
-- back and whose code never began ({never_started}) counts as not started: start_by applies to it again, and a deadline
-- that the claim set is removed. That is not asked with EXISTS, because PostgreSQL might read whole tables into a hash
-- for it. SQLite computes all rows and new values of an UPDATE before it changes the first row, and the end of one run
-- may wake or cancel another run of the batch, so there the rows are updated one by one.
-- batch: b(run_id uuid, epoch bigint, status text, event text, started integer, elapsed bigint, burns integer, delay bigint, anew integer, result json, error json, last_error text, hold_reason text, data json)
-- param: worker text
-- each: b
UPDATE workflow.workflow_run AS r
SET status = b.status, version = r.version + 1, attempt = r.attempt + b.burns,
    run_at = CASE WHEN b.status = 'pending' THEN :now + us(b.delay) ELSE r.run_at END,
    lease_until = NULL, leased_by = NULL, updated_at = :now,
    finished_at = CASE WHEN b.status = 'pending' THEN NULL ELSE :now END,
    result = b.result, error = coalesce(b.error, r.error), last_error = coalesce(b.last_error, r.last_error),
    held_at = CASE WHEN b.hold_reason IS NULL THEN r.held_at ELSE :now END,
    hold_reason = coalesce(b.hold_reason, r.hold_reason),
    started_at = CASE WHEN {never_started} THEN NULL ELSE r.started_at END,
    deadline_at = CASE WHEN b.anew = 1 AND {never_started} THEN NULL ELSE r.deadline_at END
FROM :b
WHERE r.id = b.run_id AND {valid_epoch} = b.epoch
RETURNING id AS run_id, lease_epoch AS epoch

-- name: finish_runs
-- The usual end, a success that concerns no other run: settle_runs with as few columns as possible in its batch.
-- batch: b(run_id uuid, epoch bigint, elapsed bigint, result json)
-- param: worker text
UPDATE workflow.workflow_run AS r
SET status = 'succeeded', version = r.version + 1, lease_until = NULL, leased_by = NULL, updated_at = :now,
    finished_at = :now, result = b.result
FROM :b
WHERE r.id = b.run_id AND {valid_epoch} = b.epoch
RETURNING id AS run_id, lease_epoch AS epoch

-- name: log_finished
-- batch: b(run_id uuid, epoch bigint, elapsed bigint)
INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, created_at)
SELECT b.run_id, 'started', b.epoch, :now - us(b.elapsed) FROM :b
UNION ALL
SELECT b.run_id, 'succeeded', b.epoch, :now FROM :b

-- name: log_settled
-- batch: b(run_id uuid, epoch bigint, event text, started integer, elapsed bigint, data json, held integer)
INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
SELECT b.run_id, 'started', b.epoch, NULL, :now - us(b.elapsed) FROM :b WHERE b.started = 1
UNION ALL
SELECT b.run_id, b.event, b.epoch, b.data, :now FROM :b
UNION ALL
SELECT b.run_id, 'held', b.epoch, b.data, :now FROM :b WHERE b.held = 1

-- name: settled_already
-- After a commit whose outcome is unknown: which of these runs are in the state that we wanted to leave them in, under
-- a lease that was ours. The run no longer names its worker; the event of the lease does.
-- batch: b(run_id uuid, epoch bigint, status text)
-- param: worker text
SELECT r.id AS run_id, b.epoch FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id
WHERE r.lease_epoch = b.epoch AND r.status = b.status AND EXISTS (
  SELECT 1 FROM workflow.workflow_event e
  WHERE e.workflow_id = r.id AND e.event_type = 'leased' AND e.lease_epoch = b.epoch
    AND {worker_told} = :worker)

-- name: renew_leases
-- Prolongs leases. A lease that user code has prolonged further is not shortened.
-- batch: b(run_id uuid, epoch bigint, lease bigint)
-- param: worker text
UPDATE workflow.workflow_run AS r
SET lease_until = CASE WHEN r.lease_until > :now + us(b.lease) THEN r.lease_until ELSE :now + us(b.lease) END,
    version = r.version + 1, updated_at = :now
FROM :b
WHERE r.id = b.run_id AND {valid_epoch} = b.epoch
RETURNING id AS run_id

-- name: lease_states
-- The state of the runs that a worker believes it owns.
-- batch: b(run_id uuid, epoch bigint)
-- param: worker text
SELECT r.id, b.epoch, CASE WHEN {valid_epoch} = b.epoch THEN 1 ELSE 0 END AS owned,
       CASE WHEN r.held_at IS NULL THEN 0 ELSE 1 END AS held, r.wakes
FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id

-- name: lock_leases
-- The fence: which of these leases are still valid. Their rows stay locked until the transaction ends.
-- batch: b(run_id uuid, epoch bigint)
-- param: worker text
SELECT r.id AS run_id, b.epoch FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id
WHERE {valid_epoch} = b.epoch ORDER BY r.id

-- name: lock_free_leases
-- The same without the leases whose rows another session has locked. SQLite has no row locks.
-- like: lock_leases

-- name: log_events
-- batch: e(run_id uuid, event text, epoch bigint, data json)
INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
SELECT e.run_id, e.event, e.epoch, e.data, :now FROM :e

-- name: leased_runs
-- All runs that one worker has leased.
-- param: worker text
SELECT r.id AS run_id, r.lease_epoch AS epoch FROM workflow.workflow_run r
WHERE r.status = 'leased' AND r.leased_by = :worker

-- name: lease_holders
-- The workers that hold leases now, by a loose scan of the index of leased runs.
WITH RECURSIVE holder(leased_by) AS (
  SELECT min(leased_by) FROM workflow.workflow_run WHERE status = 'leased'
  UNION ALL
  SELECT (SELECT min(r.leased_by) FROM workflow.workflow_run r WHERE r.status = 'leased' AND r.leased_by > holder.leased_by)
  FROM holder WHERE holder.leased_by IS NOT NULL)
SELECT leased_by FROM holder WHERE leased_by IS NOT NULL

-- fragment: holds_when_spent
EXISTS (SELECT 1 FROM workflow.workflow_registry g WHERE g.workflow_name = r.type AND g.on_exhausted = 'hold')

-- fragment: excused
CASE WHEN CAST(r.id AS text) IN (SELECT x.run_id FROM :x) THEN 1 ELSE 0 END

-- fragment: last_claim(run_id)
(SELECT max(e.id) FROM workflow.workflow_event e WHERE e.event_type = 'leased' AND e.workflow_id = {run_id})

-- fragment: lost_with_it
o.id <> r.id AND o.crashes > 0 AND o.last_error = 'its worker stopped without finishing it: ' || r.leased_by
AND o.crashes > 1 AND (r.crashes = 1 OR (o.crashes > 2
  AND {last_claim(o.id)}
    > {last_claim(r.id)}))

-- fragment: lease_is_lost
r.status = 'leased' AND (r.lease_until < :now OR r.leased_by IN (SELECT w.worker FROM :w))
AND r.leased_by <> :me

-- name: crashed_in_company
-- Runs that crashed before and whose lease is lost again, where another run more likely brought the process down. That
-- one is still leased, or was taken back just before, because leases end one after the other. Such runs are excused,
-- but at most three times, so that no run is executed for ever. See docs/decisions/0024.
-- batch: w(worker text)
-- param: me text
SELECT r.id AS run_id FROM workflow.workflow_run r
WHERE {lease_is_lost} AND r.crashes BETWEEN 1 AND 3 AND (EXISTS (
    SELECT 1 FROM workflow.workflow_run o
    WHERE o.status = 'leased' AND o.leased_by = r.leased_by AND o.id <> r.id AND o.crashes > 0
      AND (r.crashes = 1 OR (o.crashes > 1
        AND {last_claim(o.id)}
          > {last_claim(r.id)})))
  OR EXISTS (
    SELECT 1 FROM workflow.workflow_run o
    WHERE o.status IN ('pending', 'paused') AND o.run_at IS NOT NULL AND o.held_at IS NULL
      AND {lost_with_it})
  OR EXISTS (
    SELECT 1 FROM workflow.workflow_run o
    WHERE o.status = 'leased'
      AND {lost_with_it}))

-- fragment: attempts_used
r.attempt + r.crashes - {excused} + 1

-- fragment: one_crash_more
version = version + 1, crashes = crashes + 1, lease_until = NULL, leased_by = NULL,
max_attempts = CASE WHEN {excused} = 1 AND coalesce(max_attempts, 3) < 1000000000 THEN coalesce(max_attempts, 3) + 1
                    ELSE max_attempts END,
run_at = :now + us(:unit * CASE WHEN crashes = 0 THEN 0 WHEN crashes > 9 THEN 300 ELSE (1 << (crashes - 1)) END)

-- fragment: error_of_crash
last_error = 'its worker stopped without finishing it: ' || leased_by,
error = {json_object}('type', 'WorkerCrashed', 'message', 'its worker stopped without finishing it: ' || leased_by)

-- name: crash_runs
-- Makes runs pending again whose lease ran out or whose process is gone, with one crash more: due at once after the
-- first crash, later after growing pauses. An excused run is allowed one execution more. For all types, up to a limit,
-- in the order of the index of leased runs. A worker never takes back its own leases: it is alive, and after an outage
-- its renewal or its journal is on the way.
-- batch: w(worker text)
-- batch: x(run_id text)
-- param: limit integer, unit bigint, me text
UPDATE workflow.workflow_run AS r
SET status = 'pending',
    {one_crash_more},
    finished_at = NULL, updated_at = :now,
    {error_of_crash}
WHERE id IN (
  SELECT r.id FROM workflow.workflow_run r
  WHERE {lease_is_lost}
    AND {attempts_used} < coalesce(r.max_attempts, 3)
  ORDER BY r.leased_by, r.id LIMIT :limit)
RETURNING id, status, lease_epoch, crashes, last_error

-- name: give_up_runs
-- The same for runs whose attempts and crashes are used up: they fail. It is a statement of its own, executed after
-- crash_runs, because the end of a run also cancels its open children, and crash_runs may just have moved some of
-- those.
-- batch: w(worker text)
-- batch: x(run_id text)
-- param: limit integer, unit bigint, me text
UPDATE workflow.workflow_run AS r
SET status = 'failed',
    {one_crash_more},
    finished_at = :now, updated_at = :now,
    {error_of_crash}
WHERE id IN (
  SELECT r.id FROM workflow.workflow_run r
  WHERE {lease_is_lost}
    AND {attempts_used} >= coalesce(r.max_attempts, 3)
    AND NOT {holds_when_spent}
  ORDER BY r.leased_by, r.id LIMIT :limit)
RETURNING id, status, lease_epoch, crashes, last_error

-- name: hold_spent_runs
-- The same for types whose runs are held for an operator when their attempts and crashes are used up.
-- batch: w(worker text)
-- batch: x(run_id text)
-- param: limit integer, unit bigint, me text
UPDATE workflow.workflow_run AS r
SET status = 'pending',
    {one_crash_more},
    held_at = :now, hold_reason = 'out of attempts; its worker stopped without finishing it', updated_at = :now,
    {error_of_crash}
WHERE id IN (
  SELECT r.id FROM workflow.workflow_run r
  WHERE {lease_is_lost}
    AND {attempts_used} >= coalesce(r.max_attempts, 3)
    AND {holds_when_spent}
  ORDER BY r.leased_by, r.id LIMIT :limit)
RETURNING id, status, lease_epoch, crashes, last_error

-- fragment: time_out(reason)
status = 'timed_out', version = version + 1, finished_at = :now, updated_at = :now, lease_until = NULL,
leased_by = NULL, last_error = {reason},
error = {json_object}('type', 'RunTimedOut', 'message', {reason})

-- name: expire_deadlines
-- Ends runs whose deadline has passed, without running user code. The worker that executes a run ends it itself and can
-- report more of it, so a leased run is left to its worker for :grace.
-- param: limit integer, grace bigint
UPDATE workflow.workflow_run
SET {time_out('its deadline passed')}
WHERE id IN (
  SELECT r.id FROM workflow.workflow_run r
  WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.deadline_at <= :now
    AND (r.status <> 'leased' OR r.deadline_at <= :now - us(:grace))
  ORDER BY r.deadline_at LIMIT :limit)
RETURNING id, status, lease_epoch, crashes, last_error

-- name: expire_unstarted
-- The same for runs that no worker has started in time.
-- param: limit integer, grace bigint
UPDATE workflow.workflow_run
SET {time_out('no worker started it in time')}
WHERE id IN (
  SELECT r.id FROM workflow.workflow_run r
  WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.start_by <= :now
    AND (r.status <> 'leased' OR r.start_by <= :now - us(:grace))
  ORDER BY r.start_by LIMIT :limit)
RETURNING id, status, lease_epoch, crashes, last_error

-- fragment: next_deadline
SELECT r.deadline_at FROM workflow.workflow_run r
WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.status IN ('pending', 'paused')
ORDER BY r.deadline_at LIMIT 1

-- fragment: next_start_by
SELECT r.start_by FROM workflow.workflow_run r
WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.status IN ('pending', 'paused')
ORDER BY r.start_by LIMIT 1

-- name: next_expiry
-- When the next run that nobody executes will be overdue. A run that is executed is ended by its worker.
SELECT ({next_deadline}) - :now AS deadline_in, ({next_start_by}) - :now AS start_in

-- name: cancel_runs
-- batch: b(run_id uuid)
-- param: reason text
-- each: b
UPDATE workflow.workflow_run AS r
SET status = 'cancelled', version = r.version + 1, finished_at = :now, updated_at = :now, lease_until = NULL,
    leased_by = NULL, last_error = coalesce(:reason, r.last_error)
FROM :b
WHERE r.id = b.run_id AND r.status IN ('pending', 'leased', 'paused')
RETURNING id, lease_epoch

-- name: hold_runs
-- batch: b(run_id uuid)
-- param: reason text
UPDATE workflow.workflow_run AS r
SET held_at = :now, hold_reason = :reason, version = r.version + 1, updated_at = :now
FROM :b
WHERE r.id = b.run_id AND r.status IN ('pending', 'leased', 'paused') AND r.held_at IS NULL
RETURNING id, lease_epoch

-- name: resume_runs
-- batch: b(run_id uuid)
UPDATE workflow.workflow_run AS r
SET held_at = NULL, hold_reason = NULL, version = r.version + 1, updated_at = :now
FROM :b
WHERE r.id = b.run_id AND r.status IN ('pending', 'leased', 'paused') AND r.held_at IS NOT NULL
RETURNING id, lease_epoch

-- name: revive_runs
-- An operator's retry of a finished run: attempts, crashes, errors and deadline start anew. The events remain.
-- batch: b(run_id uuid)
UPDATE workflow.workflow_run AS r
SET status = 'pending', version = r.version + 1, run_at = :now, attempt = 0, crashes = 0, deadline_at = NULL,
    start_by = NULL, finished_at = NULL, result = NULL, error = NULL, last_error = NULL, held_at = NULL,
    hold_reason = NULL, updated_at = :now
FROM :b
WHERE r.id = b.run_id AND r.status IN ('succeeded', 'failed', 'cancelled', 'timed_out') AND r.deleted_at IS NULL
RETURNING id, lease_epoch

-- name: cancelled_with_parent
-- Children that were cancelled because their parent ended.
-- batch: b(run_id uuid)
SELECT c.id FROM :b JOIN workflow.workflow_run c ON c.parent_id = b.run_id
WHERE c.status = 'cancelled' AND c.deleted_at IS NULL AND substr(c.last_error, 1, 16) = 'its parent ended'

-- name: delete_runs
-- Marks runs as deleted. The row stays, and its idempotency key can be used again. Open runs are cancelled before.
-- batch: b(run_id uuid)
-- param: reason text
UPDATE workflow.workflow_run AS r
SET deleted_at = :now, delete_reason = :reason, version = r.version + 1, updated_at = :now
FROM :b
WHERE r.id = b.run_id AND r.finished_at IS NOT NULL AND r.deleted_at IS NULL
RETURNING id, lease_epoch

-- name: hasten_undo
-- The worker has stopped the code of a cancelled run, so the undo run need not wait until the lease would have ended.
-- param: run_id uuid, epoch bigint, worker text, idempotency_key text
UPDATE workflow.workflow_run
SET run_at = :now, version = version + 1, updated_at = :now
WHERE idempotency_key = :idempotency_key AND deleted_at IS NULL AND status = 'pending' AND run_at > :now AND EXISTS (
  SELECT 1 FROM workflow.workflow_event e
  WHERE e.workflow_id = :run_id AND e.event_type = 'leased' AND e.lease_epoch = :epoch AND {worker_told} = :worker)
RETURNING id

-- name: get_runs
-- batch: b(run_id uuid)
SELECT {run_columns} FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id

-- name: run_with_key
-- param: idempotency_key text
SELECT r.id FROM workflow.workflow_run r WHERE r.idempotency_key = :idempotency_key AND r.deleted_at IS NULL

-- name: open_runs
-- All runs that have not finished; for small databases.
SELECT {run_columns}, r.wakes FROM workflow.workflow_run r WHERE r.finished_at IS NULL ORDER BY r.id

-- name: finished_among
-- batch: b(run_id uuid)
SELECT {run_columns} FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id WHERE r.finished_at IS NOT NULL

-- fragment: wanted_runs
(:any_status = 1 OR r.status IN (SELECT s.status FROM :s))
AND (:type IS NULL OR r.type = :type)
AND (:low IS NULL OR (r.type >= :low AND r.type < :high))
AND (:idempotency_key IS NULL OR r.idempotency_key = :idempotency_key)
AND (:with_deleted = 1 OR r.deleted_at IS NULL)
AND (:held = 0 OR (r.held_at IS NOT NULL AND r.finished_at IS NULL))

-- name: list_runs
-- One page of runs, the newest first by creation, after the place of the last run seen (:below IS NULL: the first
-- page). The bounds are written without OR, so that SQLite starts its index scan at them.
-- batch: s(status text)
-- param: any_status integer, type text, low text, high text, since timestamptz, until timestamptz, idempotency_key text, below uuid, at timestamptz, last uuid, with_deleted integer, held integer, limit integer
SELECT {run_columns} FROM workflow.workflow_run r
WHERE (r.created_at, r.id) < (CASE WHEN :below IS NULL THEN 9223372036854775807 ELSE :at END, coalesce(:last, 'g'))
  AND r.created_at >= coalesce(:since, -9223372036854775807)
  AND r.created_at < coalesce(:until, 9223372036854775807)
  AND {wanted_runs}
ORDER BY r.created_at DESC, r.id DESC LIMIT :limit

-- name: run_places
-- batch: b(run_id uuid)
SELECT r.id, r.created_at FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id

-- name: count_runs
SELECT r.type, r.status, count(*) AS runs FROM workflow.workflow_run r
WHERE r.deleted_at IS NULL GROUP BY r.type, r.status ORDER BY r.type, r.status
