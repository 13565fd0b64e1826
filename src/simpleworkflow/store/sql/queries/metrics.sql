-- What a scrape asks. Everything is found through the partial indexes of open runs and counted up to a limit: the cost
-- follows the limit, never the backlog, and finished runs are not looked at. Which types there are, and how long the
-- oldest due run of each has waited, find_lanes tells (runs.sql).

-- name: count_queue
-- How many runs of each type stand in the index of ready runs, by status, looking at so many of each type at most; and
-- how many of those were due so long ago. Takes the types one by one: SQLite has no LATERAL and needs none.
-- batch: t(type text)
-- param: most integer, late bigint
-- each: t
SELECT q.type, q.status, count(*) AS runs, sum(q.is_late) AS late
FROM (
  SELECT r.type, r.status, CASE WHEN r.run_at <= :now - us(:late) THEN 1 ELSE 0 END AS is_late
  FROM workflow.workflow_run r
  WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
    AND r.type = (SELECT t.type FROM :t)
  ORDER BY r.priority, r.run_at LIMIT :most) AS q
GROUP BY q.type, q.status

-- name: count_suspects
-- The same for runs whose last execution took its process down.
-- like: count_queue
-- replacing: r.crashes = 0 -> r.crashes > 0

-- name: count_leased
-- param: most integer
SELECT q.type, count(*) AS runs
FROM (SELECT r.type FROM workflow.workflow_run r WHERE r.status = 'leased' ORDER BY r.leased_by LIMIT :most) AS q
GROUP BY q.type

-- name: count_overdue
-- Open runs past their deadline, or not started in time: the next sweep ends them, so more than a few are a sign.
-- param: most integer
SELECT (SELECT count(*) FROM (
    SELECT r.id FROM workflow.workflow_run r
    WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.deadline_at <= :now LIMIT :most) AS d)
  + (SELECT count(*) FROM (
    SELECT r.id FROM workflow.workflow_run r
    WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.start_by <= :now
    LIMIT :most) AS s) AS runs

-- name: types_of_runs
-- Of which type the runs are that a sweep has just moved.
-- batch: b(run_id uuid)
SELECT r.type, r.status, count(*) AS runs
FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id
GROUP BY r.type, r.status

-- name: table_sizes
-- How much room it all takes, without reading a row: SQLite knows the pages of its file and how many are free. What
-- one table has of it, or how many rows, nobody there knows without a walk.
SELECT NULL AS name, c.page_count * p.page_size AS bytes, f.freelist_count * p.page_size AS free, NULL AS live
FROM pragma_page_count c, pragma_page_size p, pragma_freelist_count f
