-- The operator's board: what the command line and other screens show beyond a run's own row. Nothing here is on a hot
-- path, and everything is bounded: by a limit, by what one run has, or by what is leased now. A screen that looks once a
-- second must not read a table of a million rows each time.

-- name: worker_states
-- Every worker on record, and how many runs each holds now; counted in the index of leased runs.
-- param: silence bigint
SELECT w.id AS worker_id, w.name, w.host, w.pid, w.started_at, w.seen_at, w.spans AS spans_json, w.stopped_at,
       (SELECT count(*) FROM workflow.workflow_run r WHERE r.status = 'leased' AND r.leased_by = w.id) AS runs,
       CASE WHEN w.stopped_at IS NULL AND w.seen_at > :now - us(:silence) THEN 1 ELSE 0 END AS alive
FROM workflow.workflow_worker w
ORDER BY w.started_at, w.id

-- name: children_of_run
-- Oldest first by creation (the ids of children tell no order), a page at a time. By the index on parents, whatever the
-- planner thinks of the order.
-- param: run_id uuid, after uuid, limit integer
WITH child AS MATERIALIZED (SELECT c.id, c.created_at FROM workflow.workflow_run c WHERE c.parent_id = :run_id)
SELECT {run_columns} FROM child JOIN workflow.workflow_run r ON r.id = child.id
WHERE (:after IS NULL OR (child.created_at, child.id) > (SELECT a.created_at, a.id FROM child a WHERE a.id = :after))
ORDER BY child.created_at, child.id LIMIT :limit

-- name: steps_of_run
-- Everything on record, with the failures that a retry of the run has superseded.
-- param: run_id uuid
SELECT s.run_id, s.step_id, s.kind, s.status, s.attempt, s.due_at, s.started_at, s.completed_at,
       s.input AS input_json, s.output AS output_json, s.error AS error_json
FROM workflow.workflow_step s
WHERE s.run_id = :run_id
ORDER BY s.seq, s.step_id

-- name: feed_window
-- How far the next so many events reach.
-- param: after bigint, limit integer
SELECT coalesce(max(e.id), 0) AS last_id, count(*) AS events
FROM (SELECT x.id FROM workflow.workflow_event x WHERE x.id > :after ORDER BY x.id LIMIT :limit) AS e

-- name: feed
-- Everybody's events of one window, with the type of the run that each tells of.
-- batch: t(event text)
-- param: since timestamptz, after bigint, upto bigint, any_event integer, low text, high text
SELECT e.id, e.workflow_id, e.event_type, e.lease_epoch, e.data AS data_json, e.created_at, r.type AS run_type
FROM workflow.workflow_event e LEFT JOIN workflow.workflow_run r ON r.id = e.workflow_id
WHERE e.id > :after AND e.id <= :upto AND e.created_at >= :since
  AND (:any_event = 1 OR e.event_type IN (SELECT t.event FROM :t))
  AND (:low IS NULL OR (r.type >= :low AND r.type < :high))
ORDER BY e.id

-- name: newest_event
SELECT coalesce(max(e.id), 0) AS last_id FROM workflow.workflow_event e

-- name: activity
-- How many events of each kind came after a place, looking at so many at most.
-- param: after bigint, limit integer
SELECT e.event_type, count(*) AS events, max(e.id) AS last_id
FROM (SELECT x.id, x.event_type FROM workflow.workflow_event x WHERE x.id > :after ORDER BY x.id LIMIT :limit) AS e
GROUP BY e.event_type
