-- Overrides for PostgreSQL: rows are locked or skipped, LATERAL walks over many lanes, and on hot paths one statement
-- makes a move and writes its events.

-- fragment: worker_told
-- differs: json_extract is a function of SQLite
(e.data ->> 'worker')

-- fragment: json_object
-- differs: the function has another name
json_build_object

-- fragment: told
-- differs: only PostgreSQL has NOTIFY
CASE WHEN :telling THEN pg_notify('simpleworkflow_{schema}', 'ready')::text END AS told

-- fragment: lanes_with(crashes)
-- differs: there is no rowid; LATERAL does the loose index scan directly, span after span (the spans come sorted)
SELECT l.type, l.priority, CASE WHEN l.run_at <= :now AND NOT EXISTS (
    SELECT 1 FROM workflow.workflow_registry g WHERE g.workflow_name = l.type AND NOT g.is_enabled)
  THEN 1 ELSE 0 END AS due, (extract(epoch FROM l.run_at - :now) * 1000000)::bigint AS due_in
FROM (
  SELECT lane.type, lane.priority, lane.run_at FROM :span CROSS JOIN LATERAL (
    WITH RECURSIVE walk AS (
      (SELECT r.type, r.priority, r.run_at FROM workflow.workflow_run r
       WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND {crashes}
         AND r.type < span.high AND (r.type, r.priority) > (span.type, span.priority)
       ORDER BY r.type, r.priority, r.run_at LIMIT 1)
      UNION ALL
      SELECT h.type, h.priority, h.run_at
      FROM walk CROSS JOIN LATERAL (
        SELECT r.type, r.priority, r.run_at FROM workflow.workflow_run r
        WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND {crashes}
          AND r.type < span.high AND (r.type, r.priority) > (walk.type, walk.priority)
        ORDER BY r.type, r.priority, r.run_at LIMIT 1) h)
    SELECT walk.type, walk.priority, walk.run_at FROM walk) lane
  LIMIT :limit) AS l

-- fragment: claim_with(crashes)
-- differs: one statement claims from many lanes in serving order, and writes the events
-- The outer LIMIT ends the walk as soon as the batch is full: lanes after the last one that is needed are neither read
-- nor locked. A locked row does not move, so the UPDATE finds it by its ctid, without the index. The lower bound is a
-- pair, because the planner takes two plain bounds for a narrow range, and would sort a narrow range.
WITH due AS MATERIALIZED (
  SELECT c.place, c.status, lane.max_attempts, lane.lease, lane.timeout
  FROM :lane CROSS JOIN LATERAL (
    SELECT r.ctid AS place, r.status FROM workflow.workflow_run r
    WHERE r.status IN ('pending', 'paused') AND r.held_at IS NULL AND {crashes}
      AND r.type = lane.type AND r.priority = lane.priority AND NOT EXISTS (
        SELECT FROM workflow.workflow_registry g WHERE g.workflow_name = lane.type AND NOT g.is_enabled)
      AND r.run_at <= :now
      AND (r.run_at, r.id) >= (coalesce(lane.low, '-infinity'), '00000000-0000-0000-0000-000000000000')
      AND (r.deadline_at IS NULL OR r.deadline_at > :now)
      AND (r.start_by IS NULL OR r.start_by > :now OR r.started_at IS NOT NULL)
    ORDER BY r.run_at, r.id LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED) c
  LIMIT :limit),
claimed AS (
  UPDATE workflow.workflow_run r
  SET status = 'leased', version = r.version + 1, lease_epoch = r.lease_epoch + 1, leased_by = :worker,
      lease_until = :now + us(due.lease),
      max_attempts = CASE WHEN r.max_attempts IS NULL OR (r.attempts_unset AND r.lease_epoch = 0)
                          THEN due.max_attempts ELSE r.max_attempts END,
      deadline_at = coalesce(r.deadline_at, :now + us(due.timeout)),
      started_at = coalesce(r.started_at, :now), updated_at = :now
  FROM due WHERE r.ctid = due.place
  RETURNING r.id, r.type, r.lease_epoch, r.attempt, r.crashes, r.max_attempts, r.priority, r.payload,
    due.lease::float8 / 1000000 AS lease_seconds, extract(epoch FROM r.deadline_at - :now)::float8 AS deadline_in,
    r.parent_id, r.wakes, r.idempotency_key, r.run_at, r.traceparent, due.status AS was),
logged AS (
  INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data)
  SELECT id, 'woken', lease_epoch, NULL FROM claimed WHERE was = 'paused'
  UNION ALL
  SELECT id, 'leased', lease_epoch, (SELECT json_build_object('worker', :worker)) FROM claimed)
SELECT id, type, lease_epoch AS epoch, attempt, crashes, max_attempts, priority, payload, lease_seconds, deadline_in,
       parent_id, wakes, idempotency_key, run_at, :now AS claimed_at, traceparent
FROM claimed

-- name: log_leased
-- differs: claim_lanes writes this event itself
-- batch: e(run_id uuid, epoch bigint)
-- param: worker text

-- name: lock_runs
-- differs: locks the rows
-- batch: b(run_id uuid)
SELECT r.id FROM workflow.workflow_run r
WHERE r.id = ANY (ARRAY(
  SELECT b.run_id FROM :b
  UNION SELECT c.parent_id FROM :b JOIN workflow.workflow_run c ON c.id = b.run_id))
ORDER BY r.id FOR NO KEY UPDATE

-- name: settle_runs
-- differs: one statement makes the move and writes both events, in one round trip
-- batch: b(run_id uuid, epoch bigint, status text, event text, started integer, elapsed bigint, burns integer, delay bigint, anew integer, result json, error json, last_error text, hold_reason text, data json)
-- param: worker text
WITH settled AS (
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
  RETURNING r.id, b.epoch, b.event, b.started, b.elapsed, b.data, b.hold_reason),
logged AS (
  INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
  SELECT id, 'started', epoch, NULL, :now - us(elapsed) FROM settled WHERE started = 1
  UNION ALL
  SELECT id, event, epoch, data, :now FROM settled
  UNION ALL
  SELECT id, 'held', epoch, data, :now FROM settled WHERE hold_reason IS NOT NULL)
SELECT id AS run_id, epoch FROM settled

-- fragment: finish
WITH finished AS (
  UPDATE workflow.workflow_run AS r
  SET status = 'succeeded', version = r.version + 1, lease_until = NULL, leased_by = NULL, updated_at = :now,
      finished_at = :now, result = b.result
  FROM :b
  WHERE r.id = b.run_id AND {valid_epoch} = b.epoch
  RETURNING r.id, b.epoch, b.elapsed),
logged AS (
  INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, created_at)
  SELECT id, 'started', epoch, :now - us(elapsed) FROM finished
  UNION ALL
  SELECT id, 'succeeded', epoch, :now FROM finished)

-- name: finish_runs
-- differs: one statement makes the move and writes both events, in one round trip
-- batch: b(run_id uuid, epoch bigint, elapsed bigint, result json)
-- param: worker text
{finish}
SELECT id AS run_id, epoch FROM finished

-- name: finish_counted
-- differs: finish_runs for callers that need no ids: the answer is how many runs were ended
-- With :telling the commit also notifies those who wait for a result, see docs/decisions/0014.
-- batch: b(run_id uuid, epoch bigint, elapsed bigint, result json)
-- param: worker text, telling boolean
{finish}
SELECT count(*) AS done,
       CASE WHEN :telling AND count(*) > 0 THEN pg_notify('simpleworkflow_{schema}', 'finished')::text END AS told
FROM finished

-- name: log_finished
-- differs: finish_runs writes these events itself
-- batch: b(run_id uuid, epoch bigint, elapsed bigint)

-- name: log_settled
-- differs: settle_runs writes these events itself
-- batch: b(run_id uuid, epoch bigint, event text, started integer, elapsed bigint, data json, held integer)

-- name: renew_leases
-- differs: SKIP LOCKED, so that a renewal never waits for a flush; a lease that was skipped is not lost
-- batch: b(run_id uuid, epoch bigint, lease bigint)
-- param: worker text
WITH mine AS MATERIALIZED (
  SELECT held.id, b.lease FROM :b CROSS JOIN LATERAL (
    SELECT r.id FROM workflow.workflow_run r
    WHERE r.id = b.run_id AND {valid_epoch} = b.epoch
    FOR NO KEY UPDATE SKIP LOCKED) AS held)
UPDATE workflow.workflow_run AS r
SET lease_until = greatest(r.lease_until, :now + us(mine.lease)), version = r.version + 1, updated_at = :now
FROM mine WHERE r.id = mine.id
RETURNING r.id AS run_id

-- name: lock_leases
-- differs: locks the rows
-- batch: b(run_id uuid, epoch bigint)
-- param: worker text
SELECT b.run_id, b.epoch FROM :b CROSS JOIN LATERAL (
  SELECT FROM workflow.workflow_run r
  WHERE r.id = b.run_id AND {valid_epoch} = b.epoch FOR NO KEY UPDATE) AS held

-- name: lock_free_leases
-- differs: passes over rows that another session has locked, instead of waiting for them
-- batch: b(run_id uuid, epoch bigint)
-- param: worker text
SELECT b.run_id, b.epoch FROM :b CROSS JOIN LATERAL (
  SELECT FROM workflow.workflow_run r
  WHERE r.id = b.run_id AND {valid_epoch} = b.epoch FOR NO KEY UPDATE SKIP LOCKED) AS held

-- name: crash_runs
-- differs: SKIP LOCKED, since many workers sweep; safe by the row lock and by the check that UPDATE repeats under it
-- batch: w(worker text)
-- batch: x(run_id text)
-- param: limit integer, unit bigint, me text
WITH gone AS MATERIALIZED (
  SELECT r.id FROM workflow.workflow_run r
  WHERE {lease_is_lost}
    AND {attempts_used} < coalesce(r.max_attempts, 3)
  ORDER BY r.leased_by, r.id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
UPDATE workflow.workflow_run AS r
SET status = 'pending',
    {one_crash_more},
    finished_at = NULL, updated_at = :now,
    {error_of_crash}
FROM gone WHERE r.id = gone.id
RETURNING r.id, r.status, r.lease_epoch, r.crashes, r.last_error

-- name: give_up_runs
-- differs: SKIP LOCKED, as in crash_runs
-- batch: w(worker text)
-- batch: x(run_id text)
-- param: limit integer, unit bigint, me text
WITH gone AS MATERIALIZED (
  SELECT r.id FROM workflow.workflow_run r
  WHERE {lease_is_lost}
    AND {attempts_used} >= coalesce(r.max_attempts, 3)
    AND NOT {holds_when_spent}
  ORDER BY r.leased_by, r.id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
UPDATE workflow.workflow_run AS r
SET status = 'failed',
    {one_crash_more},
    finished_at = :now, updated_at = :now,
    {error_of_crash}
FROM gone WHERE r.id = gone.id
RETURNING r.id, r.status, r.lease_epoch, r.crashes, r.last_error

-- name: hold_spent_runs
-- differs: SKIP LOCKED, as in crash_runs
-- batch: w(worker text)
-- batch: x(run_id text)
-- param: limit integer, unit bigint, me text
WITH gone AS MATERIALIZED (
  SELECT r.id FROM workflow.workflow_run r
  WHERE {lease_is_lost}
    AND {attempts_used} >= coalesce(r.max_attempts, 3)
    AND {holds_when_spent}
  ORDER BY r.leased_by, r.id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
UPDATE workflow.workflow_run AS r
SET status = 'pending',
    {one_crash_more},
    held_at = :now, hold_reason = 'out of attempts; its worker stopped without finishing it', updated_at = :now,
    {error_of_crash}
FROM gone WHERE r.id = gone.id
RETURNING r.id, r.status, r.lease_epoch, r.crashes, r.last_error

-- name: expire_deadlines
-- differs: SKIP LOCKED, since many workers sweep
-- param: limit integer, grace bigint
WITH overdue AS MATERIALIZED (
  SELECT r.id FROM workflow.workflow_run r
  WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.deadline_at <= :now
    AND (r.status <> 'leased' OR r.deadline_at <= :now - us(:grace))
  ORDER BY r.deadline_at LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
UPDATE workflow.workflow_run AS r
SET {time_out('its deadline passed')}
FROM overdue WHERE r.id = overdue.id
RETURNING r.id, r.status, r.lease_epoch, r.crashes, r.last_error

-- name: next_expiry
-- differs: the difference of two instants is an interval
SELECT (extract(epoch FROM ({next_deadline}) - :now) * 1000000)::bigint AS deadline_in,
       (extract(epoch FROM ({next_start_by}) - :now) * 1000000)::bigint AS start_in

-- name: expire_unstarted
-- differs: SKIP LOCKED, as in expire_deadlines
-- param: limit integer, grace bigint
WITH overdue AS MATERIALIZED (
  SELECT r.id FROM workflow.workflow_run r
  WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.start_by <= :now
    AND (r.status <> 'leased' OR r.start_by <= :now - us(:grace))
  ORDER BY r.start_by LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
UPDATE workflow.workflow_run AS r
SET {time_out('no worker started it in time')}
FROM overdue WHERE r.id = overdue.id
RETURNING r.id, r.status, r.lease_epoch, r.crashes, r.last_error

-- fragment: is_displaced
(r.id >= '04000000-0000-0000-0000-000000000000' OR get_byte(uuid_send(r.id), 6) >> 4 <> 7)

-- fragment: place
CAST(lpad(to_hex(CAST(trunc(extract(epoch FROM least(greatest(r.created_at, 'epoch'), '9999-12-31')) * 1000) AS bigint)), 12, '0')
  || repeat('0', 20) AS uuid)

-- fragment: latest_below
to_timestamp(CAST(CAST('x' || translate(substr(CAST(:below AS text), 1, 13), '-', '') AS bit(48)) AS bigint) / 1000.0 + 0.002)

-- fragment: within_time
(:since IS NULL OR r.created_at >= :since) AND (:until IS NULL OR r.created_at < :until)

-- name: list_runs
-- differs: the ids tell the order of creation, so no index of all runs by creation is needed
-- Such an index would get three entries for each run, because here neither a claim nor an end is a heap-only update.
-- The id of a run that began by itself (UUIDv7) tells when it was created. Only displaced runs, whose id does not, are
-- in an index by creation: children, whose ids carry their parent's time (UUIDv8), and ids that are no UUIDv7 of these
-- decades. The statement merges two walks by place; the place of a displaced run is the smallest id of its millisecond.
-- batch: s(status text)
-- param: any_status integer, type text, low text, high text, since timestamptz, until timestamptz, idempotency_key text, below uuid, at timestamptz, last uuid, with_deleted integer, held integer, limit integer
WITH page AS (
  (SELECT r.id, r.id AS place, r.created_at FROM workflow.workflow_run r
   WHERE r.id < '04000000-0000-0000-0000-000000000000' AND get_byte(uuid_send(r.id), 6) >> 4 = 7
     AND (:below IS NULL OR r.id < :below)
     AND {within_time}
     AND {wanted_runs}
   ORDER BY r.id DESC LIMIT :limit)
  UNION ALL
  (SELECT r.id, {place}, r.created_at FROM workflow.workflow_run r
   WHERE {is_displaced}
     AND (:below IS NULL OR (
       r.created_at <= {latest_below}
       AND ({place}, r.created_at, r.id) < (:below, :at, :last)))
     AND {within_time}
     AND {wanted_runs}
   ORDER BY r.created_at DESC, r.id DESC LIMIT :limit)
  ORDER BY place DESC, created_at DESC, id DESC LIMIT :limit)
SELECT {run_columns} FROM page JOIN workflow.workflow_run r ON r.id = page.id
ORDER BY page.place DESC, page.created_at DESC, page.id DESC
