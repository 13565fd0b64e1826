-- The outbox on its way out: reading what may be offered, marking what became of it, lanes and their owners. Marks are
-- made while the row lock of the event's lane is held and owner and epoch are proved (lock_lanes); operators take the
-- same lock (lock_lanes_of). So marking, skipping and offering again never pass each other.

-- fragment: lane_of
substr(CAST(o.aggregate_id AS text), 36, 1)

-- fragment: offered_columns
o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.created_at, o.attempt, o.payload AS payload_json

-- fragment: is_behind
EXISTS (SELECT 1 FROM workflow.outbox_event s
        WHERE s.aggregate_id = o.aggregate_id AND s.sequence < o.sequence
          AND s.status IN ('retrying', 'dead') AND s.published_at IS NULL)

-- name: outbox_waiting
-- What is next in these lanes, in order of id, and whether an earlier event of the same run is in its way.
-- batch: l(lane text)
-- param: limit integer
-- each: l
SELECT {offered_columns}, r.type AS workflow_type, r.traceparent, {lane_of} AS lane, {is_behind} AS is_behind
FROM workflow.outbox_event o LEFT JOIN workflow.workflow_run r ON r.id = o.aggregate_id
WHERE {lane_of} = (SELECT l.lane FROM :l) AND o.status = 'waiting' AND o.published_at IS NULL
ORDER BY o.id LIMIT :limit

-- name: outbox_retrying
-- What was refused and may be offered again, the longest due first.
-- batch: l(lane text)
-- param: limit integer
-- each: l
SELECT {offered_columns}, r.type AS workflow_type, r.traceparent, {lane_of} AS lane, {is_behind} AS is_behind
FROM workflow.outbox_event o LEFT JOIN workflow.workflow_run r ON r.id = o.aggregate_id
WHERE {lane_of} = (SELECT l.lane FROM :l) AND o.status = 'retrying' AND o.published_at IS NULL AND o.due_at <= :now
ORDER BY o.due_at LIMIT :limit

-- name: lock_lanes
-- The fence: of these lanes, those that this owner still holds with that epoch, locked until the transaction
-- ends.
-- batch: l(lane text, epoch bigint)
-- param: owner text
SELECT n.lane FROM :l JOIN workflow.outbox_lane n ON n.lane = l.lane AND n.epoch = l.epoch AND n.owner = :owner
ORDER BY n.lane

-- name: lock_lanes_of
-- The same for operators, who own no lane.
-- batch: r(lane text)
SELECT n.lane FROM :r JOIN workflow.outbox_lane n ON n.lane = r.lane ORDER BY n.lane

-- name: mark_published
-- batch: b(id bigint)
UPDATE workflow.outbox_event AS o
SET published_at = :now, status = 'published', due_at = NULL, last_error = NULL
FROM :b WHERE o.id = b.id AND o.published_at IS NULL

-- name: mark_refused
-- To be tried again after so long, or dead. Writing it twice counts once.
-- batch: b(id bigint, status text, attempt integer, delay bigint, reason text)
UPDATE workflow.outbox_event AS o
SET attempt = b.attempt, status = b.status, last_error = b.reason, due_at = :now + us(b.delay)
FROM :b WHERE o.id = b.id AND o.published_at IS NULL AND o.status IN ('waiting', 'retrying')

-- name: mark_behind
-- Out of the way until the earlier event of the run that is stuck has gone. Under the lock it is looked for again: an
-- operator may have skipped it meanwhile. One that is retrying itself is here when an earlier one was offered again.
-- batch: b(id bigint)
UPDATE workflow.outbox_event AS o
SET status = 'behind', due_at = NULL
FROM :b WHERE o.id = b.id AND o.status IN ('waiting', 'retrying') AND o.published_at IS NULL
  AND {is_behind}

-- name: release_behind
-- The stuck event of these runs has gone: what stood behind it may be offered.
-- batch: b(run_id uuid)
UPDATE workflow.outbox_event AS o
SET status = 'waiting'
FROM :b WHERE o.aggregate_id = b.run_id AND o.status = 'behind' AND o.published_at IS NULL

-- name: outbox_lanes
SELECT n.lane, n.owner, n.epoch, n.lease_until,
       CASE WHEN n.lease_until > :now THEN 1 ELSE 0 END AS is_held
FROM workflow.outbox_lane n ORDER BY n.lane

-- name: renew_lanes
-- param: owner text, lease bigint
UPDATE workflow.outbox_lane AS n SET lease_until = :now + us(:lease)
WHERE n.owner = :owner RETURNING lane, epoch

-- name: take_lanes
-- Free ones, those whose lease ran out, and those of owners that are known to be dead.
-- batch: w(owner text)
-- param: owner text, lease bigint, limit integer
UPDATE workflow.outbox_lane AS n SET owner = :owner, epoch = n.epoch + 1, lease_until = :now + us(:lease)
WHERE n.lane IN (
  SELECT f.lane FROM workflow.outbox_lane f
  WHERE f.owner IS NULL OR (f.owner <> :owner AND (f.lease_until <= :now OR f.owner IN (SELECT w.owner FROM :w)))
  ORDER BY f.lane LIMIT :limit)
RETURNING lane, epoch

-- name: release_lanes
-- The epoch grows here too: a mark that is still under way does not land.
-- batch: l(given_up text, held_with bigint)
UPDATE workflow.outbox_lane AS n SET owner = NULL, lease_until = NULL, epoch = n.epoch + 1
FROM :l WHERE n.lane = l.given_up AND n.epoch = l.held_with RETURNING lane

-- name: release_lanes_of
-- param: owner text
UPDATE workflow.outbox_lane SET owner = NULL, lease_until = NULL, epoch = epoch + 1 WHERE owner = :owner

-- name: announce_dispatcher
-- param: id text
INSERT INTO workflow.outbox_dispatcher (id, seen_at) VALUES (:id, :now)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at

-- name: live_dispatchers
-- param: silence bigint
SELECT d.id AS dispatcher, d.seen_at FROM workflow.outbox_dispatcher d
WHERE d.seen_at > :now - us(:silence) ORDER BY d.id

-- name: forget_dispatchers
-- batch: d(id text)
-- param: silence bigint
DELETE FROM workflow.outbox_dispatcher
WHERE seen_at <= :now - us(:silence) OR id IN (SELECT d.id FROM :d)

-- name: add_outbox_rules
-- batch: u(event_type text, low text, high text)
INSERT INTO workflow.outbox_rule (event_type, low, high, created_at)
SELECT u.event_type, u.low, u.high, :now FROM :u
WHERE true
ON CONFLICT DO NOTHING
RETURNING event_type, low, high

-- name: delete_outbox_rules
-- batch: u(event_type text, low text, high text)
DELETE FROM workflow.outbox_rule AS x
WHERE EXISTS (SELECT 1 FROM :u WHERE u.event_type = x.event_type AND u.low = x.low AND u.high = x.high)
RETURNING event_type, low, high

-- name: outbox_rules
SELECT u.event_type, u.low, u.high, u.created_at FROM workflow.outbox_rule u ORDER BY u.low, u.high, u.event_type

-- name: outbox_of_run
-- param: run_id uuid, after bigint, limit integer
SELECT o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.status, o.attempt, o.created_at, o.published_at,
       o.due_at, o.last_error, o.skipped_at, o.skipped_by, o.skip_reason
FROM workflow.outbox_event o WHERE o.aggregate_id = :run_id AND o.sequence > :after ORDER BY o.sequence LIMIT :limit

-- name: outbox_head
-- The first event of a run that has not gone out. What has gone out before it is walked over: one run's, by its key.
-- param: run_id uuid
SELECT o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.status, o.attempt, o.created_at, o.published_at,
       o.due_at, o.last_error, o.skipped_at, o.skipped_by, o.skip_reason
FROM workflow.outbox_event o WHERE o.aggregate_id = :run_id AND o.published_at IS NULL ORDER BY o.sequence LIMIT 1

-- name: skip_event
-- It leaves the outbox as a published one does; the row says that it was skipped, by whom, and why.
-- param: run_id uuid, sequence bigint, by text, reason text
UPDATE workflow.outbox_event
SET status = 'skipped', published_at = :now, skipped_at = :now, skipped_by = :by, skip_reason = :reason, due_at = NULL
WHERE aggregate_id = :run_id AND sequence = :sequence AND status IN ('dead', 'retrying') AND published_at IS NULL
RETURNING sequence

-- fragment: offered_again
SET status = 'waiting', published_at = NULL, due_at = NULL, attempt = 0, last_error = NULL,
    skipped_at = NULL, skipped_by = NULL, skip_reason = NULL

-- name: replay_run
-- Offers a run's events again: what was published, given up, skipped, or waits for its next try.
-- param: run_id uuid, from bigint
UPDATE workflow.outbox_event {offered_again}
WHERE aggregate_id = :run_id AND sequence >= :from AND status IN ('published', 'dead', 'skipped', 'retrying')
RETURNING id

-- name: replay_events
-- batch: b(event_id bigint)
UPDATE workflow.outbox_event AS o {offered_again}
FROM :b WHERE o.id = b.event_id AND o.status IN ('published', 'dead')
RETURNING id

-- name: dead_events
-- param: after bigint, limit integer
SELECT o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.status, o.attempt, o.created_at, o.published_at,
       o.due_at, o.last_error, o.skipped_at, o.skipped_by, o.skip_reason, {lane_of} AS lane
FROM workflow.outbox_event o
WHERE o.status = 'dead' AND o.published_at IS NULL AND o.id > :after ORDER BY o.id LIMIT :limit

-- name: last_dead_event
SELECT o.id FROM workflow.outbox_event o
WHERE o.status = 'dead' AND o.published_at IS NULL ORDER BY o.id DESC LIMIT 1

-- name: store_time
SELECT :now AS judged_at

-- name: published_events
-- Published in a span of time; what is offered again leaves it.
-- param: since timestamptz, until timestamptz, limit integer
SELECT o.id, {lane_of} AS lane
FROM workflow.outbox_event o
WHERE o.published_at >= :since AND o.published_at < :until AND o.status <> 'skipped'
ORDER BY o.published_at, o.id LIMIT :limit

-- name: outbox_counts
-- Up to so many of each, through their own indexes.
-- param: most integer
SELECT (SELECT count(*) FROM (SELECT 1 FROM workflow.outbox_event o
                              WHERE o.status = 'waiting' AND o.published_at IS NULL LIMIT :most) AS x) AS waiting,
       (SELECT count(*) FROM (SELECT 1 FROM workflow.outbox_event o
                              WHERE o.status = 'retrying' AND o.published_at IS NULL LIMIT :most) AS x) AS retrying,
       (SELECT count(*) FROM (SELECT 1 FROM workflow.outbox_event o
                              WHERE o.status = 'behind' AND o.published_at IS NULL LIMIT :most) AS x) AS behind,
       (SELECT count(*) FROM (SELECT 1 FROM workflow.outbox_event o
                              WHERE o.status = 'dead' AND o.published_at IS NULL LIMIT :most) AS x) AS dead

-- name: outbox_oldest
-- How long the oldest event that can still be delivered has waited: the first of each lane, and what is being retried.
-- (n.lane || ''): a bare column has an affinity, which keeps SQLite from using the index of the expression.
-- param: most integer
SELECT :now AS judged_at, min(x.created_at) AS created_at FROM (
  SELECT (SELECT o.created_at FROM workflow.outbox_event o
          WHERE {lane_of} = (n.lane || '') AND o.status = 'waiting' AND o.published_at IS NULL ORDER BY o.id LIMIT 1) AS created_at
  FROM workflow.outbox_lane n
  UNION ALL
  SELECT r.created_at FROM (SELECT o.created_at FROM workflow.outbox_event o
                            WHERE o.status = 'retrying' AND o.published_at IS NULL LIMIT :most) AS r) AS x

-- name: prunable_events
-- Gone out long ago, the oldest first, from a place on; and whether it must stay: the newest event of a run that still
-- exists holds the run's number, so that no number is ever given twice.
-- param: age bigint, instant timestamptz, after bigint, limit integer
SELECT o.id, o.published_at AS happened_at,
       CASE WHEN EXISTS (SELECT 1 FROM workflow.outbox_event n
                         WHERE n.aggregate_id = o.aggregate_id AND n.sequence > o.sequence) THEN 0
            WHEN EXISTS (SELECT 1 FROM workflow.workflow_run r WHERE r.id = o.aggregate_id) THEN 1
            ELSE 0 END AS is_kept
FROM workflow.outbox_event o
WHERE o.published_at >= :instant AND (o.published_at > :instant OR o.id > :after) AND o.published_at < :now - us(:age)
ORDER BY o.published_at, o.id LIMIT :limit

-- name: forget_events
-- batch: b(id bigint)
DELETE FROM workflow.outbox_event WHERE id IN (SELECT b.id FROM :b) AND published_at IS NOT NULL
RETURNING id
