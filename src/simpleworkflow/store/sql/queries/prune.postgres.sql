-- PostgreSQL's own texts: rows are locked one by one, and numbers come from a sequence that never goes back.

-- fragment: number_is_needed
-- differs: the numbers of events come from a sequence, so none is given twice when the newest event is removed

-- name: lock_prunable
-- differs: takes the row locks, in id order, and leaves out what somebody else has
-- batch: b(run_id uuid)
SELECT r.id AS run_id FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id
WHERE r.finished_at IS NOT NULL ORDER BY r.id FOR UPDATE OF r SKIP LOCKED

-- name: prune_runs
-- differs: = ANY (ARRAY(…)) admits one plan only: with IN, a plan made while the table was empty reads it from end to end
-- batch: b(run_id uuid)
DELETE FROM workflow.workflow_run WHERE id = ANY (ARRAY(SELECT b.run_id FROM :b))
