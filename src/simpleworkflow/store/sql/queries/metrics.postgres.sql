-- fragment: queue_with(crashes)
-- differs: LATERAL counts all types in one statement
SELECT q.type, q.status, count(*) AS runs, sum(q.is_late) AS late
FROM :t CROSS JOIN LATERAL (
  SELECT r.type, r.status, CASE WHEN r.run_at <= :now - us(:late) THEN 1 ELSE 0 END AS is_late
  FROM workflow.workflow_run r
  WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND {crashes}
    AND r.type = t.type
  ORDER BY r.priority, r.run_at LIMIT :most) AS q
GROUP BY q.type, q.status

-- name: table_sizes
-- differs: the server knows each table's size, and about how many rows it has
-- The tables that grow with the work; all others have one row per worker, workflow or schedule. The server counts live
-- rows as they are written and deleted. After a crash its counts start at zero, and the last vacuum's count is used.
SELECT c.relname::text AS name, pg_total_relation_size(c.oid) AS bytes, NULL::bigint AS free,
       coalesce(nullif(pg_stat_get_live_tuples(c.oid), 0), greatest(c.reltuples, 0))::bigint AS live
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = '{schema}'
  AND c.relname IN ('workflow_run', 'workflow_step', 'workflow_event', 'workflow_signal', 'outbox_event')
