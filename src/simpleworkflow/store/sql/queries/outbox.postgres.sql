-- PostgreSQL's own texts.

-- name: outbox_waiting
-- differs: one statement walks all lanes (LATERAL); each stops at its limit
-- batch: l(lane text)
-- param: limit integer
SELECT x.* FROM :l CROSS JOIN LATERAL (
  SELECT {offered_columns}, r.type AS workflow_type, r.traceparent, l.lane, {is_behind} AS is_behind
  FROM workflow.outbox_event o LEFT JOIN workflow.workflow_run r ON r.id = o.aggregate_id
  WHERE {lane_of} = l.lane AND o.status = 'waiting' AND o.published_at IS NULL
  ORDER BY o.id LIMIT :limit) AS x

-- name: outbox_retrying
-- differs: one statement walks all lanes (LATERAL); each stops at its limit
-- batch: l(lane text)
-- param: limit integer
SELECT x.* FROM :l CROSS JOIN LATERAL (
  SELECT {offered_columns}, r.type AS workflow_type, r.traceparent, l.lane, {is_behind} AS is_behind
  FROM workflow.outbox_event o LEFT JOIN workflow.workflow_run r ON r.id = o.aggregate_id
  WHERE {lane_of} = l.lane AND o.status = 'retrying' AND o.published_at IS NULL AND o.due_at <= :now
  ORDER BY o.due_at LIMIT :limit) AS x

-- name: lock_lanes
-- differs: rows are locked, in order; one that had to be waited for is looked at again, epoch and all
-- batch: l(lane text, epoch bigint)
-- param: owner text
SELECT n.lane FROM :l JOIN workflow.outbox_lane n ON n.lane = l.lane AND n.epoch = l.epoch AND n.owner = :owner
ORDER BY n.lane
FOR NO KEY UPDATE OF n

-- name: lock_lanes_of
-- differs: rows are locked, in order
-- batch: r(lane text)
SELECT n.lane FROM :r JOIN workflow.outbox_lane n ON n.lane = r.lane ORDER BY n.lane FOR NO KEY UPDATE OF n

-- name: take_lanes
-- differs: two who take at once pass each other by (SKIP LOCKED)
-- batch: w(owner text)
-- param: owner text, lease bigint, limit integer
UPDATE workflow.outbox_lane AS n SET owner = :owner, epoch = n.epoch + 1, lease_until = :now + us(:lease)
WHERE n.lane IN (
  SELECT f.lane FROM workflow.outbox_lane f
  WHERE f.owner IS NULL OR (f.owner <> :owner AND (f.lease_until <= :now OR f.owner IN (SELECT w.owner FROM :w)))
  ORDER BY f.lane LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
RETURNING lane, epoch

-- fragment: owned_in_order
(SELECT f.lane FROM workflow.outbox_lane f WHERE f.owner = :owner ORDER BY f.lane FOR NO KEY UPDATE)

-- name: renew_lanes
-- differs: rows are locked in order, as marks and operators lock them: they may come at the same time
-- param: owner text, lease bigint
UPDATE workflow.outbox_lane AS n SET lease_until = :now + us(:lease)
WHERE n.lane IN {owned_in_order} RETURNING lane, epoch

-- name: release_lanes_of
-- differs: rows are locked in order
-- param: owner text
UPDATE workflow.outbox_lane AS n SET owner = NULL, lease_until = NULL, epoch = n.epoch + 1
WHERE n.lane IN {owned_in_order}

-- name: forget_dispatchers
-- differs: who is just saying that it lives is passed by; after an outage all say so at once
-- batch: d(id text)
-- param: silence bigint
DELETE FROM workflow.outbox_dispatcher AS x
WHERE x.id IN (
  SELECT y.id FROM workflow.outbox_dispatcher y
  WHERE y.seen_at <= :now - us(:silence) OR y.id IN (SELECT d.id FROM :d)
  FOR UPDATE SKIP LOCKED)
