-- Schedules: what is due, and moving on. The law is in model/schedule.py. A slot is started by whoever holds the lock
-- of the schedule's row, and `next_at` is moved on by compare-and-set in the transaction that inserts the run.

-- fragment: schedule_columns
s.name, s.type, s.cron, s.every_us, s.tz, s.payload AS payload_json, s.overlap, s.catch_up,
s.window_us, s.next_at, s.paused_at, s.pause_reason, s.origin, s.last_slot_at, s.last_fired_at,
s.last_run_id, s.extra_run_id, s.last_skipped_at, s.fired, s.skipped, s.trouble, s.created_at, s.updated_at

-- name: next_schedule
-- When the next slot of all comes, by the database's clock; nothing when there is none to come.
-- batch: but(name text)
SELECT s.next_at, :now AS judged_at FROM workflow.workflow_schedule s
WHERE s.paused_at IS NULL AND s.name NOT IN (SELECT but.name FROM :but)
ORDER BY s.next_at NULLS FIRST LIMIT 1

-- name: take_schedules
-- Locks some of those whose next slot has come, or was never computed. First comes the one that was not looked at for
-- longest, so that a schedule that catches up on a thousand slots does not delay those that are on time.
-- batch: but(name text)
-- param: limit integer, only text
SELECT {schedule_columns}, :now AS judged_at FROM workflow.workflow_schedule s
WHERE s.paused_at IS NULL AND (s.next_at IS NULL OR s.next_at <= :now)
  AND s.name NOT IN (SELECT but.name FROM :but) AND (:only IS NULL OR s.name = :only)
ORDER BY s.updated_at, s.name LIMIT :limit

-- name: lock_schedules
-- batch: b(name text)
SELECT {schedule_columns} FROM workflow.workflow_schedule s
WHERE s.name IN (SELECT b.name FROM :b) ORDER BY s.name

-- name: get_schedule
-- param: name text
SELECT {schedule_columns} FROM workflow.workflow_schedule s WHERE s.name = :name

-- name: due_schedules
-- The names of those whose next slot has come.
-- batch: but(name text)
-- param: limit integer
SELECT s.name FROM workflow.workflow_schedule s
WHERE s.paused_at IS NULL AND (s.next_at IS NULL OR s.next_at <= :now)
  AND s.name NOT IN (SELECT but.name FROM :but)
ORDER BY s.updated_at, s.name LIMIT :limit

-- name: open_among
-- Of these runs, those that have not ended.
-- batch: b(run_id uuid)
SELECT r.id FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id WHERE r.finished_at IS NULL

-- name: advance_schedules
-- Compare-and-set: moves on only from the slot that was seen.
-- batch: b(schedule text, seen timestamptz, next_at timestamptz, slot timestamptz, run_id uuid, fired bigint, skipped bigint, skip timestamptz)
UPDATE workflow.workflow_schedule AS s
SET next_at = b.next_at, updated_at = :now, trouble = NULL,
    last_slot_at = coalesce(b.slot, s.last_slot_at), last_run_id = coalesce(b.run_id, s.last_run_id),
    last_fired_at = CASE WHEN b.fired > 0 THEN :now ELSE s.last_fired_at END,
    last_skipped_at = coalesce(b.skip, s.last_skipped_at), fired = s.fired + b.fired, skipped = s.skipped + b.skipped
FROM :b
WHERE s.name = b.schedule AND (s.next_at = b.seen OR (s.next_at IS NULL AND b.seen IS NULL))
RETURNING name

-- name: blame_schedules
-- Says why they cannot go on.
-- batch: b(name text, trouble text)
UPDATE workflow.workflow_schedule AS s SET trouble = b.trouble, updated_at = :now
FROM :b WHERE s.name = b.name AND (s.trouble IS NULL OR s.trouble <> b.trouble)

-- name: what_time
SELECT :now AS judged_at

-- name: insert_schedules
-- batch: n(name text, type text, cron text, every_us bigint, tz text, payload json, overlap text, catch_up text, window_us bigint, next_at timestamptz, origin text)
INSERT INTO workflow.workflow_schedule
  (name, type, cron, every_us, tz, payload, overlap, catch_up, window_us, next_at, origin, created_at, updated_at)
SELECT n.name, n.type, n.cron, n.every_us, n.tz, n.payload, n.overlap, n.catch_up, n.window_us, n.next_at, n.origin, :now, :now
FROM :n
WHERE true
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: change_schedules
-- batch: n(name text, type text, cron text, every_us bigint, tz text, payload json, overlap text, catch_up text, window_us bigint, next_at timestamptz, origin text)
UPDATE workflow.workflow_schedule AS s
SET type = n.type, cron = n.cron, every_us = n.every_us, tz = n.tz, payload = n.payload, overlap = n.overlap,
    catch_up = n.catch_up, window_us = n.window_us, next_at = n.next_at, origin = n.origin, trouble = NULL,
    updated_at = :now
FROM :n WHERE s.name = n.name

-- name: list_schedules
-- param: limit integer, after text
SELECT {schedule_columns}, :now AS judged_at FROM workflow.workflow_schedule s
WHERE s.name > :after ORDER BY s.name LIMIT :limit

-- name: pause_schedule
-- param: name text, reason text
UPDATE workflow.workflow_schedule SET paused_at = :now, pause_reason = :reason, updated_at = :now
WHERE name = :name AND paused_at IS NULL

-- name: resume_schedule
-- Its next slot stays: what was missed meanwhile follows the catch-up policy.
-- param: name text
UPDATE workflow.workflow_schedule SET paused_at = NULL, pause_reason = NULL, updated_at = :now
WHERE name = :name AND paused_at IS NOT NULL

-- name: delete_schedule
-- param: name text
DELETE FROM workflow.workflow_schedule WHERE name = :name

-- name: note_extra_run
-- param: name text, run_id uuid
UPDATE workflow.workflow_schedule SET extra_run_id = :run_id, updated_at = :now WHERE name = :name
