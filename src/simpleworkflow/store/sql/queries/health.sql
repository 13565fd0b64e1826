-- What `simpleworkflow doctor` reads. Nothing here changes anything or reads a large table from end to end: counts go
-- up to a limit and use the partial indexes of open runs. A statement without text has an answer on PostgreSQL only.

-- name: durability
-- How durable a commit is: the settings of this session, the database's version, and how to correct a wrong setting.
SELECT 'SQLite' AS name, sqlite_version() AS setting, NULL AS cure
UNION ALL SELECT 'journal_mode', j.journal_mode, NULL FROM pragma_journal_mode j
UNION ALL SELECT 'synchronous', CASE s.synchronous WHEN 0 THEN 'off' WHEN 1 THEN 'normal' WHEN 2 THEN 'full' ELSE 'extra' END, NULL
FROM pragma_synchronous s

-- name: structure
-- What exists, whatever the table of migrations says. SQLite has no invalid indexes and no disabled triggers.
SELECT s.type AS kind, s.name, s.tbl_name AS on_table, 'well' AS state FROM sqlite_master s
WHERE s.name NOT LIKE 'sqlite_%' ORDER BY s.type, s.name

-- name: lacking_privileges
-- What the role of this session may not do to these relations, with the statements that let it.
-- batch: wanted(kind text, name text, privilege text)

-- name: server_facts

-- name: server_clock
-- SQLite: the host's clock is the database's.

-- name: connection_use

-- name: table_health

-- name: vacuum_blockers
-- param: older bigint

-- name: file_facts
-- The library's version, and the pages of the file in bytes: all of them, and those that are free.
SELECT sqlite_version() AS version, c.page_count * p.page_size AS bytes, f.freelist_count * p.page_size AS free
FROM pragma_page_count c, pragma_page_size p, pragma_freelist_count f

-- name: rows_ever
-- The range of the row numbers: the number of rows, unless some were deleted in between.
SELECT 'workflow_run' AS name, (SELECT max(rowid) FROM workflow.workflow_run) - (SELECT min(rowid) FROM workflow.workflow_run) + 1 AS reach
UNION ALL
SELECT 'workflow_event', (SELECT max(rowid) FROM workflow.workflow_event) - (SELECT min(rowid) FROM workflow.workflow_event) + 1
UNION ALL
SELECT 'workflow_step', (SELECT max(rowid) FROM workflow.workflow_step) - (SELECT min(rowid) FROM workflow.workflow_step) + 1

-- fragment: due_lanes_with(crashes)
SELECT lane.type, lane.priority,
  (SELECT count(*) FROM (
     SELECT 1 AS one FROM workflow.workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND {crashes}
       AND r.type = lane.type AND r.priority = lane.priority AND r.run_at <= :now
     ORDER BY r.run_at, r.id LIMIT :limit) AS c) AS due,
  (SELECT r.id FROM workflow.workflow_run r
   WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND {crashes}
     AND r.type = lane.type AND r.priority = lane.priority AND r.run_at <= :now
   ORDER BY r.run_at, r.id LIMIT 1) AS run_id
FROM :lane

-- name: due_lanes
-- How many runs of each lane are due, up to a limit, and the run that has been due for longest.
-- batch: lane(type text, priority integer)
-- param: limit integer
{due_lanes_with(r.crashes = 0)}

-- name: due_suspect_lanes
-- The same for runs whose last execution ended with the crash of its process.
-- batch: lane(type text, priority integer)
-- param: limit integer
{due_lanes_with(r.crashes > 0)}

-- name: crashed_runs
-- Runs that crashed and wait for their next execution, by type; so many at most are counted.
-- param: limit integer
SELECT c.type, count(*) AS runs
FROM (SELECT r.type FROM workflow.workflow_run r
      WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
      ORDER BY r.type, r.priority, r.run_at LIMIT :limit) AS c
GROUP BY c.type ORDER BY c.type

-- name: expired_leases
-- Leases that ran out so long ago that a sweep should have seen it, by holder.
-- param: grace bigint, limit integer
SELECT c.leased_by, count(*) AS runs, min(c.lease_until) AS lease_until, :now AS judged_at
FROM (SELECT r.leased_by, r.lease_until FROM workflow.workflow_run r
      WHERE r.status = 'leased' AND r.lease_until < :now - us(:grace)
      ORDER BY r.leased_by, r.id LIMIT :limit) AS c
GROUP BY c.leased_by ORDER BY c.leased_by

-- name: missed_deadlines
-- Open runs that should have been ended: past their deadline, or not started in time.
-- param: grace bigint, limit integer
SELECT 'deadline' AS kind, count(*) AS runs, min(c.due_at) AS due_at, :now AS judged_at
FROM (SELECT r.deadline_at AS due_at FROM workflow.workflow_run r
      WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.deadline_at < :now - us(:grace)
      ORDER BY r.deadline_at LIMIT :limit) AS c
UNION ALL
SELECT 'start', count(*), min(c.due_at), :now
FROM (SELECT r.start_by AS due_at FROM workflow.workflow_run r
      WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.start_by < :now - us(:grace)
      ORDER BY r.start_by LIMIT :limit) AS c

-- name: held_runs
-- No index contains held runs, so it reads a limited number of the newest runs, by their ids. Misfits are runs that
-- were held because their records do not fit their code; their hold_reason is their error.
-- param: limit integer
SELECT count(*) AS looked, sum(CASE WHEN c.held_at IS NOT NULL AND c.finished_at IS NULL THEN 1 ELSE 0 END) AS runs,
       sum(CASE WHEN c.held_at IS NOT NULL AND c.finished_at IS NULL AND c.hold_reason = c.last_error THEN 1 ELSE 0 END)
         AS misfits,
       min(CASE WHEN c.finished_at IS NULL THEN c.held_at END) AS held_at, :now AS judged_at
FROM (SELECT r.held_at, r.finished_at, r.hold_reason, r.last_error FROM workflow.workflow_run r
      ORDER BY r.id DESC LIMIT :limit) AS c

-- name: silent_workers
-- Workers that have not been seen for a while and did not say that they stopped, the latest first.
-- param: silence bigint, limit integer
SELECT w.id AS worker_id, w.name, w.host, w.pid, w.seen_at, :now AS judged_at FROM workflow.workflow_worker w
WHERE w.stopped_at IS NULL AND w.seen_at <= :now - us(:silence)
ORDER BY w.seen_at DESC LIMIT :limit
