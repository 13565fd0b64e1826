-- The audit trail: read a run's own, or everything since a time, in the order it was written.

-- name: events_of_run
-- param: run_id uuid, after bigint, limit integer
SELECT e.id, e.workflow_id, e.event_type, e.lease_epoch, e.data AS data_json, e.created_at
FROM workflow.workflow_event e
WHERE e.workflow_id = :run_id AND e.id > :after
ORDER BY e.id LIMIT :limit

-- fragment: middle_is_early
(SELECT e.created_at FROM workflow.workflow_event e WHERE e.id >= (s.low + s.high) / 2 ORDER BY e.id LIMIT 1) < :floor

-- name: first_event_since
-- Where to start reading: a binary search over ids, which grow with time. A few dozen look-ups by primary key instead of
-- an index on created_at that every event would have to pay for. The floor lies a little before the instant asked for:
-- transactions overlap, so ids and instants are in step only roughly.
-- param: floor timestamptz
WITH RECURSIVE search(low, high) AS (
  SELECT coalesce(min(e.id), 0), coalesce(max(e.id), 0) + 1 FROM workflow.workflow_event e
  UNION ALL
  SELECT CASE WHEN {middle_is_early} THEN (s.low + s.high) / 2 + 1 ELSE s.low END,
         CASE WHEN {middle_is_early} THEN s.high ELSE (s.low + s.high) / 2 END
  FROM search s WHERE s.low < s.high
)
SELECT max(low) AS id FROM search

-- name: events_since
-- param: since timestamptz, after bigint, limit integer
SELECT e.id, e.workflow_id, e.event_type, e.lease_epoch, e.data AS data_json, e.created_at
FROM workflow.workflow_event e
WHERE e.created_at >= :since AND e.id > :after
ORDER BY e.id LIMIT :limit
