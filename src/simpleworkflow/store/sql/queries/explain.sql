-- What explains a run, read in one snapshot: where it stands, what it waits for, who could serve it, who goes first.
-- Every count is bounded, every look goes through an index: asking why a run waits must not make others wait.

-- fragment: stands_before
o.type = r.type AND o.priority = r.priority AND o.run_at <= :now AND (o.run_at, o.id) < (r.run_at, r.id)
AND o.status IN ('pending', 'paused') AND o.run_at IS NOT NULL AND o.held_at IS NULL
AND (o.deadline_at IS NULL OR o.deadline_at > :now) AND (o.start_by IS NULL OR o.start_by > :now OR o.started_at IS NOT NULL)

-- fragment: not_given_up
(s.status = 'retrying' OR s.error IS NULL)

-- name: explain_runs
-- batch: b(run_id uuid)
-- param: most integer
SELECT r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, {chosen_attempts} AS max_attempts, r.lease_until, r.leased_by,
  r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.created_at, r.started_at,
  r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.idempotency_key, :now AS judged_at,
  CASE WHEN EXISTS (SELECT 1 FROM workflow.workflow_registry g WHERE g.workflow_name = r.type AND NOT g.is_enabled)
    THEN 0 ELSE 1 END AS is_enabled,
  CASE WHEN r.status = 'leased' THEN
    (SELECT e.created_at FROM workflow.workflow_event e
     WHERE e.workflow_id = r.id AND e.event_type = 'leased' AND e.lease_epoch = r.lease_epoch
     ORDER BY e.id DESC LIMIT 1) END AS leased_at,
  CASE WHEN r.status = 'leased' THEN
    (SELECT e.created_at FROM workflow.workflow_event e
     WHERE e.workflow_id = r.id AND e.event_type = 'heartbeat' AND e.lease_epoch = r.lease_epoch
     ORDER BY e.id DESC LIMIT 1) END AS heartbeat_at,
  (SELECT count(*) FROM workflow.workflow_step s
   WHERE s.run_id = r.id AND s.completed_at IS NOT NULL AND s.status <> 'superseded') AS steps_done,
  (SELECT count(*) FROM workflow.workflow_step s WHERE s.run_id = r.id AND s.completed_at IS NULL
     AND {not_given_up} AND (r.status = 'paused' OR (r.status = 'leased' AND s.lease_epoch = r.lease_epoch
       AND (s.due_at IS NULL OR s.due_at > :now)))) AS open_waits,
  CASE WHEN r.status = 'paused' THEN
    (SELECT e.data FROM workflow.workflow_event e
     WHERE e.workflow_id = r.id AND e.event_type = 'paused' AND e.lease_epoch = r.lease_epoch
     ORDER BY e.id DESC LIMIT 1) END AS awaited_json,
  CASE WHEN r.status IN ('pending', 'paused') AND r.run_at <= :now AND r.held_at IS NULL THEN
    CASE WHEN r.crashes = 0 THEN
      (SELECT count(*) FROM (SELECT 1 FROM workflow.workflow_run o WHERE {stands_before} AND o.crashes = 0 LIMIT :most) AS ahead)
    ELSE
      (SELECT count(*) FROM (SELECT 1 FROM workflow.workflow_run o WHERE {stands_before} AND o.crashes > 0
         AND (o.crashes > 1) = (r.crashes > 1) LIMIT :most) AS ahead)
    END
  ELSE 0 END AS before
FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id

-- name: explain_waits
-- What is on record as not over, the oldest first, at most so many per run. With an epoch: what that execution has told
-- that it waits for and has neither given up nor seen pass.
-- batch: b(run_id uuid, epoch bigint)
-- param: most integer
SELECT x.run_id, x.step_id, x.kind, x.status, x.attempt, x.due_at, x.started_at, x.error AS error_json
FROM :b JOIN workflow.workflow_step x ON x.run_id = b.run_id
WHERE x.step_id IN (
  SELECT s.step_id FROM workflow.workflow_step s WHERE s.run_id = b.run_id AND s.completed_at IS NULL
    AND {not_given_up} AND (b.epoch IS NULL OR (s.lease_epoch = b.epoch AND (s.due_at IS NULL OR s.due_at > :now)))
  ORDER BY s.seq, s.step_id LIMIT :most)
ORDER BY x.run_id, x.seq, x.step_id

-- name: explain_awaited
-- What the newest pauses of these runs said that they wait for.
-- batch: b(run_id uuid, step_id text)
SELECT s.run_id, s.step_id, s.kind, s.status, s.attempt, s.due_at, s.started_at, s.error AS error_json
FROM :b JOIN workflow.workflow_step s ON s.run_id = b.run_id AND s.step_id = b.step_id
WHERE s.completed_at IS NULL
ORDER BY s.run_id, s.seq, s.step_id

-- name: explain_last_steps
-- The newest thing that each of these runs has finished.
-- batch: b(run_id uuid)
SELECT s.run_id, s.step_id, s.kind, s.status, s.attempt, s.started_at, s.completed_at
FROM :b JOIN workflow.workflow_step s ON s.run_id = b.run_id AND s.step_id = (
  SELECT x.step_id FROM workflow.workflow_step x
  WHERE x.run_id = b.run_id AND x.completed_at IS NOT NULL AND x.status <> 'superseded'
  ORDER BY coalesce(x.done_seq, x.seq) DESC, x.completed_at DESC, x.step_id DESC LIMIT 1)

-- name: explain_signals
-- What these runs have been told and have not taken yet, by name.
-- batch: b(run_id uuid)
SELECT s.run_id, s.name, count(*) AS signals
FROM :b JOIN workflow.workflow_signal s ON s.run_id = b.run_id
WHERE s.consumed_at IS NULL GROUP BY s.run_id, s.name ORDER BY s.run_id, s.name

-- name: explain_children
-- Open children of runs that pause without saying what for.
-- batch: b(run_id uuid)
-- param: most integer
SELECT c.parent_id, c.id FROM :b JOIN workflow.workflow_run c ON c.parent_id = b.run_id
WHERE c.finished_at IS NULL AND c.id IN (
  SELECT x.id FROM workflow.workflow_run x WHERE x.parent_id = b.run_id AND x.finished_at IS NULL
  ORDER BY x.id LIMIT :most)
ORDER BY c.parent_id, c.id

-- name: explain_workers
-- Who is alive, and the workers that these leases name.
-- batch: w(worker text)
-- param: silence bigint
SELECT k.id AS worker_id, k.name, k.host, k.pid, k.started_at, k.seen_at, k.spans AS spans_json, k.stopped_at, k.load AS load_json,
  CASE WHEN k.stopped_at IS NULL AND k.seen_at > :now - us(:silence) THEN 1 ELSE 0 END AS is_alive
FROM workflow.workflow_worker k
WHERE (k.stopped_at IS NULL AND k.seen_at > :now - us(:silence)) OR k.id IN (SELECT w.worker FROM :w)
ORDER BY k.started_at, k.id

-- name: count_due
-- How many runs of these lanes could be claimed now.
-- batch: lane(type text, priority integer)
-- param: most integer
SELECT lane.type, lane.priority, (SELECT count(*) FROM (
    SELECT 1 FROM workflow.workflow_run o
    WHERE o.status IN ('pending', 'paused') AND o.run_at <= :now AND o.held_at IS NULL AND o.crashes = 0
      AND o.type = lane.type AND o.priority = lane.priority
      AND (o.deadline_at IS NULL OR o.deadline_at > :now)
      AND (o.start_by IS NULL OR o.start_by > :now OR o.started_at IS NOT NULL)
    LIMIT :most) AS ahead) AS due
FROM :lane

-- name: runs_between
-- The runs whose ids lie between two, ends included: what a person means who types the beginning of an id.
-- param: low uuid, high uuid, limit integer
SELECT r.id, r.type, r.status, r.created_at FROM workflow.workflow_run r
WHERE r.id >= :low AND r.id <= :high ORDER BY r.id LIMIT :limit
