-- name: count_queue
-- differs: LATERAL counts all types in one statement
-- batch: t(type text)
-- param: most integer, late bigint
SELECT q.type, q.status, count(*) AS runs, sum(q.is_late) AS late
FROM :t CROSS JOIN LATERAL (
  SELECT r.type, r.status, CASE WHEN r.run_at <= :now - us(:late) THEN 1 ELSE 0 END AS is_late
  FROM workflow.workflow_run r
  WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
    AND r.type = t.type
  ORDER BY r.priority, r.run_at LIMIT :most) AS q
GROUP BY q.type, q.status

-- name: count_suspects
-- differs: follows count_queue
-- like: count_queue
-- replacing: r.crashes = 0 -> r.crashes > 0
