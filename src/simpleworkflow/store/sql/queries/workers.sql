-- Definitions and workers: what can run here, and who is alive. Informative, except that a disabled definition is
-- neither triggered nor claimed and that on_cancel, dead_letter and on_exhausted are read when a run ends.

-- name: upsert_definitions
-- A worker tells what it knows; whether a definition is enabled stays the operators' decision.
-- batch: d(name text, description text, on_cancel text, dead_letter text, on_exhausted text)
INSERT INTO workflow.workflow_registry
  (workflow_name, runtime, description, on_cancel, dead_letter, on_exhausted, updated_at)
SELECT d.name, 'python', d.description, d.on_cancel, d.dead_letter, d.on_exhausted, :now FROM :d
WHERE true
ON CONFLICT (workflow_name) DO UPDATE
SET description = excluded.description, on_cancel = excluded.on_cancel, dead_letter = excluded.dead_letter,
    on_exhausted = excluded.on_exhausted,
    runtime = excluded.runtime, updated_at = excluded.updated_at

-- name: introduce_definitions
-- What an App knows of workflows that no worker has served yet; where a worker has told its own, that stays.
-- batch: d(name text, description text, on_cancel text, dead_letter text, on_exhausted text)
INSERT INTO workflow.workflow_registry
  (workflow_name, runtime, description, on_cancel, dead_letter, on_exhausted, updated_at)
SELECT d.name, 'python', d.description, d.on_cancel, d.dead_letter, d.on_exhausted, :now FROM :d
WHERE true
ON CONFLICT (workflow_name) DO NOTHING

-- name: create_definition
-- Makes a name known before anybody serves it; what is known already stays as it is.
-- param: name text, description text
INSERT INTO workflow.workflow_registry (workflow_name, description, updated_at) VALUES (:name, :description, :now)
ON CONFLICT (workflow_name) DO NOTHING

-- name: enable_definition
-- param: name text, is_enabled boolean
INSERT INTO workflow.workflow_registry (workflow_name, is_enabled, updated_at)
VALUES (:name, :is_enabled, :now)
ON CONFLICT (workflow_name) DO UPDATE SET is_enabled = excluded.is_enabled, updated_at = excluded.updated_at

-- name: get_definitions
-- batch: d(name text)
SELECT g.workflow_name, g.runtime, g.is_enabled, g.description, g.on_cancel, g.dead_letter, g.on_exhausted
FROM :d JOIN workflow.workflow_registry g ON g.workflow_name = d.name

-- name: announce_worker
-- param: id text, name text, host text, pid integer, spans json, load json
INSERT INTO workflow.workflow_worker (id, name, host, pid, spans, load, started_at, seen_at)
VALUES (:id, :name, :host, :pid, :spans, :load, :now, :now)
ON CONFLICT (id) DO UPDATE
SET seen_at = excluded.seen_at, spans = excluded.spans, load = excluded.load, stopped_at = NULL

-- name: retire_worker
-- param: id text
UPDATE workflow.workflow_worker SET stopped_at = :now, seen_at = :now WHERE id = :id

-- name: live_workers
-- param: silence bigint
SELECT w.id AS worker_id, w.name, w.host, w.pid, w.started_at, w.seen_at, w.spans AS spans_json
FROM workflow.workflow_worker w
WHERE w.stopped_at IS NULL AND w.seen_at > :now - us(:silence)
ORDER BY w.started_at

-- name: forget_workers
-- Rows of workers that have been silent for days say nothing any more.
-- param: silence bigint
DELETE FROM workflow.workflow_worker WHERE seen_at < :now - us(:silence)

-- name: definition_names
-- What anybody has served or defined; for a look at a name that may be mistyped.
-- param: limit integer
SELECT g.workflow_name FROM workflow.workflow_registry g ORDER BY g.workflow_name LIMIT :limit
