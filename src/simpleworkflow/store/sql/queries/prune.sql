-- Pruning: finished runs that are old enough go, with everything that is keyed by them. Candidates are found by walking
-- the primary key, a page at a time, because no index knows finished_at: it would cost every run something. Each batch is
-- one transaction that waits for nobody: rows that somebody has locked are left for the next pass.

-- fragment: prune_rules
chosen AS MATERIALIZED (SELECT rule.low, rule.high, rule.status, rule.is_deleted, rule.age FROM :rule)

-- fragment: is_old_enough
r.type >= c.low AND r.type < c.high AND r.status = c.status
  AND c.is_deleted = CASE WHEN r.deleted_at IS NULL THEN 0 ELSE 1 END
  AND coalesce(r.deleted_at, r.finished_at) <= :now - us(c.age)

-- fragment: why_kept
CASE WHEN EXISTS (SELECT 1 FROM workflow.workflow_run p WHERE p.id = r.parent_id AND p.finished_at IS NULL)
       THEN 'open_parent'
     WHEN EXISTS (SELECT 1 FROM workflow.outbox_event o WHERE o.aggregate_id = r.id AND o.published_at IS NULL)
       THEN 'unpublished_events'
     {number_is_needed} END

-- fragment: number_is_needed
WHEN r.id = (SELECT e.workflow_id FROM workflow.workflow_event e ORDER BY e.id DESC LIMIT 1) THEN 'newest_events'

-- fragment: rows_of_run
1 + (SELECT count(*) FROM (SELECT 1 FROM workflow.workflow_step s WHERE s.run_id = r.id LIMIT :most) AS x)
  + (SELECT count(*) FROM (SELECT 1 FROM workflow.workflow_event e WHERE e.workflow_id = r.id LIMIT :most) AS x)
  + (SELECT count(*) FROM (SELECT 1 FROM workflow.workflow_signal g WHERE g.run_id = r.id LIMIT :most) AS x)
  + (SELECT count(*) FROM (SELECT 1 FROM workflow.outbox_event o WHERE o.aggregate_id = r.id LIMIT :most) AS x)

-- name: find_prunable
-- One page of ids, and of its runs those that are old enough, with what keeps them if anything does, and how many rows
-- each has, counted up to so many per table. The last row is the page itself: its last id, and how many it has. Of runs
-- that are too young nothing is read but their instants: a type stands behind the result, which may be large.
-- batch: rule(low text, high text, status text, is_deleted integer, age bigint)
-- param: first uuid, last uuid, limit integer, shortest bigint, most integer
WITH {prune_rules}, page AS MATERIALIZED (
  SELECT r.id, coalesce(r.deleted_at, r.finished_at) AS ended_at FROM workflow.workflow_run r
  WHERE r.id >= :first AND r.id <= :last ORDER BY r.id LIMIT :limit)
SELECT r.id AS run_id, r.type, r.status, {why_kept} AS kept, {rows_of_run} AS weight, 0 AS examined
FROM page JOIN workflow.workflow_run r ON r.id = page.id JOIN chosen c ON {is_old_enough}
WHERE page.ended_at <= :now - us(:shortest)
UNION ALL
SELECT (SELECT page.id FROM page ORDER BY page.id DESC LIMIT 1), NULL, NULL, NULL, 0, (SELECT count(*) FROM page)

-- name: lock_prunable
-- Of these runs, the ones that nobody else is at. (SQLite's transaction has the whole file to itself.)
-- batch: b(run_id uuid)
SELECT r.id AS run_id FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id
WHERE r.finished_at IS NOT NULL ORDER BY r.id

-- name: judge_prunable
-- With the locks held, and by a look of its own: a run may have been retried since it was found.
-- batch: b(run_id uuid)
-- batch: rule(low text, high text, status text, is_deleted integer, age bigint)
WITH {prune_rules}
SELECT r.id AS run_id, r.type, r.status, {why_kept} AS kept
FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id JOIN chosen c ON {is_old_enough}

-- name: prune_runs
-- The trigger run_removed takes along what is keyed by them.
-- batch: b(run_id uuid)
DELETE FROM workflow.workflow_run WHERE id IN (SELECT b.run_id FROM :b)

-- name: take_prune_turn
-- One worker at a time walks for a policy, until its time is up or it hands on: like run_at, held_until alone decides
-- when the next one may. Answers with the place where the pass goes on, or not at all.
-- param: policy text, holder text, lease bigint
INSERT INTO workflow.workflow_pruning (policy, holder, held_until, started_at)
VALUES (:policy, :holder, :now + us(:lease), :now)
ON CONFLICT (policy) DO UPDATE
SET holder = excluded.holder, held_until = excluded.held_until,
    started_at = CASE WHEN workflow_pruning.place IS NULL THEN excluded.started_at ELSE workflow_pruning.started_at END
WHERE workflow_pruning.held_until <= :now
RETURNING place AS run_id, started_at, :now AS judged_at

-- name: save_prune_turn
-- How far the pass has come; its holder goes on for so long, or hands on at once. No answer: the turn was lost.
-- param: policy text, holder text, place uuid, more bigint, lease bigint
UPDATE workflow.workflow_pruning
SET place = :place, removed = removed + :more, held_until = :now + us(:lease)
WHERE policy = :policy AND holder = :holder
RETURNING policy

-- name: end_prune_pass
-- The pass has seen every id; the next one begins after a rest.
-- param: policy text, holder text, more bigint, rest bigint
UPDATE workflow.workflow_pruning
SET place = NULL, holder = NULL, held_until = :now + us(:rest), finished_at = :now, last_removed = removed + :more,
    removed = 0
WHERE policy = :policy AND holder = :holder
RETURNING policy

-- name: forget_pruning
-- Policies that no worker has had for a long time.
-- param: silence bigint
DELETE FROM workflow.workflow_pruning WHERE held_until < :now - us(:silence)

-- name: pruning_status
-- The newest passes, for whoever wants to know whether pruning is on.
-- param: limit integer
SELECT p.policy, p.holder, p.held_until AS due_at, p.started_at, p.finished_at, p.removed, p.last_removed, :now AS judged_at
FROM workflow.workflow_pruning p ORDER BY p.held_until DESC LIMIT :limit
