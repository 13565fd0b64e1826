-- The audit trail: read a run's own, or everything since a time, in the order it was written.

-- name: events_of_run
-- param: run_id uuid, after bigint, limit integer
SELECT e.id, e.workflow_id, e.event_type, e.lease_epoch, e.data AS data_json, e.created_at
FROM workflow.workflow_event e
WHERE e.workflow_id = :run_id AND e.id > :after
ORDER BY e.id LIMIT :limit

-- name: events_since
-- Pages by id; the time bound is a filter on each page (PostgreSQL narrows it by a BRIN index).
-- param: since timestamptz, after bigint, limit integer
SELECT e.id, e.workflow_id, e.event_type, e.lease_epoch, e.data AS data_json, e.created_at
FROM workflow.workflow_event e
WHERE e.created_at >= :since AND e.id > :after
ORDER BY e.id LIMIT :limit
