-- PostgreSQL's own texts: rows are locked one by one, and numbers come from a sequence that never goes back.

-- fragment: number_is_needed

-- name: lock_prunable
-- differs: takes the row locks, in id order, and leaves out what somebody else has
-- batch: b(run_id uuid)
SELECT r.id AS run_id FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id
WHERE r.finished_at IS NOT NULL ORDER BY r.id FOR UPDATE OF r SKIP LOCKED

-- name: prune_steps
-- differs: prune_runs does it: one round trip instead of five
-- batch: b(run_id uuid)

-- name: prune_signals
-- differs: prune_runs does it
-- batch: b(run_id uuid)

-- name: prune_events
-- differs: prune_runs does it
-- batch: b(run_id uuid)

-- name: prune_outbox_of_runs
-- differs: prune_runs does it
-- batch: b(run_id uuid)

-- name: prune_runs
-- differs: all tables in one statement; the locks are held, so that nothing is written to these runs meanwhile
-- = ANY (ARRAY(…)) admits one plan only: with IN, a plan made while a table was empty reads that table from end to end.
-- So would the index of published events, which (… IS NULL) IS FALSE does not fit.
-- batch: b(run_id uuid)
WITH batch AS MATERIALIZED (SELECT b.run_id FROM :b),
steps AS (DELETE FROM workflow.workflow_step WHERE run_id = ANY (ARRAY(SELECT run_id FROM batch))),
signals AS (DELETE FROM workflow.workflow_signal WHERE run_id = ANY (ARRAY(SELECT run_id FROM batch))),
events AS (DELETE FROM workflow.workflow_event WHERE workflow_id = ANY (ARRAY(SELECT run_id FROM batch))),
outbox AS (DELETE FROM workflow.outbox_event
           WHERE aggregate_id = ANY (ARRAY(SELECT run_id FROM batch)) AND (published_at IS NULL) IS FALSE)
DELETE FROM workflow.workflow_run WHERE id = ANY (ARRAY(SELECT run_id FROM batch))
