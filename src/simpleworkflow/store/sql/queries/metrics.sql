-- What a scrape of the metrics reads. Everything is found through the partial indexes of open runs and counted up to a
-- limit, so the cost depends on the limit and not on the backlog, and finished runs are not read. Which types there
-- are, and how long the oldest due run of each has waited, comes from find_lanes (runs.sql).

-- fragment: queue_with(crashes)
SELECT q.type, q.status, count(*) AS runs, sum(q.is_late) AS late
FROM (
  SELECT r.type, r.status, CASE WHEN r.run_at <= :now - us(:late) THEN 1 ELSE 0 END AS is_late
  FROM workflow.workflow_run r
  WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND {crashes}
    AND r.type = (SELECT t.type FROM :t)
  ORDER BY r.priority, r.run_at LIMIT :most) AS q
GROUP BY q.type, q.status

-- name: count_queue
-- How many runs of each type are in the index of ready runs, by status, and how many of them are due for that long. It
-- looks at a limited number for each type. SQLite has no LATERAL, so there it is sent once for each type.
-- batch: t(type text)
-- param: most integer, late bigint
-- each: t
{queue_with(r.crashes = 0)}

-- name: count_suspects
-- The same for runs whose last execution ended with the crash of its process.
-- batch: t(type text)
-- param: most integer, late bigint
-- each: t
{queue_with(r.crashes > 0)}

-- name: count_leased
-- param: most integer
SELECT q.type, count(*) AS runs
FROM (SELECT r.type FROM workflow.workflow_run r WHERE r.status = 'leased' ORDER BY r.leased_by LIMIT :most) AS q
GROUP BY q.type

-- name: count_overdue
-- Open runs whose deadline passed or that were not started in time. The next sweep ends them, so there should be few.
-- param: most integer
SELECT (SELECT count(*) FROM (
    SELECT r.id FROM workflow.workflow_run r
    WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.deadline_at <= :now LIMIT :most) AS d)
  + (SELECT count(*) FROM (
    SELECT r.id FROM workflow.workflow_run r
    WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.start_by <= :now
    LIMIT :most) AS s) AS runs

-- name: types_of_runs
-- The types of the runs that a sweep has just moved.
-- batch: b(run_id uuid)
SELECT r.type, r.status, count(*) AS runs
FROM :b JOIN workflow.workflow_run r ON r.id = b.run_id
GROUP BY r.type, r.status

-- name: table_sizes
-- The size of everything, without reading a row. SQLite knows how many pages its file has and how many are free; the
-- size of one table, or its number of rows, it could only tell by reading it.
SELECT NULL AS name, c.page_count * p.page_size AS bytes, f.freelist_count * p.page_size AS free, NULL AS live
FROM pragma_page_count c, pragma_page_size p, pragma_freelist_count f
