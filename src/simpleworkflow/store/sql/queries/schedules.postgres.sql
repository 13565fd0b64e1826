-- PostgreSQL's own texts: rows are locked, and passed over where somebody else has them.

-- name: take_schedules
-- differs: row locks; what another worker has under way is passed over
-- batch: but(name text)
-- param: limit integer, only text
SELECT {schedule_columns}, :now AS judged_at FROM workflow.workflow_schedule s
WHERE s.paused_at IS NULL AND (s.next_at IS NULL OR s.next_at <= :now)
  AND s.name NOT IN (SELECT but.name FROM :but) AND (:only IS NULL OR s.name = :only)
ORDER BY s.updated_at, s.name LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED

-- name: lock_schedules
-- differs: row locks
-- batch: b(name text)
SELECT {schedule_columns} FROM workflow.workflow_schedule s
WHERE s.name IN (SELECT b.name FROM :b) ORDER BY s.name FOR NO KEY UPDATE
