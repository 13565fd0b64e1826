-- Every statement exactly as it is sent to SQLite. Generated from store/sql/queries by tools/expand_sql.py; do not
-- edit, run `make gen`. A batch is sent as one JSON text, an array of rows.

-- name: wal_position
-- file: benchmark.sql
-- nothing is sent: another statement does this here

-- name: drop_schema
-- file: benchmark.sql
-- nothing is sent: another statement does this here

-- name: worker_states
-- file: board.sql
-- parameters: :now instant, :silence bigint
SELECT w.id AS worker_id, w.name, w.host, w.pid, w.started_at, w.seen_at, w.spans AS spans_json, w.stopped_at,
       (SELECT count(*) FROM workflow_run r WHERE r.status = 'leased' AND r.leased_by = w.id) AS runs,
       CASE WHEN w.stopped_at IS NULL AND w.seen_at > :now - (:silence) THEN 1 ELSE 0 END AS alive
FROM workflow_worker w
ORDER BY w.started_at, w.id

-- name: children_of_run
-- file: board.sql
-- parameters: :run_id uuid, :after uuid, :limit integer
WITH child AS MATERIALIZED (SELECT c.id, c.created_at FROM workflow_run c WHERE c.parent_id = :run_id)
SELECT r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, CASE WHEN r.attempts_unset AND r.lease_epoch = 0 THEN NULL ELSE r.max_attempts END AS max_attempts, r.lease_until, r.leased_by,
  r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.idempotency_key, r.created_at,
  r.updated_at, r.started_at, r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.error AS error_json,
  r.result AS result_json, r.payload AS payload_json, r.traceparent FROM child JOIN workflow_run r ON r.id = child.id
WHERE (:after IS NULL OR (child.created_at, child.id) > (SELECT a.created_at, a.id FROM child a WHERE a.id = :after))
ORDER BY child.created_at, child.id LIMIT :limit

-- name: steps_of_run
-- file: board.sql
-- parameters: :run_id uuid
SELECT s.run_id, s.step_id, s.kind, s.status, s.attempt, s.due_at, s.started_at, s.completed_at,
       s.input AS input_json, s.output AS output_json, s.error AS error_json
FROM workflow_step s
WHERE s.run_id = :run_id
ORDER BY s.seq, s.step_id

-- name: feed_window
-- file: board.sql
-- parameters: :after bigint, :limit integer
SELECT coalesce(max(e.id), 0) AS last_id, count(*) AS events
FROM (SELECT x.id FROM workflow_event x WHERE x.id > :after ORDER BY x.id LIMIT :limit) AS e

-- name: feed
-- file: board.sql
-- parameters: :after bigint, :upto bigint, :since timestamptz, :any_event integer, :t(event text), :low text,
--   :high text
SELECT e.id, e.workflow_id, e.event_type, e.lease_epoch, e.data AS data_json, e.created_at, r.type AS run_type
FROM workflow_event e LEFT JOIN workflow_run r ON r.id = e.workflow_id
WHERE e.id > :after AND e.id <= :upto AND e.created_at >= :since
  AND (:any_event = 1 OR e.event_type IN (SELECT t.event FROM (SELECT json_extract(value, '$[0]') AS event FROM json_each(:t)) AS t))
  AND (:low IS NULL OR (r.type >= :low AND r.type < :high))
ORDER BY e.id

-- name: newest_event
-- file: board.sql
SELECT coalesce(max(e.id), 0) AS last_id FROM workflow_event e

-- name: activity
-- file: board.sql
-- parameters: :after bigint, :limit integer
SELECT e.event_type, count(*) AS events, max(e.id) AS last_id
FROM (SELECT x.id, x.event_type FROM workflow_event x WHERE x.id > :after ORDER BY x.id LIMIT :limit) AS e
GROUP BY e.event_type

-- name: events_of_run
-- file: events.sql
-- parameters: :run_id uuid, :after bigint, :limit integer
SELECT e.id, e.workflow_id, e.event_type, e.lease_epoch, e.data AS data_json, e.created_at
FROM workflow_event e
WHERE e.workflow_id = :run_id AND e.id > :after
ORDER BY e.id LIMIT :limit

-- name: first_event_since
-- file: events.sql
-- parameters: :floor timestamptz
WITH RECURSIVE search(low, high) AS (
  SELECT coalesce(min(e.id), 0), coalesce(max(e.id), 0) + 1 FROM workflow_event e
  UNION ALL
  SELECT CASE WHEN (SELECT e.created_at FROM workflow_event e WHERE e.id >= (s.low + s.high) / 2 ORDER BY e.id LIMIT 1) < :floor THEN (s.low + s.high) / 2 + 1 ELSE s.low END,
         CASE WHEN (SELECT e.created_at FROM workflow_event e WHERE e.id >= (s.low + s.high) / 2 ORDER BY e.id LIMIT 1) < :floor THEN s.high ELSE (s.low + s.high) / 2 END
  FROM search s WHERE s.low < s.high
)
SELECT max(low) AS id FROM search

-- name: events_since
-- file: events.sql
-- parameters: :since timestamptz, :after bigint, :limit integer
SELECT e.id, e.workflow_id, e.event_type, e.lease_epoch, e.data AS data_json, e.created_at
FROM workflow_event e
WHERE e.created_at >= :since AND e.id > :after
ORDER BY e.id LIMIT :limit

-- name: explain_runs
-- file: explain.sql
-- parameters: :now instant, :most integer, :b(run_id uuid)
SELECT r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, CASE WHEN r.attempts_unset AND r.lease_epoch = 0 THEN NULL ELSE r.max_attempts END AS max_attempts, r.lease_until, r.leased_by,
  r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.created_at, r.started_at,
  r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.idempotency_key, :now AS judged_at,
  CASE WHEN EXISTS (SELECT 1 FROM workflow_registry g WHERE g.workflow_name = r.type AND NOT g.is_enabled)
    THEN 0 ELSE 1 END AS is_enabled,
  CASE WHEN r.status = 'leased' THEN
    (SELECT e.created_at FROM workflow_event e
     WHERE e.workflow_id = r.id AND e.event_type = 'leased' AND e.lease_epoch = r.lease_epoch
     ORDER BY e.id DESC LIMIT 1) END AS leased_at,
  CASE WHEN r.status = 'leased' THEN
    (SELECT e.created_at FROM workflow_event e
     WHERE e.workflow_id = r.id AND e.event_type = 'heartbeat' AND e.lease_epoch = r.lease_epoch
     ORDER BY e.id DESC LIMIT 1) END AS heartbeat_at,
  (SELECT count(*) FROM workflow_step s
   WHERE s.run_id = r.id AND s.completed_at IS NOT NULL AND s.status <> 'superseded') AS steps_done,
  (SELECT count(*) FROM workflow_step s WHERE s.run_id = r.id AND s.completed_at IS NULL
     AND (s.status = 'retrying' OR s.error IS NULL) AND (r.status = 'paused' OR (r.status = 'leased' AND s.lease_epoch = r.lease_epoch
       AND (s.due_at IS NULL OR s.due_at > :now)))) AS open_waits,
  CASE WHEN r.status = 'paused' THEN
    (SELECT e.data FROM workflow_event e
     WHERE e.workflow_id = r.id AND e.event_type = 'paused' AND e.lease_epoch = r.lease_epoch
     ORDER BY e.id DESC LIMIT 1) END AS awaited_json,
  CASE WHEN r.status IN ('pending', 'paused') AND r.run_at <= :now AND r.held_at IS NULL THEN
    CASE WHEN r.crashes = 0 THEN
      (SELECT count(*) FROM (SELECT 1 FROM workflow_run o WHERE o.type = r.type AND o.priority = r.priority AND o.run_at <= :now AND (o.run_at, o.id) < (r.run_at, r.id)
        AND o.status IN ('pending', 'paused') AND o.run_at IS NOT NULL AND o.held_at IS NULL
        AND (o.deadline_at IS NULL OR o.deadline_at > :now) AND (o.start_by IS NULL OR o.start_by > :now OR o.started_at IS NOT NULL) AND o.crashes = 0 LIMIT :most) AS ahead)
    ELSE
      (SELECT count(*) FROM (SELECT 1 FROM workflow_run o WHERE o.type = r.type AND o.priority = r.priority AND o.run_at <= :now AND (o.run_at, o.id) < (r.run_at, r.id)
        AND o.status IN ('pending', 'paused') AND o.run_at IS NOT NULL AND o.held_at IS NULL
        AND (o.deadline_at IS NULL OR o.deadline_at > :now) AND (o.start_by IS NULL OR o.start_by > :now OR o.started_at IS NOT NULL) AND o.crashes > 0
         AND (o.crashes > 1) = (r.crashes > 1) LIMIT :most) AS ahead)
    END
  ELSE 0 END AS before
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_run r ON r.id = b.run_id

-- name: explain_waits
-- file: explain.sql
-- parameters: :b(run_id uuid, epoch bigint), :now instant, :most integer
SELECT x.run_id, x.step_id, x.kind, x.status, x.attempt, x.due_at, x.started_at, x.error AS error_json
FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch FROM json_each(:b)) AS b JOIN workflow_step x ON x.run_id = b.run_id
WHERE x.step_id IN (
  SELECT s.step_id FROM workflow_step s WHERE s.run_id = b.run_id AND s.completed_at IS NULL
    AND (s.status = 'retrying' OR s.error IS NULL) AND (b.epoch IS NULL OR (s.lease_epoch = b.epoch AND (s.due_at IS NULL OR s.due_at > :now)))
  ORDER BY s.seq, s.step_id LIMIT :most)
ORDER BY x.run_id, x.seq, x.step_id

-- name: explain_awaited
-- file: explain.sql
-- parameters: :b(run_id uuid, step_id text)
SELECT s.run_id, s.step_id, s.kind, s.status, s.attempt, s.due_at, s.started_at, s.error AS error_json
FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS step_id FROM json_each(:b)) AS b JOIN workflow_step s ON s.run_id = b.run_id AND s.step_id = b.step_id
WHERE s.completed_at IS NULL
ORDER BY s.run_id, s.seq, s.step_id

-- name: explain_last_steps
-- file: explain.sql
-- parameters: :b(run_id uuid)
SELECT s.run_id, s.step_id, s.kind, s.status, s.attempt, s.started_at, s.completed_at
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_step s ON s.run_id = b.run_id AND s.step_id = (
  SELECT x.step_id FROM workflow_step x
  WHERE x.run_id = b.run_id AND x.completed_at IS NOT NULL AND x.status <> 'superseded'
  ORDER BY coalesce(x.done_seq, x.seq) DESC, x.completed_at DESC, x.step_id DESC LIMIT 1)

-- name: explain_signals
-- file: explain.sql
-- parameters: :b(run_id uuid)
SELECT s.run_id, s.name, count(*) AS signals
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_signal s ON s.run_id = b.run_id
WHERE s.consumed_at IS NULL GROUP BY s.run_id, s.name ORDER BY s.run_id, s.name

-- name: explain_children
-- file: explain.sql
-- parameters: :b(run_id uuid), :most integer
SELECT c.parent_id, c.id FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_run c ON c.parent_id = b.run_id
WHERE c.finished_at IS NULL AND c.id IN (
  SELECT x.id FROM workflow_run x WHERE x.parent_id = b.run_id AND x.finished_at IS NULL
  ORDER BY x.id LIMIT :most)
ORDER BY c.parent_id, c.id

-- name: explain_workers
-- file: explain.sql
-- parameters: :now instant, :silence bigint, :w(worker text)
SELECT k.id AS worker_id, k.name, k.host, k.pid, k.started_at, k.seen_at, k.spans AS spans_json, k.stopped_at, k.load AS load_json,
  CASE WHEN k.stopped_at IS NULL AND k.seen_at > :now - (:silence) THEN 1 ELSE 0 END AS is_alive
FROM workflow_worker k
WHERE (k.stopped_at IS NULL AND k.seen_at > :now - (:silence)) OR k.id IN (SELECT w.worker FROM (SELECT json_extract(value, '$[0]') AS worker FROM json_each(:w)) AS w)
ORDER BY k.started_at, k.id

-- name: count_due
-- file: explain.sql
-- parameters: :now instant, :most integer, :lane(type text, priority integer)
SELECT lane.type, lane.priority, (SELECT count(*) FROM (
    SELECT 1 FROM workflow_run o
    WHERE o.status IN ('pending', 'paused') AND o.run_at <= :now AND o.held_at IS NULL AND o.crashes = 0
      AND o.type = lane.type AND o.priority = lane.priority
      AND (o.deadline_at IS NULL OR o.deadline_at > :now)
      AND (o.start_by IS NULL OR o.start_by > :now OR o.started_at IS NOT NULL)
    LIMIT :most) AS ahead) AS due
FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority FROM json_each(:lane)) AS lane

-- name: runs_between
-- file: explain.sql
-- parameters: :low uuid, :high uuid, :limit integer
SELECT r.id, r.type, r.status, r.created_at FROM workflow_run r
WHERE r.id >= :low AND r.id <= :high ORDER BY r.id LIMIT :limit

-- name: durability
-- file: health.sql
SELECT 'SQLite' AS name, sqlite_version() AS setting, NULL AS cure
UNION ALL SELECT 'journal_mode', j.journal_mode, NULL FROM pragma_journal_mode j
UNION ALL SELECT 'synchronous', CASE s.synchronous WHEN 0 THEN 'off' WHEN 1 THEN 'normal' WHEN 2 THEN 'full' ELSE 'extra' END, NULL
FROM pragma_synchronous s

-- name: structure
-- file: health.sql
SELECT s.type AS kind, s.name, s.tbl_name AS on_table, 'well' AS state FROM sqlite_master s
WHERE s.name NOT LIKE 'sqlite_%' ORDER BY s.type, s.name

-- name: lacking_privileges
-- file: health.sql
-- nothing is sent: another statement does this here

-- name: server_facts
-- file: health.sql
-- nothing is sent: another statement does this here

-- name: server_clock
-- file: health.sql
-- nothing is sent: another statement does this here

-- name: connection_use
-- file: health.sql
-- nothing is sent: another statement does this here

-- name: table_health
-- file: health.sql
-- nothing is sent: another statement does this here

-- name: vacuum_blockers
-- file: health.sql
-- nothing is sent: another statement does this here

-- name: file_facts
-- file: health.sql
SELECT sqlite_version() AS version, c.page_count * p.page_size AS bytes, f.freelist_count * p.page_size AS free
FROM pragma_page_count c, pragma_page_size p, pragma_freelist_count f

-- name: rows_ever
-- file: health.sql
SELECT 'workflow_run' AS name, (SELECT max(rowid) FROM workflow_run) - (SELECT min(rowid) FROM workflow_run) + 1 AS reach
UNION ALL
SELECT 'workflow_event', (SELECT max(rowid) FROM workflow_event) - (SELECT min(rowid) FROM workflow_event) + 1
UNION ALL
SELECT 'workflow_step', (SELECT max(rowid) FROM workflow_step) - (SELECT min(rowid) FROM workflow_step) + 1

-- name: due_lanes
-- file: health.sql
-- parameters: :now instant, :limit integer, :lane(type text, priority integer)
SELECT lane.type, lane.priority,
  (SELECT count(*) FROM (
     SELECT 1 AS one FROM workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
       AND r.type = lane.type AND r.priority = lane.priority AND r.run_at <= :now
     ORDER BY r.run_at, r.id LIMIT :limit) AS c) AS due,
  (SELECT r.id FROM workflow_run r
   WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
     AND r.type = lane.type AND r.priority = lane.priority AND r.run_at <= :now
   ORDER BY r.run_at, r.id LIMIT 1) AS run_id
FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority FROM json_each(:lane)) AS lane

-- name: due_suspect_lanes
-- file: health.sql
-- parameters: :now instant, :limit integer, :lane(type text, priority integer)
SELECT lane.type, lane.priority,
  (SELECT count(*) FROM (
     SELECT 1 AS one FROM workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
       AND r.type = lane.type AND r.priority = lane.priority AND r.run_at <= :now
     ORDER BY r.run_at, r.id LIMIT :limit) AS c) AS due,
  (SELECT r.id FROM workflow_run r
   WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
     AND r.type = lane.type AND r.priority = lane.priority AND r.run_at <= :now
   ORDER BY r.run_at, r.id LIMIT 1) AS run_id
FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority FROM json_each(:lane)) AS lane

-- name: crashed_runs
-- file: health.sql
-- parameters: :limit integer
SELECT c.type, count(*) AS runs
FROM (SELECT r.type FROM workflow_run r
      WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
      ORDER BY r.type, r.priority, r.run_at LIMIT :limit) AS c
GROUP BY c.type ORDER BY c.type

-- name: expired_leases
-- file: health.sql
-- parameters: :now instant, :grace bigint, :limit integer
SELECT c.leased_by, count(*) AS runs, min(c.lease_until) AS lease_until, :now AS judged_at
FROM (SELECT r.leased_by, r.lease_until FROM workflow_run r
      WHERE r.status = 'leased' AND r.lease_until < :now - (:grace)
      ORDER BY r.leased_by, r.id LIMIT :limit) AS c
GROUP BY c.leased_by ORDER BY c.leased_by

-- name: missed_deadlines
-- file: health.sql
-- parameters: :now instant, :grace bigint, :limit integer
SELECT 'deadline' AS kind, count(*) AS runs, min(c.due_at) AS due_at, :now AS judged_at
FROM (SELECT r.deadline_at AS due_at FROM workflow_run r
      WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.deadline_at < :now - (:grace)
      ORDER BY r.deadline_at LIMIT :limit) AS c
UNION ALL
SELECT 'start', count(*), min(c.due_at), :now
FROM (SELECT r.start_by AS due_at FROM workflow_run r
      WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.start_by < :now - (:grace)
      ORDER BY r.start_by LIMIT :limit) AS c

-- name: held_runs
-- file: health.sql
-- parameters: :now instant, :limit integer
SELECT count(*) AS looked, sum(CASE WHEN c.held_at IS NOT NULL AND c.finished_at IS NULL THEN 1 ELSE 0 END) AS runs,
       sum(CASE WHEN c.held_at IS NOT NULL AND c.finished_at IS NULL AND c.hold_reason = c.last_error THEN 1 ELSE 0 END)
         AS misfits,
       min(CASE WHEN c.finished_at IS NULL THEN c.held_at END) AS held_at, :now AS judged_at
FROM (SELECT r.held_at, r.finished_at, r.hold_reason, r.last_error FROM workflow_run r
      ORDER BY r.id DESC LIMIT :limit) AS c

-- name: silent_workers
-- file: health.sql
-- parameters: :now instant, :silence bigint, :limit integer
SELECT w.id AS worker_id, w.name, w.host, w.pid, w.seen_at, :now AS judged_at FROM workflow_worker w
WHERE w.stopped_at IS NULL AND w.seen_at <= :now - (:silence)
ORDER BY w.seen_at DESC LIMIT :limit

-- name: count_queue
-- file: metrics.sql
-- parameters: :now instant, :late bigint, :t(type text), :most integer
-- sent once for each row of t
SELECT q.type, q.status, count(*) AS runs, sum(q.is_late) AS late
FROM (
  SELECT r.type, r.status, CASE WHEN r.run_at <= :now - (:late) THEN 1 ELSE 0 END AS is_late
  FROM workflow_run r
  WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
    AND r.type = (SELECT t.type FROM (SELECT json_extract(value, '$[0]') AS type FROM json_each(:t)) AS t)
  ORDER BY r.priority, r.run_at LIMIT :most) AS q
GROUP BY q.type, q.status

-- name: count_suspects
-- file: metrics.sql
-- parameters: :now instant, :late bigint, :t(type text), :most integer
-- sent once for each row of t
SELECT q.type, q.status, count(*) AS runs, sum(q.is_late) AS late
FROM (
  SELECT r.type, r.status, CASE WHEN r.run_at <= :now - (:late) THEN 1 ELSE 0 END AS is_late
  FROM workflow_run r
  WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
    AND r.type = (SELECT t.type FROM (SELECT json_extract(value, '$[0]') AS type FROM json_each(:t)) AS t)
  ORDER BY r.priority, r.run_at LIMIT :most) AS q
GROUP BY q.type, q.status

-- name: count_leased
-- file: metrics.sql
-- parameters: :most integer
SELECT q.type, count(*) AS runs
FROM (SELECT r.type FROM workflow_run r WHERE r.status = 'leased' ORDER BY r.leased_by LIMIT :most) AS q
GROUP BY q.type

-- name: count_overdue
-- file: metrics.sql
-- parameters: :now instant, :most integer
SELECT (SELECT count(*) FROM (
    SELECT r.id FROM workflow_run r
    WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.deadline_at <= :now LIMIT :most) AS d)
  + (SELECT count(*) FROM (
    SELECT r.id FROM workflow_run r
    WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.start_by <= :now
    LIMIT :most) AS s) AS runs

-- name: types_of_runs
-- file: metrics.sql
-- parameters: :b(run_id uuid)
SELECT r.type, r.status, count(*) AS runs
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_run r ON r.id = b.run_id
GROUP BY r.type, r.status

-- name: table_sizes
-- file: metrics.sql
SELECT NULL AS name, c.page_count * p.page_size AS bytes, f.freelist_count * p.page_size AS free, NULL AS live
FROM pragma_page_count c, pragma_page_size p, pragma_freelist_count f

-- name: lock_schema
-- file: migrations.sql
-- nothing is sent: another statement does this here

-- name: create_schema
-- file: migrations.sql
-- nothing is sent: another statement does this here

-- name: create_migrations
-- file: migrations.sql
CREATE TABLE IF NOT EXISTS schema_migrations (
  version    text PRIMARY KEY NOT NULL,
  checksum   text NOT NULL,
  applied_at text NOT NULL)

-- name: applied_migrations
-- file: migrations.sql
SELECT m.version, m.checksum, m.applied_at AS applied FROM schema_migrations m ORDER BY m.version

-- name: record_migration
-- file: migrations.sql
-- parameters: :version text, :checksum text
INSERT INTO schema_migrations (version, checksum, applied_at)
VALUES (:version, :checksum, strftime('%Y-%m-%dT%H:%M:%S+00:00', 'now'))

-- name: forget_migration
-- file: migrations.sql
-- parameters: :version text
DELETE FROM schema_migrations WHERE version = :version

-- name: outbox_waiting
-- file: outbox.sql
-- parameters: :l(lane text), :limit integer
-- sent once for each row of l
SELECT o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.created_at, o.attempt, o.payload AS payload_json, r.type AS workflow_type, r.traceparent, substr(CAST(o.aggregate_id AS text), 36, 1) AS lane, EXISTS (SELECT 1 FROM outbox_event s
          WHERE s.aggregate_id = o.aggregate_id AND s.sequence < o.sequence
            AND s.status IN ('retrying', 'dead') AND s.published_at IS NULL) AS is_behind
FROM outbox_event o LEFT JOIN workflow_run r ON r.id = o.aggregate_id
WHERE substr(CAST(o.aggregate_id AS text), 36, 1) = (SELECT l.lane FROM (SELECT json_extract(value, '$[0]') AS lane FROM json_each(:l)) AS l) AND o.status = 'waiting' AND o.published_at IS NULL
ORDER BY o.id LIMIT :limit

-- name: outbox_retrying
-- file: outbox.sql
-- parameters: :l(lane text), :now instant, :limit integer
-- sent once for each row of l
SELECT o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.created_at, o.attempt, o.payload AS payload_json, r.type AS workflow_type, r.traceparent, substr(CAST(o.aggregate_id AS text), 36, 1) AS lane, EXISTS (SELECT 1 FROM outbox_event s
          WHERE s.aggregate_id = o.aggregate_id AND s.sequence < o.sequence
            AND s.status IN ('retrying', 'dead') AND s.published_at IS NULL) AS is_behind
FROM outbox_event o LEFT JOIN workflow_run r ON r.id = o.aggregate_id
WHERE substr(CAST(o.aggregate_id AS text), 36, 1) = (SELECT l.lane FROM (SELECT json_extract(value, '$[0]') AS lane FROM json_each(:l)) AS l) AND o.status = 'retrying' AND o.published_at IS NULL AND o.due_at <= :now
ORDER BY o.due_at LIMIT :limit

-- name: lock_lanes
-- file: outbox.sql
-- parameters: :l(lane text, epoch bigint), :owner text
SELECT n.lane FROM (SELECT json_extract(value, '$[0]') AS lane, json_extract(value, '$[1]') AS epoch FROM json_each(:l)) AS l JOIN outbox_lane n ON n.lane = l.lane AND n.epoch = l.epoch AND n.owner = :owner
ORDER BY n.lane

-- name: lock_lanes_of
-- file: outbox.sql
-- parameters: :r(lane text)
SELECT n.lane FROM (SELECT json_extract(value, '$[0]') AS lane FROM json_each(:r)) AS r JOIN outbox_lane n ON n.lane = r.lane ORDER BY n.lane

-- name: mark_published
-- file: outbox.sql
-- parameters: :now instant, :b(id bigint)
UPDATE outbox_event AS o
SET published_at = :now, status = 'published', due_at = NULL, last_error = NULL
FROM (SELECT json_extract(value, '$[0]') AS id FROM json_each(:b)) AS b WHERE o.id = b.id AND o.published_at IS NULL

-- name: mark_refused
-- file: outbox.sql
-- parameters: :now instant, :b(id bigint, status text, attempt integer, delay bigint, reason text)
UPDATE outbox_event AS o
SET attempt = b.attempt, status = b.status, last_error = b.reason, due_at = :now + (b.delay)
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS status,
    json_extract(value, '$[2]') AS attempt, json_extract(value, '$[3]') AS delay,
    json_extract(value, '$[4]') AS reason
  FROM json_each(:b)) AS b WHERE o.id = b.id AND o.published_at IS NULL AND o.status IN ('waiting', 'retrying')

-- name: mark_behind
-- file: outbox.sql
-- parameters: :b(id bigint)
UPDATE outbox_event AS o
SET status = 'behind', due_at = NULL
FROM (SELECT json_extract(value, '$[0]') AS id FROM json_each(:b)) AS b WHERE o.id = b.id AND o.status IN ('waiting', 'retrying') AND o.published_at IS NULL
  AND EXISTS (SELECT 1 FROM outbox_event s
            WHERE s.aggregate_id = o.aggregate_id AND s.sequence < o.sequence
              AND s.status IN ('retrying', 'dead') AND s.published_at IS NULL)

-- name: release_behind
-- file: outbox.sql
-- parameters: :b(run_id uuid)
UPDATE outbox_event AS o
SET status = 'waiting'
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b WHERE o.aggregate_id = b.run_id AND o.status = 'behind' AND o.published_at IS NULL

-- name: outbox_lanes
-- file: outbox.sql
-- parameters: :now instant
SELECT n.lane, n.owner, n.epoch, n.lease_until,
       CASE WHEN n.lease_until > :now THEN 1 ELSE 0 END AS is_held
FROM outbox_lane n ORDER BY n.lane

-- name: renew_lanes
-- file: outbox.sql
-- parameters: :now instant, :lease bigint, :owner text
UPDATE outbox_lane AS n SET lease_until = :now + (:lease)
WHERE n.owner = :owner RETURNING lane, epoch

-- name: take_lanes
-- file: outbox.sql
-- parameters: :owner text, :now instant, :lease bigint, :w(owner text), :limit integer
UPDATE outbox_lane AS n SET owner = :owner, epoch = n.epoch + 1, lease_until = :now + (:lease)
WHERE n.lane IN (
  SELECT f.lane FROM outbox_lane f
  WHERE f.owner IS NULL OR (f.owner <> :owner AND (f.lease_until <= :now OR f.owner IN (SELECT w.owner FROM (SELECT json_extract(value, '$[0]') AS owner FROM json_each(:w)) AS w)))
  ORDER BY f.lane LIMIT :limit)
RETURNING lane, epoch

-- name: release_lanes
-- file: outbox.sql
-- parameters: :l(given_up text, held_with bigint)
UPDATE outbox_lane AS n SET owner = NULL, lease_until = NULL, epoch = n.epoch + 1
FROM (SELECT json_extract(value, '$[0]') AS given_up, json_extract(value, '$[1]') AS held_with FROM json_each(:l)) AS l WHERE n.lane = l.given_up AND n.epoch = l.held_with RETURNING lane

-- name: release_lanes_of
-- file: outbox.sql
-- parameters: :owner text
UPDATE outbox_lane SET owner = NULL, lease_until = NULL, epoch = epoch + 1 WHERE owner = :owner

-- name: announce_dispatcher
-- file: outbox.sql
-- parameters: :id text, :now instant
INSERT INTO outbox_dispatcher (id, seen_at) VALUES (:id, :now)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at

-- name: live_dispatchers
-- file: outbox.sql
-- parameters: :now instant, :silence bigint
SELECT d.id AS dispatcher, d.seen_at FROM outbox_dispatcher d
WHERE d.seen_at > :now - (:silence) ORDER BY d.id

-- name: forget_dispatchers
-- file: outbox.sql
-- parameters: :now instant, :silence bigint, :d(id text)
DELETE FROM outbox_dispatcher
WHERE seen_at <= :now - (:silence) OR id IN (SELECT d.id FROM (SELECT json_extract(value, '$[0]') AS id FROM json_each(:d)) AS d)

-- name: add_outbox_rules
-- file: outbox.sql
-- parameters: :now instant, :u(event_type text, low text, high text)
INSERT INTO outbox_rule (event_type, low, high, created_at)
SELECT u.event_type, u.low, u.high, :now FROM (SELECT json_extract(value, '$[0]') AS event_type, json_extract(value, '$[1]') AS low,
    json_extract(value, '$[2]') AS high
  FROM json_each(:u)) AS u
WHERE true
ON CONFLICT DO NOTHING
RETURNING event_type, low, high

-- name: delete_outbox_rules
-- file: outbox.sql
-- parameters: :u(event_type text, low text, high text)
DELETE FROM outbox_rule AS x
WHERE EXISTS (SELECT 1 FROM (SELECT json_extract(value, '$[0]') AS event_type, json_extract(value, '$[1]') AS low,
    json_extract(value, '$[2]') AS high
  FROM json_each(:u)) AS u WHERE u.event_type = x.event_type AND u.low = x.low AND u.high = x.high)
RETURNING event_type, low, high

-- name: outbox_rules
-- file: outbox.sql
SELECT u.event_type, u.low, u.high, u.created_at FROM outbox_rule u ORDER BY u.low, u.high, u.event_type

-- name: outbox_of_run
-- file: outbox.sql
-- parameters: :run_id uuid, :after bigint, :limit integer
SELECT o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.status, o.attempt, o.created_at, o.published_at,
       o.due_at, o.last_error, o.skipped_at, o.skipped_by, o.skip_reason
FROM outbox_event o WHERE o.aggregate_id = :run_id AND o.sequence > :after ORDER BY o.sequence LIMIT :limit

-- name: outbox_head
-- file: outbox.sql
-- parameters: :run_id uuid
SELECT o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.status, o.attempt, o.created_at, o.published_at,
       o.due_at, o.last_error, o.skipped_at, o.skipped_by, o.skip_reason
FROM outbox_event o WHERE o.aggregate_id = :run_id AND o.published_at IS NULL ORDER BY o.sequence LIMIT 1

-- name: skip_event
-- file: outbox.sql
-- parameters: :now instant, :by text, :reason text, :run_id uuid, :sequence bigint
UPDATE outbox_event
SET status = 'skipped', published_at = :now, skipped_at = :now, skipped_by = :by, skip_reason = :reason, due_at = NULL
WHERE aggregate_id = :run_id AND sequence = :sequence AND status IN ('dead', 'retrying') AND published_at IS NULL
RETURNING sequence

-- name: replay_run
-- file: outbox.sql
-- parameters: :run_id uuid, :from bigint
UPDATE outbox_event SET status = 'waiting', published_at = NULL, due_at = NULL, attempt = 0, last_error = NULL,
      skipped_at = NULL, skipped_by = NULL, skip_reason = NULL
WHERE aggregate_id = :run_id AND sequence >= :from AND status IN ('published', 'dead', 'skipped', 'retrying')
RETURNING id

-- name: replay_events
-- file: outbox.sql
-- parameters: :b(event_id bigint)
UPDATE outbox_event AS o SET status = 'waiting', published_at = NULL, due_at = NULL, attempt = 0, last_error = NULL,
      skipped_at = NULL, skipped_by = NULL, skip_reason = NULL
FROM (SELECT json_extract(value, '$[0]') AS event_id FROM json_each(:b)) AS b WHERE o.id = b.event_id AND o.status IN ('published', 'dead')
RETURNING id

-- name: dead_events
-- file: outbox.sql
-- parameters: :after bigint, :limit integer
SELECT o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.status, o.attempt, o.created_at, o.published_at,
       o.due_at, o.last_error, o.skipped_at, o.skipped_by, o.skip_reason, substr(CAST(o.aggregate_id AS text), 36, 1) AS lane
FROM outbox_event o
WHERE o.status = 'dead' AND o.published_at IS NULL AND o.id > :after ORDER BY o.id LIMIT :limit

-- name: last_dead_event
-- file: outbox.sql
SELECT o.id FROM outbox_event o
WHERE o.status = 'dead' AND o.published_at IS NULL ORDER BY o.id DESC LIMIT 1

-- name: store_time
-- file: outbox.sql
-- parameters: :now instant
SELECT :now AS judged_at

-- name: published_events
-- file: outbox.sql
-- parameters: :since timestamptz, :until timestamptz, :limit integer
SELECT o.id, substr(CAST(o.aggregate_id AS text), 36, 1) AS lane
FROM outbox_event o
WHERE o.published_at >= :since AND o.published_at < :until AND o.status <> 'skipped'
ORDER BY o.published_at, o.id LIMIT :limit

-- name: outbox_counts
-- file: outbox.sql
-- parameters: :most integer
SELECT (SELECT count(*) FROM (SELECT 1 FROM outbox_event o
                              WHERE o.status = 'waiting' AND o.published_at IS NULL LIMIT :most) AS x) AS waiting,
       (SELECT count(*) FROM (SELECT 1 FROM outbox_event o
                              WHERE o.status = 'retrying' AND o.published_at IS NULL LIMIT :most) AS x) AS retrying,
       (SELECT count(*) FROM (SELECT 1 FROM outbox_event o
                              WHERE o.status = 'behind' AND o.published_at IS NULL LIMIT :most) AS x) AS behind,
       (SELECT count(*) FROM (SELECT 1 FROM outbox_event o
                              WHERE o.status = 'dead' AND o.published_at IS NULL LIMIT :most) AS x) AS dead

-- name: outbox_oldest
-- file: outbox.sql
-- parameters: :now instant, :most integer
SELECT :now AS judged_at, min(x.created_at) AS created_at FROM (
  SELECT (SELECT o.created_at FROM outbox_event o
          WHERE substr(CAST(o.aggregate_id AS text), 36, 1) = (n.lane || '') AND o.status = 'waiting' AND o.published_at IS NULL ORDER BY o.id LIMIT 1) AS created_at
  FROM outbox_lane n
  UNION ALL
  SELECT r.created_at FROM (SELECT o.created_at FROM outbox_event o
                            WHERE o.status = 'retrying' AND o.published_at IS NULL LIMIT :most) AS r) AS x

-- name: prunable_events
-- file: outbox.sql
-- parameters: :instant timestamptz, :after bigint, :now instant, :age bigint, :limit integer
SELECT o.id, o.published_at AS happened_at,
       CASE WHEN EXISTS (SELECT 1 FROM outbox_event n
                         WHERE n.aggregate_id = o.aggregate_id AND n.sequence > o.sequence) THEN 0
            WHEN EXISTS (SELECT 1 FROM workflow_run r WHERE r.id = o.aggregate_id) THEN 1
            ELSE 0 END AS is_kept
FROM outbox_event o
WHERE o.published_at >= :instant AND (o.published_at > :instant OR o.id > :after) AND o.published_at < :now - (:age)
ORDER BY o.published_at, o.id LIMIT :limit

-- name: forget_events
-- file: outbox.sql
-- parameters: :b(id bigint)
DELETE FROM outbox_event WHERE id IN (SELECT b.id FROM (SELECT json_extract(value, '$[0]') AS id FROM json_each(:b)) AS b) AND published_at IS NOT NULL
RETURNING id

-- name: find_prunable
-- file: prune.sql
-- parameters: :rule(low text, high text, status text, is_deleted integer, age bigint), :first uuid, :last uuid,
--   :limit integer, :most integer, :now instant, :shortest bigint
WITH chosen AS MATERIALIZED (SELECT rule.low, rule.high, rule.status, rule.is_deleted, rule.age FROM (SELECT json_extract(value, '$[0]') AS low, json_extract(value, '$[1]') AS high, json_extract(value, '$[2]') AS status,
    json_extract(value, '$[3]') AS is_deleted, json_extract(value, '$[4]') AS age
  FROM json_each(:rule)) AS rule), page AS MATERIALIZED (
  SELECT r.id, coalesce(r.deleted_at, r.finished_at) AS ended_at FROM workflow_run r
  WHERE r.id >= :first AND r.id <= :last ORDER BY r.id LIMIT :limit)
SELECT r.id AS run_id, r.type, r.status, CASE WHEN EXISTS (SELECT 1 FROM workflow_run p WHERE p.id = r.parent_id AND p.finished_at IS NULL)
         THEN 'open_parent'
       WHEN EXISTS (SELECT 1 FROM outbox_event o WHERE o.aggregate_id = r.id AND o.published_at IS NULL)
         THEN 'unpublished_events'
       WHEN r.id = (SELECT e.workflow_id FROM workflow_event e ORDER BY e.id DESC LIMIT 1) THEN 'newest_events' END AS kept, 1 + (SELECT count(*) FROM (SELECT 1 FROM workflow_step s WHERE s.run_id = r.id LIMIT :most) AS x)
    + (SELECT count(*) FROM (SELECT 1 FROM workflow_event e WHERE e.workflow_id = r.id LIMIT :most) AS x)
    + (SELECT count(*) FROM (SELECT 1 FROM workflow_signal g WHERE g.run_id = r.id LIMIT :most) AS x)
    + (SELECT count(*) FROM (SELECT 1 FROM outbox_event o WHERE o.aggregate_id = r.id LIMIT :most) AS x) AS weight, 0 AS examined
FROM page JOIN workflow_run r ON r.id = page.id JOIN chosen c ON r.type >= c.low AND r.type < c.high AND r.status = c.status
    AND c.is_deleted = CASE WHEN r.deleted_at IS NULL THEN 0 ELSE 1 END
    AND coalesce(r.deleted_at, r.finished_at) <= :now - (c.age)
WHERE page.ended_at <= :now - (:shortest)
UNION ALL
SELECT (SELECT page.id FROM page ORDER BY page.id DESC LIMIT 1), NULL, NULL, NULL, 0, (SELECT count(*) FROM page)

-- name: lock_prunable
-- file: prune.sql
-- parameters: :b(run_id uuid)
SELECT r.id AS run_id FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_run r ON r.id = b.run_id
WHERE r.finished_at IS NOT NULL ORDER BY r.id

-- name: judge_prunable
-- file: prune.sql
-- parameters: :rule(low text, high text, status text, is_deleted integer, age bigint), :b(run_id uuid), :now instant
WITH chosen AS MATERIALIZED (SELECT rule.low, rule.high, rule.status, rule.is_deleted, rule.age FROM (SELECT json_extract(value, '$[0]') AS low, json_extract(value, '$[1]') AS high, json_extract(value, '$[2]') AS status,
    json_extract(value, '$[3]') AS is_deleted, json_extract(value, '$[4]') AS age
  FROM json_each(:rule)) AS rule)
SELECT r.id AS run_id, r.type, r.status, CASE WHEN EXISTS (SELECT 1 FROM workflow_run p WHERE p.id = r.parent_id AND p.finished_at IS NULL)
         THEN 'open_parent'
       WHEN EXISTS (SELECT 1 FROM outbox_event o WHERE o.aggregate_id = r.id AND o.published_at IS NULL)
         THEN 'unpublished_events'
       WHEN r.id = (SELECT e.workflow_id FROM workflow_event e ORDER BY e.id DESC LIMIT 1) THEN 'newest_events' END AS kept
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_run r ON r.id = b.run_id JOIN chosen c ON r.type >= c.low AND r.type < c.high AND r.status = c.status
    AND c.is_deleted = CASE WHEN r.deleted_at IS NULL THEN 0 ELSE 1 END
    AND coalesce(r.deleted_at, r.finished_at) <= :now - (c.age)

-- name: prune_runs
-- file: prune.sql
-- parameters: :b(run_id uuid)
DELETE FROM workflow_run WHERE id IN (SELECT b.run_id FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b)

-- name: take_prune_turn
-- file: prune.sql
-- parameters: :policy text, :holder text, :now instant, :lease bigint
INSERT INTO workflow_pruning (policy, holder, held_until, started_at)
VALUES (:policy, :holder, :now + (:lease), :now)
ON CONFLICT (policy) DO UPDATE
SET holder = excluded.holder, held_until = excluded.held_until,
    started_at = CASE WHEN workflow_pruning.place IS NULL THEN excluded.started_at ELSE workflow_pruning.started_at END
WHERE workflow_pruning.held_until <= :now
RETURNING place AS run_id, started_at, :now AS judged_at

-- name: save_prune_turn
-- file: prune.sql
-- parameters: :place uuid, :more bigint, :now instant, :lease bigint, :policy text, :holder text
UPDATE workflow_pruning
SET place = :place, removed = removed + :more, held_until = :now + (:lease)
WHERE policy = :policy AND holder = :holder
RETURNING policy

-- name: end_prune_pass
-- file: prune.sql
-- parameters: :now instant, :rest bigint, :more bigint, :policy text, :holder text
UPDATE workflow_pruning
SET place = NULL, holder = NULL, held_until = :now + (:rest), finished_at = :now, last_removed = removed + :more,
    removed = 0
WHERE policy = :policy AND holder = :holder
RETURNING policy

-- name: forget_pruning
-- file: prune.sql
-- parameters: :now instant, :silence bigint
DELETE FROM workflow_pruning WHERE held_until < :now - (:silence)

-- name: pruning_status
-- file: prune.sql
-- parameters: :now instant, :limit integer
SELECT p.policy, p.holder, p.held_until AS due_at, p.started_at, p.finished_at, p.removed, p.last_removed, :now AS judged_at
FROM workflow_pruning p ORDER BY p.held_until DESC LIMIT :limit

-- name: insert_runs
-- file: runs.sql
-- parameters: :now instant, :n(run_id uuid, type text, payload json, priority integer, run_at timestamptz,
--   delay bigint, idempotency_key text, max_attempts integer, start_within bigint, parent_id uuid, traceparent text),
--   :telling boolean
INSERT INTO workflow_run
  (id, type, payload, priority, run_at, idempotency_key, max_attempts, attempts_unset, start_by, parent_id, traceparent,
   created_at, updated_at)
SELECT n.run_id, n.type, n.payload, n.priority, coalesce(n.run_at, :now + (n.delay)), n.idempotency_key,
       coalesce(n.max_attempts, 3), n.max_attempts IS NULL, coalesce(n.run_at, :now + (n.delay)) + (n.start_within),
       n.parent_id, n.traceparent, :now, :now
FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS type,
    json_extract(value, '$[2]') AS payload, json_extract(value, '$[3]') AS priority,
    json_extract(value, '$[4]') AS run_at, json_extract(value, '$[5]') AS delay,
    json_extract(value, '$[6]') AS idempotency_key, json_extract(value, '$[7]') AS max_attempts,
    json_extract(value, '$[8]') AS start_within, json_extract(value, '$[9]') AS parent_id,
    json_extract(value, '$[10]') AS traceparent
  FROM json_each(:n)) AS n
WHERE NOT EXISTS (SELECT 1 FROM workflow_registry g WHERE g.workflow_name = n.type AND NOT g.is_enabled)
ON CONFLICT DO NOTHING
RETURNING id, CASE WHEN :telling THEN NULL END AS told

-- name: runs_like
-- file: runs.sql
-- parameters: :n(run_id uuid, idempotency_key text)
SELECT r.id, r.idempotency_key, r.type, CAST(r.payload AS text) AS payload_json
FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS idempotency_key FROM json_each(:n)) AS n JOIN workflow_run r ON r.id = n.run_id
UNION
SELECT r.id, r.idempotency_key, r.type, CAST(r.payload AS text)
FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS idempotency_key FROM json_each(:n)) AS n JOIN workflow_run r ON r.idempotency_key = n.idempotency_key
WHERE r.idempotency_key IS NOT NULL AND r.deleted_at IS NULL

-- name: find_lanes
-- file: runs.sql
-- parameters: :span(type text, priority integer, high text), :now instant, :limit integer
WITH RECURSIVE lane(type, priority, run_at, high) AS (
  SELECT h.type, h.priority, h.run_at, span.high
  FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
      json_extract(value, '$[2]') AS high
    FROM json_each(:span)) AS span JOIN workflow_run h ON h.rowid = coalesce(
    (SELECT r.rowid FROM workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
       AND r.type = span.type AND r.priority > span.priority
     ORDER BY r.priority, r.run_at LIMIT 1),
    (SELECT r.rowid FROM workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
       AND r.type > span.type AND r.type < span.high
     ORDER BY r.type, r.priority, r.run_at LIMIT 1))
  UNION ALL
  SELECT h.type, h.priority, h.run_at, lane.high
  FROM lane JOIN workflow_run h ON h.rowid = coalesce(
    (SELECT r.rowid FROM workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
       AND r.type = lane.type AND r.priority > lane.priority
     ORDER BY r.priority, r.run_at LIMIT 1),
    (SELECT r.rowid FROM workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
       AND r.type > lane.type AND r.type < lane.high
     ORDER BY r.type, r.priority, r.run_at LIMIT 1))
  ORDER BY 1, 2
)
SELECT l.type, l.priority, CASE WHEN l.run_at <= :now AND NOT EXISTS (
    SELECT 1 FROM workflow_registry g WHERE g.workflow_name = l.type AND NOT g.is_enabled)
  THEN 1 ELSE 0 END AS due, l.run_at - :now AS due_in
FROM (SELECT type, priority, run_at FROM lane LIMIT :limit) AS l

-- name: find_suspect_lanes
-- file: runs.sql
-- parameters: :span(type text, priority integer, high text), :now instant, :limit integer
WITH RECURSIVE lane(type, priority, run_at, high) AS (
  SELECT h.type, h.priority, h.run_at, span.high
  FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
      json_extract(value, '$[2]') AS high
    FROM json_each(:span)) AS span JOIN workflow_run h ON h.rowid = coalesce(
    (SELECT r.rowid FROM workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
       AND r.type = span.type AND r.priority > span.priority
     ORDER BY r.priority, r.run_at LIMIT 1),
    (SELECT r.rowid FROM workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
       AND r.type > span.type AND r.type < span.high
     ORDER BY r.type, r.priority, r.run_at LIMIT 1))
  UNION ALL
  SELECT h.type, h.priority, h.run_at, lane.high
  FROM lane JOIN workflow_run h ON h.rowid = coalesce(
    (SELECT r.rowid FROM workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
       AND r.type = lane.type AND r.priority > lane.priority
     ORDER BY r.priority, r.run_at LIMIT 1),
    (SELECT r.rowid FROM workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
       AND r.type > lane.type AND r.type < lane.high
     ORDER BY r.type, r.priority, r.run_at LIMIT 1))
  ORDER BY 1, 2
)
SELECT l.type, l.priority, CASE WHEN l.run_at <= :now AND NOT EXISTS (
    SELECT 1 FROM workflow_registry g WHERE g.workflow_name = l.type AND NOT g.is_enabled)
  THEN 1 ELSE 0 END AS due, l.run_at - :now AS due_in
FROM (SELECT type, priority, run_at FROM lane LIMIT :limit) AS l

-- name: claim_lanes
-- file: runs.sql
-- parameters: :worker text, :now instant, :lane(type text, priority integer, max_attempts integer, lease bigint,
--   timeout bigint, low timestamptz), :limit integer
UPDATE workflow_run
SET status = 'leased', version = version + 1, lease_epoch = lease_epoch + 1, leased_by = :worker,
    lease_until = :now + ((SELECT lane.lease FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
        json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
        json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
      FROM json_each(:lane)) AS lane)),
    max_attempts = CASE WHEN max_attempts IS NULL OR (attempts_unset AND lease_epoch = 0)
                        THEN (SELECT lane.max_attempts FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
                            json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
                            json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
                          FROM json_each(:lane)) AS lane) ELSE max_attempts END,
    deadline_at = coalesce(deadline_at, :now + ((SELECT lane.timeout FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
        json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
        json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
      FROM json_each(:lane)) AS lane))),
    started_at = coalesce(started_at, :now), updated_at = :now
WHERE id IN (
  SELECT r.id FROM workflow_run r
  WHERE r.status IN ('pending', 'paused') AND r.run_at <= :now AND r.held_at IS NULL AND r.crashes = 0
    AND r.type = (SELECT lane.type FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
        json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
        json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
      FROM json_each(:lane)) AS lane) AND r.priority = (SELECT lane.priority FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
        json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
        json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
      FROM json_each(:lane)) AS lane)
    AND r.run_at >= coalesce((SELECT lane.low FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
        json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
        json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
      FROM json_each(:lane)) AS lane), -9223372036854775807)
    AND NOT EXISTS (SELECT 1 FROM workflow_registry g, (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
        json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
        json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
      FROM json_each(:lane)) AS lane WHERE g.workflow_name = lane.type AND NOT g.is_enabled)
    AND (r.deadline_at IS NULL OR r.deadline_at > :now)
    AND (r.start_by IS NULL OR r.start_by > :now OR r.started_at IS NOT NULL)
  ORDER BY r.run_at, r.id LIMIT :limit)
RETURNING id, type, lease_epoch AS epoch, attempt, crashes, max_attempts, priority, payload,
  (lease_until - :now) / 1000000.0 AS lease_seconds, (deadline_at - :now) / 1000000.0 AS deadline_in, parent_id, wakes,
  idempotency_key, run_at, :now AS claimed_at, traceparent

-- name: claim_suspect_lanes
-- file: runs.sql
-- parameters: :worker text, :now instant, :lane(type text, priority integer, max_attempts integer, lease bigint,
--   timeout bigint, low timestamptz), :least integer, :most integer, :limit integer
UPDATE workflow_run
SET status = 'leased', version = version + 1, lease_epoch = lease_epoch + 1, leased_by = :worker,
    lease_until = :now + ((SELECT lane.lease FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
        json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
        json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
      FROM json_each(:lane)) AS lane)),
    max_attempts = CASE WHEN max_attempts IS NULL OR (attempts_unset AND lease_epoch = 0)
                        THEN (SELECT lane.max_attempts FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
                            json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
                            json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
                          FROM json_each(:lane)) AS lane) ELSE max_attempts END,
    deadline_at = coalesce(deadline_at, :now + ((SELECT lane.timeout FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
        json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
        json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
      FROM json_each(:lane)) AS lane))),
    started_at = coalesce(started_at, :now), updated_at = :now
WHERE id IN (
  SELECT r.id FROM workflow_run r
  WHERE r.status IN ('pending', 'paused') AND r.run_at <= :now AND r.held_at IS NULL AND r.crashes > 0 AND r.crashes BETWEEN :least AND :most
    AND r.type = (SELECT lane.type FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
        json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
        json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
      FROM json_each(:lane)) AS lane) AND r.priority = (SELECT lane.priority FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
        json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
        json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
      FROM json_each(:lane)) AS lane)
    AND r.run_at >= coalesce((SELECT lane.low FROM (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
        json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
        json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
      FROM json_each(:lane)) AS lane), -9223372036854775807)
    AND NOT EXISTS (SELECT 1 FROM workflow_registry g, (SELECT json_extract(value, '$[0]') AS type, json_extract(value, '$[1]') AS priority,
        json_extract(value, '$[2]') AS max_attempts, json_extract(value, '$[3]') AS lease,
        json_extract(value, '$[4]') AS timeout, json_extract(value, '$[5]') AS low
      FROM json_each(:lane)) AS lane WHERE g.workflow_name = lane.type AND NOT g.is_enabled)
    AND (r.deadline_at IS NULL OR r.deadline_at > :now)
    AND (r.start_by IS NULL OR r.start_by > :now OR r.started_at IS NOT NULL)
  ORDER BY r.run_at, r.id LIMIT :limit)
RETURNING id, type, lease_epoch AS epoch, attempt, crashes, max_attempts, priority, payload,
  (lease_until - :now) / 1000000.0 AS lease_seconds, (deadline_at - :now) / 1000000.0 AS deadline_in, parent_id, wakes,
  idempotency_key, run_at, :now AS claimed_at, traceparent

-- name: log_leased
-- file: runs.sql
-- parameters: :worker text, :now instant, :e(run_id uuid, epoch bigint)
INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
SELECT e.run_id, 'leased', e.epoch, json_object('worker', :worker), :now FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch FROM json_each(:e)) AS e

-- name: lock_runs
-- file: runs.sql
-- parameters: :b(run_id uuid)
SELECT r.id FROM workflow_run r
WHERE r.id IN (SELECT b.run_id FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b)
   OR r.id IN (SELECT c.parent_id FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_run c ON c.id = b.run_id)
ORDER BY r.id

-- name: settle_runs
-- file: runs.sql
-- parameters: :now instant, :b(run_id uuid, epoch bigint, status text, event text, started integer, elapsed bigint,
--   burns integer, delay bigint, anew integer, result json, error json, last_error text, hold_reason text, data json),
--   :worker text
-- sent once for each row of b
UPDATE workflow_run AS r
SET status = b.status, version = r.version + 1, attempt = r.attempt + b.burns,
    run_at = CASE WHEN b.status = 'pending' THEN :now + (b.delay) ELSE r.run_at END,
    lease_until = NULL, leased_by = NULL, updated_at = :now,
    finished_at = CASE WHEN b.status = 'pending' THEN NULL ELSE :now END,
    result = b.result, error = coalesce(b.error, r.error), last_error = coalesce(b.last_error, r.last_error),
    held_at = CASE WHEN b.hold_reason IS NULL THEN r.held_at ELSE :now END,
    hold_reason = coalesce(b.hold_reason, r.hold_reason),
    started_at = CASE WHEN b.started = 0 AND b.status = 'pending' AND r.attempt = 0 AND r.crashes = 0
      AND (SELECT 1 FROM workflow_event e
           WHERE e.workflow_id = r.id AND e.event_type IN ('started', 'retried', 'heartbeat') LIMIT 1) IS NULL
      AND (SELECT 1 FROM workflow_step s WHERE s.run_id = r.id LIMIT 1) IS NULL THEN NULL ELSE r.started_at END,
    deadline_at = CASE WHEN b.anew = 1 AND b.started = 0 AND b.status = 'pending' AND r.attempt = 0 AND r.crashes = 0
      AND (SELECT 1 FROM workflow_event e
           WHERE e.workflow_id = r.id AND e.event_type IN ('started', 'retried', 'heartbeat') LIMIT 1) IS NULL
      AND (SELECT 1 FROM workflow_step s WHERE s.run_id = r.id LIMIT 1) IS NULL THEN NULL ELSE r.deadline_at END
FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch,
    json_extract(value, '$[2]') AS status, json_extract(value, '$[3]') AS event,
    json_extract(value, '$[4]') AS started, json_extract(value, '$[5]') AS elapsed,
    json_extract(value, '$[6]') AS burns, json_extract(value, '$[7]') AS delay,
    json_extract(value, '$[8]') AS anew, json_extract(value, '$[9]') AS result,
    json_extract(value, '$[10]') AS error, json_extract(value, '$[11]') AS last_error,
    json_extract(value, '$[12]') AS hold_reason, json_extract(value, '$[13]') AS data
  FROM json_each(:b)) AS b
WHERE r.id = b.run_id AND CASE WHEN r.status = 'leased' AND r.leased_by = :worker THEN r.lease_epoch END = b.epoch
RETURNING id AS run_id, lease_epoch AS epoch

-- name: finish_runs
-- file: runs.sql
-- parameters: :now instant, :b(run_id uuid, epoch bigint, elapsed bigint, result json), :worker text
UPDATE workflow_run AS r
SET status = 'succeeded', version = r.version + 1, lease_until = NULL, leased_by = NULL, updated_at = :now,
    finished_at = :now, result = b.result
FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch,
    json_extract(value, '$[2]') AS elapsed, json_extract(value, '$[3]') AS result
  FROM json_each(:b)) AS b
WHERE r.id = b.run_id AND CASE WHEN r.status = 'leased' AND r.leased_by = :worker THEN r.lease_epoch END = b.epoch
RETURNING id AS run_id, lease_epoch AS epoch

-- name: log_finished
-- file: runs.sql
-- parameters: :now instant, :b(run_id uuid, epoch bigint, elapsed bigint)
INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, created_at)
SELECT b.run_id, 'started', b.epoch, :now - (b.elapsed) FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch,
    json_extract(value, '$[2]') AS elapsed
  FROM json_each(:b)) AS b
UNION ALL
SELECT b.run_id, 'succeeded', b.epoch, :now FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch,
    json_extract(value, '$[2]') AS elapsed
  FROM json_each(:b)) AS b

-- name: log_settled
-- file: runs.sql
-- parameters: :now instant, :b(run_id uuid, epoch bigint, event text, started integer, elapsed bigint, data json,
--   held integer)
INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
SELECT b.run_id, 'started', b.epoch, NULL, :now - (b.elapsed) FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch,
    json_extract(value, '$[2]') AS event, json_extract(value, '$[3]') AS started,
    json_extract(value, '$[4]') AS elapsed, json_extract(value, '$[5]') AS data,
    json_extract(value, '$[6]') AS held
  FROM json_each(:b)) AS b WHERE b.started = 1
UNION ALL
SELECT b.run_id, b.event, b.epoch, b.data, :now FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch,
    json_extract(value, '$[2]') AS event, json_extract(value, '$[3]') AS started,
    json_extract(value, '$[4]') AS elapsed, json_extract(value, '$[5]') AS data,
    json_extract(value, '$[6]') AS held
  FROM json_each(:b)) AS b
UNION ALL
SELECT b.run_id, 'held', b.epoch, b.data, :now FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch,
    json_extract(value, '$[2]') AS event, json_extract(value, '$[3]') AS started,
    json_extract(value, '$[4]') AS elapsed, json_extract(value, '$[5]') AS data,
    json_extract(value, '$[6]') AS held
  FROM json_each(:b)) AS b WHERE b.held = 1

-- name: settled_already
-- file: runs.sql
-- parameters: :b(run_id uuid, epoch bigint, status text), :worker text
SELECT r.id AS run_id, b.epoch FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch,
    json_extract(value, '$[2]') AS status
  FROM json_each(:b)) AS b JOIN workflow_run r ON r.id = b.run_id
WHERE r.lease_epoch = b.epoch AND r.status = b.status AND EXISTS (
  SELECT 1 FROM workflow_event e
  WHERE e.workflow_id = r.id AND e.event_type = 'leased' AND e.lease_epoch = b.epoch
    AND json_extract(e.data, '$.worker') = :worker)

-- name: renew_leases
-- file: runs.sql
-- parameters: :now instant, :b(run_id uuid, epoch bigint, lease bigint), :worker text
UPDATE workflow_run AS r
SET lease_until = CASE WHEN r.lease_until > :now + (b.lease) THEN r.lease_until ELSE :now + (b.lease) END,
    version = r.version + 1, updated_at = :now
FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch,
    json_extract(value, '$[2]') AS lease
  FROM json_each(:b)) AS b
WHERE r.id = b.run_id AND CASE WHEN r.status = 'leased' AND r.leased_by = :worker THEN r.lease_epoch END = b.epoch
RETURNING id AS run_id

-- name: lease_states
-- file: runs.sql
-- parameters: :worker text, :b(run_id uuid, epoch bigint)
SELECT r.id, b.epoch, CASE WHEN CASE WHEN r.status = 'leased' AND r.leased_by = :worker THEN r.lease_epoch END = b.epoch THEN 1 ELSE 0 END AS owned,
       CASE WHEN r.held_at IS NULL THEN 0 ELSE 1 END AS held, r.wakes
FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch FROM json_each(:b)) AS b JOIN workflow_run r ON r.id = b.run_id

-- name: lock_leases
-- file: runs.sql
-- parameters: :b(run_id uuid, epoch bigint), :worker text
SELECT r.id AS run_id, b.epoch FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch FROM json_each(:b)) AS b JOIN workflow_run r ON r.id = b.run_id
WHERE CASE WHEN r.status = 'leased' AND r.leased_by = :worker THEN r.lease_epoch END = b.epoch ORDER BY r.id

-- name: lock_free_leases
-- file: runs.sql
-- parameters: :b(run_id uuid, epoch bigint), :worker text
SELECT r.id AS run_id, b.epoch FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch FROM json_each(:b)) AS b JOIN workflow_run r ON r.id = b.run_id
WHERE CASE WHEN r.status = 'leased' AND r.leased_by = :worker THEN r.lease_epoch END = b.epoch ORDER BY r.id

-- name: log_events
-- file: runs.sql
-- parameters: :now instant, :e(run_id uuid, event text, epoch bigint, data json)
INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
SELECT e.run_id, e.event, e.epoch, e.data, :now FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS event,
    json_extract(value, '$[2]') AS epoch, json_extract(value, '$[3]') AS data
  FROM json_each(:e)) AS e

-- name: leased_runs
-- file: runs.sql
-- parameters: :worker text
SELECT r.id AS run_id, r.lease_epoch AS epoch FROM workflow_run r
WHERE r.status = 'leased' AND r.leased_by = :worker

-- name: lease_holders
-- file: runs.sql
WITH RECURSIVE holder(leased_by) AS (
  SELECT min(leased_by) FROM workflow_run WHERE status = 'leased'
  UNION ALL
  SELECT (SELECT min(r.leased_by) FROM workflow_run r WHERE r.status = 'leased' AND r.leased_by > holder.leased_by)
  FROM holder WHERE holder.leased_by IS NOT NULL)
SELECT leased_by FROM holder WHERE leased_by IS NOT NULL

-- name: crashed_in_company
-- file: runs.sql
-- parameters: :now instant, :w(worker text), :me text
SELECT r.id AS run_id FROM workflow_run r
WHERE r.status = 'leased' AND (r.lease_until < :now OR r.leased_by IN (SELECT w.worker FROM (SELECT json_extract(value, '$[0]') AS worker FROM json_each(:w)) AS w))
  AND r.leased_by <> :me AND r.crashes BETWEEN 1 AND 3 AND (EXISTS (
    SELECT 1 FROM workflow_run o
    WHERE o.status = 'leased' AND o.leased_by = r.leased_by AND o.id <> r.id AND o.crashes > 0
      AND (r.crashes = 1 OR (o.crashes > 1
        AND (SELECT max(e.id) FROM workflow_event e WHERE e.event_type = 'leased' AND e.workflow_id = o.id)
          > (SELECT max(e.id) FROM workflow_event e WHERE e.event_type = 'leased' AND e.workflow_id = r.id))))
  OR EXISTS (
    SELECT 1 FROM workflow_run o
    WHERE o.status IN ('pending', 'paused') AND o.run_at IS NOT NULL AND o.held_at IS NULL
      AND o.id <> r.id AND o.crashes > 0 AND o.last_error = 'its worker stopped without finishing it: ' || r.leased_by
        AND o.crashes > 1 AND (r.crashes = 1 OR (o.crashes > 2
          AND (SELECT max(e.id) FROM workflow_event e WHERE e.event_type = 'leased' AND e.workflow_id = o.id)
            > (SELECT max(e.id) FROM workflow_event e WHERE e.event_type = 'leased' AND e.workflow_id = r.id))))
  OR EXISTS (
    SELECT 1 FROM workflow_run o
    WHERE o.status = 'leased'
      AND o.id <> r.id AND o.crashes > 0 AND o.last_error = 'its worker stopped without finishing it: ' || r.leased_by
        AND o.crashes > 1 AND (r.crashes = 1 OR (o.crashes > 2
          AND (SELECT max(e.id) FROM workflow_event e WHERE e.event_type = 'leased' AND e.workflow_id = o.id)
            > (SELECT max(e.id) FROM workflow_event e WHERE e.event_type = 'leased' AND e.workflow_id = r.id)))))

-- name: crash_runs
-- file: runs.sql
-- parameters: :x(run_id text), :now instant, :unit bigint, :w(worker text), :me text, :limit integer
UPDATE workflow_run AS r
SET status = 'pending',
    version = version + 1, crashes = crashes + 1, lease_until = NULL, leased_by = NULL,
    max_attempts = CASE WHEN CASE WHEN CAST(r.id AS text) IN (SELECT x.run_id FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:x)) AS x) THEN 1 ELSE 0 END = 1 AND coalesce(max_attempts, 3) < 1000000000 THEN coalesce(max_attempts, 3) + 1
                        ELSE max_attempts END,
    run_at = :now + (:unit * CASE WHEN crashes = 0 THEN 0 WHEN crashes > 9 THEN 300 ELSE (1 << (crashes - 1)) END),
    finished_at = NULL, updated_at = :now,
    last_error = 'its worker stopped without finishing it: ' || leased_by,
    error = json_object('type', 'WorkerCrashed', 'message', 'its worker stopped without finishing it: ' || leased_by)
WHERE id IN (
  SELECT r.id FROM workflow_run r
  WHERE r.status = 'leased' AND (r.lease_until < :now OR r.leased_by IN (SELECT w.worker FROM (SELECT json_extract(value, '$[0]') AS worker FROM json_each(:w)) AS w))
    AND r.leased_by <> :me
    AND r.attempt + r.crashes - CASE WHEN CAST(r.id AS text) IN (SELECT x.run_id FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:x)) AS x) THEN 1 ELSE 0 END + 1 < coalesce(r.max_attempts, 3)
  ORDER BY r.leased_by, r.id LIMIT :limit)
RETURNING id, status, lease_epoch, crashes, last_error

-- name: give_up_runs
-- file: runs.sql
-- parameters: :x(run_id text), :now instant, :unit bigint, :w(worker text), :me text, :limit integer
UPDATE workflow_run AS r
SET status = 'failed',
    version = version + 1, crashes = crashes + 1, lease_until = NULL, leased_by = NULL,
    max_attempts = CASE WHEN CASE WHEN CAST(r.id AS text) IN (SELECT x.run_id FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:x)) AS x) THEN 1 ELSE 0 END = 1 AND coalesce(max_attempts, 3) < 1000000000 THEN coalesce(max_attempts, 3) + 1
                        ELSE max_attempts END,
    run_at = :now + (:unit * CASE WHEN crashes = 0 THEN 0 WHEN crashes > 9 THEN 300 ELSE (1 << (crashes - 1)) END),
    finished_at = :now, updated_at = :now,
    last_error = 'its worker stopped without finishing it: ' || leased_by,
    error = json_object('type', 'WorkerCrashed', 'message', 'its worker stopped without finishing it: ' || leased_by)
WHERE id IN (
  SELECT r.id FROM workflow_run r
  WHERE r.status = 'leased' AND (r.lease_until < :now OR r.leased_by IN (SELECT w.worker FROM (SELECT json_extract(value, '$[0]') AS worker FROM json_each(:w)) AS w))
    AND r.leased_by <> :me
    AND r.attempt + r.crashes - CASE WHEN CAST(r.id AS text) IN (SELECT x.run_id FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:x)) AS x) THEN 1 ELSE 0 END + 1 >= coalesce(r.max_attempts, 3)
    AND NOT EXISTS (SELECT 1 FROM workflow_registry g WHERE g.workflow_name = r.type AND g.on_exhausted = 'hold')
  ORDER BY r.leased_by, r.id LIMIT :limit)
RETURNING id, status, lease_epoch, crashes, last_error

-- name: hold_spent_runs
-- file: runs.sql
-- parameters: :x(run_id text), :now instant, :unit bigint, :w(worker text), :me text, :limit integer
UPDATE workflow_run AS r
SET status = 'pending',
    version = version + 1, crashes = crashes + 1, lease_until = NULL, leased_by = NULL,
    max_attempts = CASE WHEN CASE WHEN CAST(r.id AS text) IN (SELECT x.run_id FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:x)) AS x) THEN 1 ELSE 0 END = 1 AND coalesce(max_attempts, 3) < 1000000000 THEN coalesce(max_attempts, 3) + 1
                        ELSE max_attempts END,
    run_at = :now + (:unit * CASE WHEN crashes = 0 THEN 0 WHEN crashes > 9 THEN 300 ELSE (1 << (crashes - 1)) END),
    held_at = :now, hold_reason = 'out of attempts; its worker stopped without finishing it', updated_at = :now,
    last_error = 'its worker stopped without finishing it: ' || leased_by,
    error = json_object('type', 'WorkerCrashed', 'message', 'its worker stopped without finishing it: ' || leased_by)
WHERE id IN (
  SELECT r.id FROM workflow_run r
  WHERE r.status = 'leased' AND (r.lease_until < :now OR r.leased_by IN (SELECT w.worker FROM (SELECT json_extract(value, '$[0]') AS worker FROM json_each(:w)) AS w))
    AND r.leased_by <> :me
    AND r.attempt + r.crashes - CASE WHEN CAST(r.id AS text) IN (SELECT x.run_id FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:x)) AS x) THEN 1 ELSE 0 END + 1 >= coalesce(r.max_attempts, 3)
    AND EXISTS (SELECT 1 FROM workflow_registry g WHERE g.workflow_name = r.type AND g.on_exhausted = 'hold')
  ORDER BY r.leased_by, r.id LIMIT :limit)
RETURNING id, status, lease_epoch, crashes, last_error

-- name: expire_deadlines
-- file: runs.sql
-- parameters: :now instant, :grace bigint, :limit integer
UPDATE workflow_run
SET status = 'timed_out', version = version + 1, finished_at = :now, updated_at = :now, lease_until = NULL,
  leased_by = NULL, last_error = 'its deadline passed',
  error = json_object('type', 'RunTimedOut', 'message', 'its deadline passed')
WHERE id IN (
  SELECT r.id FROM workflow_run r
  WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.deadline_at <= :now
    AND (r.status <> 'leased' OR r.deadline_at <= :now - (:grace))
  ORDER BY r.deadline_at LIMIT :limit)
RETURNING id, status, lease_epoch, crashes, last_error

-- name: expire_unstarted
-- file: runs.sql
-- parameters: :now instant, :grace bigint, :limit integer
UPDATE workflow_run
SET status = 'timed_out', version = version + 1, finished_at = :now, updated_at = :now, lease_until = NULL,
  leased_by = NULL, last_error = 'no worker started it in time',
  error = json_object('type', 'RunTimedOut', 'message', 'no worker started it in time')
WHERE id IN (
  SELECT r.id FROM workflow_run r
  WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.start_by <= :now
    AND (r.status <> 'leased' OR r.start_by <= :now - (:grace))
  ORDER BY r.start_by LIMIT :limit)
RETURNING id, status, lease_epoch, crashes, last_error

-- name: next_expiry
-- file: runs.sql
-- parameters: :now instant
SELECT (SELECT r.deadline_at FROM workflow_run r
  WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.status IN ('pending', 'paused')
  ORDER BY r.deadline_at LIMIT 1) - :now AS deadline_in, (SELECT r.start_by FROM workflow_run r
  WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.status IN ('pending', 'paused')
  ORDER BY r.start_by LIMIT 1) - :now AS start_in

-- name: cancel_runs
-- file: runs.sql
-- parameters: :now instant, :reason text, :b(run_id uuid)
-- sent once for each row of b
UPDATE workflow_run AS r
SET status = 'cancelled', version = r.version + 1, finished_at = :now, updated_at = :now, lease_until = NULL,
    leased_by = NULL, last_error = coalesce(:reason, r.last_error)
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b
WHERE r.id = b.run_id AND r.status IN ('pending', 'leased', 'paused')
RETURNING id, lease_epoch

-- name: hold_runs
-- file: runs.sql
-- parameters: :now instant, :reason text, :b(run_id uuid)
UPDATE workflow_run AS r
SET held_at = :now, hold_reason = :reason, version = r.version + 1, updated_at = :now
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b
WHERE r.id = b.run_id AND r.status IN ('pending', 'leased', 'paused') AND r.held_at IS NULL
RETURNING id, lease_epoch

-- name: resume_runs
-- file: runs.sql
-- parameters: :now instant, :b(run_id uuid)
UPDATE workflow_run AS r
SET held_at = NULL, hold_reason = NULL, version = r.version + 1, updated_at = :now
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b
WHERE r.id = b.run_id AND r.status IN ('pending', 'leased', 'paused') AND r.held_at IS NOT NULL
RETURNING id, lease_epoch

-- name: revive_runs
-- file: runs.sql
-- parameters: :now instant, :b(run_id uuid)
UPDATE workflow_run AS r
SET status = 'pending', version = r.version + 1, run_at = :now, attempt = 0, crashes = 0, deadline_at = NULL,
    start_by = NULL, finished_at = NULL, result = NULL, error = NULL, last_error = NULL, held_at = NULL,
    hold_reason = NULL, updated_at = :now
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b
WHERE r.id = b.run_id AND r.status IN ('succeeded', 'failed', 'cancelled', 'timed_out') AND r.deleted_at IS NULL
RETURNING id, lease_epoch

-- name: cancelled_with_parent
-- file: runs.sql
-- parameters: :b(run_id uuid)
SELECT c.id FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_run c ON c.parent_id = b.run_id
WHERE c.status = 'cancelled' AND c.deleted_at IS NULL AND substr(c.last_error, 1, 16) = 'its parent ended'

-- name: delete_runs
-- file: runs.sql
-- parameters: :now instant, :reason text, :b(run_id uuid)
UPDATE workflow_run AS r
SET deleted_at = :now, delete_reason = :reason, version = r.version + 1, updated_at = :now
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b
WHERE r.id = b.run_id AND r.finished_at IS NOT NULL AND r.deleted_at IS NULL
RETURNING id, lease_epoch

-- name: hasten_undo
-- file: runs.sql
-- parameters: :now instant, :idempotency_key text, :run_id uuid, :epoch bigint, :worker text
UPDATE workflow_run
SET run_at = :now, version = version + 1, updated_at = :now
WHERE idempotency_key = :idempotency_key AND deleted_at IS NULL AND status = 'pending' AND run_at > :now AND EXISTS (
  SELECT 1 FROM workflow_event e
  WHERE e.workflow_id = :run_id AND e.event_type = 'leased' AND e.lease_epoch = :epoch AND json_extract(e.data, '$.worker') = :worker)
RETURNING id

-- name: get_runs
-- file: runs.sql
-- parameters: :b(run_id uuid)
SELECT r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, CASE WHEN r.attempts_unset AND r.lease_epoch = 0 THEN NULL ELSE r.max_attempts END AS max_attempts, r.lease_until, r.leased_by,
  r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.idempotency_key, r.created_at,
  r.updated_at, r.started_at, r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.error AS error_json,
  r.result AS result_json, r.payload AS payload_json, r.traceparent FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_run r ON r.id = b.run_id

-- name: run_with_key
-- file: runs.sql
-- parameters: :idempotency_key text
SELECT r.id FROM workflow_run r WHERE r.idempotency_key = :idempotency_key AND r.deleted_at IS NULL

-- name: open_runs
-- file: runs.sql
SELECT r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, CASE WHEN r.attempts_unset AND r.lease_epoch = 0 THEN NULL ELSE r.max_attempts END AS max_attempts, r.lease_until, r.leased_by,
  r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.idempotency_key, r.created_at,
  r.updated_at, r.started_at, r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.error AS error_json,
  r.result AS result_json, r.payload AS payload_json, r.traceparent, r.wakes FROM workflow_run r WHERE r.finished_at IS NULL ORDER BY r.id

-- name: finished_among
-- file: runs.sql
-- parameters: :b(run_id uuid)
SELECT r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, CASE WHEN r.attempts_unset AND r.lease_epoch = 0 THEN NULL ELSE r.max_attempts END AS max_attempts, r.lease_until, r.leased_by,
  r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.idempotency_key, r.created_at,
  r.updated_at, r.started_at, r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.error AS error_json,
  r.result AS result_json, r.payload AS payload_json, r.traceparent FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_run r ON r.id = b.run_id WHERE r.finished_at IS NOT NULL

-- name: list_runs
-- file: runs.sql
-- parameters: :below uuid, :at timestamptz, :last uuid, :since timestamptz, :until timestamptz, :any_status integer,
--   :s(status text), :type text, :low text, :high text, :idempotency_key text, :with_deleted integer, :held integer,
--   :limit integer
SELECT r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, CASE WHEN r.attempts_unset AND r.lease_epoch = 0 THEN NULL ELSE r.max_attempts END AS max_attempts, r.lease_until, r.leased_by,
  r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.idempotency_key, r.created_at,
  r.updated_at, r.started_at, r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.error AS error_json,
  r.result AS result_json, r.payload AS payload_json, r.traceparent FROM workflow_run r
WHERE (r.created_at, r.id) < (CASE WHEN :below IS NULL THEN 9223372036854775807 ELSE :at END, coalesce(:last, 'g'))
  AND r.created_at >= coalesce(:since, -9223372036854775807)
  AND r.created_at < coalesce(:until, 9223372036854775807)
  AND (:any_status = 1 OR r.status IN (SELECT s.status FROM (SELECT json_extract(value, '$[0]') AS status FROM json_each(:s)) AS s))
    AND (:type IS NULL OR r.type = :type)
    AND (:low IS NULL OR (r.type >= :low AND r.type < :high))
    AND (:idempotency_key IS NULL OR r.idempotency_key = :idempotency_key)
    AND (:with_deleted = 1 OR r.deleted_at IS NULL)
    AND (:held = 0 OR (r.held_at IS NOT NULL AND r.finished_at IS NULL))
ORDER BY r.created_at DESC, r.id DESC LIMIT :limit

-- name: run_places
-- file: runs.sql
-- parameters: :b(run_id uuid)
SELECT r.id, r.created_at FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_run r ON r.id = b.run_id

-- name: count_runs
-- file: runs.sql
SELECT r.type, r.status, count(*) AS runs FROM workflow_run r
WHERE r.deleted_at IS NULL GROUP BY r.type, r.status ORDER BY r.type, r.status

-- name: next_schedule
-- file: schedules.sql
-- parameters: :now instant, :but(name text)
SELECT s.next_at, :now AS judged_at FROM workflow_schedule s
WHERE s.paused_at IS NULL AND s.name NOT IN (SELECT but.name FROM (SELECT json_extract(value, '$[0]') AS name FROM json_each(:but)) AS but)
ORDER BY s.next_at NULLS FIRST LIMIT 1

-- name: take_schedules
-- file: schedules.sql
-- parameters: :now instant, :but(name text), :only text, :limit integer
SELECT s.name, s.type, s.cron, s.every_us, s.tz, s.payload AS payload_json, s.overlap, s.catch_up,
  s.window_us, s.next_at, s.paused_at, s.pause_reason, s.origin, s.last_slot_at, s.last_fired_at,
  s.last_run_id, s.extra_run_id, s.last_skipped_at, s.fired, s.skipped, s.trouble, s.created_at, s.updated_at, :now AS judged_at FROM workflow_schedule s
WHERE s.paused_at IS NULL AND (s.next_at IS NULL OR s.next_at <= :now)
  AND s.name NOT IN (SELECT but.name FROM (SELECT json_extract(value, '$[0]') AS name FROM json_each(:but)) AS but) AND (:only IS NULL OR s.name = :only)
ORDER BY s.updated_at, s.name LIMIT :limit

-- name: lock_schedules
-- file: schedules.sql
-- parameters: :b(name text)
SELECT s.name, s.type, s.cron, s.every_us, s.tz, s.payload AS payload_json, s.overlap, s.catch_up,
  s.window_us, s.next_at, s.paused_at, s.pause_reason, s.origin, s.last_slot_at, s.last_fired_at,
  s.last_run_id, s.extra_run_id, s.last_skipped_at, s.fired, s.skipped, s.trouble, s.created_at, s.updated_at FROM workflow_schedule s
WHERE s.name IN (SELECT b.name FROM (SELECT json_extract(value, '$[0]') AS name FROM json_each(:b)) AS b) ORDER BY s.name

-- name: get_schedule
-- file: schedules.sql
-- parameters: :name text
SELECT s.name, s.type, s.cron, s.every_us, s.tz, s.payload AS payload_json, s.overlap, s.catch_up,
  s.window_us, s.next_at, s.paused_at, s.pause_reason, s.origin, s.last_slot_at, s.last_fired_at,
  s.last_run_id, s.extra_run_id, s.last_skipped_at, s.fired, s.skipped, s.trouble, s.created_at, s.updated_at FROM workflow_schedule s WHERE s.name = :name

-- name: due_schedules
-- file: schedules.sql
-- parameters: :now instant, :but(name text), :limit integer
SELECT s.name FROM workflow_schedule s
WHERE s.paused_at IS NULL AND (s.next_at IS NULL OR s.next_at <= :now)
  AND s.name NOT IN (SELECT but.name FROM (SELECT json_extract(value, '$[0]') AS name FROM json_each(:but)) AS but)
ORDER BY s.updated_at, s.name LIMIT :limit

-- name: open_among
-- file: schedules.sql
-- parameters: :b(run_id uuid)
SELECT r.id FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_run r ON r.id = b.run_id WHERE r.finished_at IS NULL

-- name: advance_schedules
-- file: schedules.sql
-- parameters: :now instant, :b(schedule text, seen timestamptz, next_at timestamptz, slot timestamptz, run_id uuid,
--   fired bigint, skipped bigint, skip timestamptz)
UPDATE workflow_schedule AS s
SET next_at = b.next_at, updated_at = :now, trouble = NULL,
    last_slot_at = coalesce(b.slot, s.last_slot_at), last_run_id = coalesce(b.run_id, s.last_run_id),
    last_fired_at = CASE WHEN b.fired > 0 THEN :now ELSE s.last_fired_at END,
    last_skipped_at = coalesce(b.skip, s.last_skipped_at), fired = s.fired + b.fired, skipped = s.skipped + b.skipped
FROM (SELECT json_extract(value, '$[0]') AS schedule, json_extract(value, '$[1]') AS seen,
    json_extract(value, '$[2]') AS next_at, json_extract(value, '$[3]') AS slot,
    json_extract(value, '$[4]') AS run_id, json_extract(value, '$[5]') AS fired,
    json_extract(value, '$[6]') AS skipped, json_extract(value, '$[7]') AS skip
  FROM json_each(:b)) AS b
WHERE s.name = b.schedule AND (s.next_at = b.seen OR (s.next_at IS NULL AND b.seen IS NULL))
RETURNING name

-- name: blame_schedules
-- file: schedules.sql
-- parameters: :now instant, :b(name text, trouble text)
UPDATE workflow_schedule AS s SET trouble = b.trouble, updated_at = :now
FROM (SELECT json_extract(value, '$[0]') AS name, json_extract(value, '$[1]') AS trouble FROM json_each(:b)) AS b WHERE s.name = b.name AND (s.trouble IS NULL OR s.trouble <> b.trouble)

-- name: what_time
-- file: schedules.sql
-- parameters: :now instant
SELECT :now AS judged_at

-- name: insert_schedules
-- file: schedules.sql
-- parameters: :now instant, :n(name text, type text, cron text, every_us bigint, tz text, payload json, overlap text,
--   catch_up text, window_us bigint, next_at timestamptz, origin text)
INSERT INTO workflow_schedule
  (name, type, cron, every_us, tz, payload, overlap, catch_up, window_us, next_at, origin, created_at, updated_at)
SELECT n.name, n.type, n.cron, n.every_us, n.tz, n.payload, n.overlap, n.catch_up, n.window_us, n.next_at, n.origin, :now, :now
FROM (SELECT json_extract(value, '$[0]') AS name, json_extract(value, '$[1]') AS type, json_extract(value, '$[2]') AS cron,
    json_extract(value, '$[3]') AS every_us, json_extract(value, '$[4]') AS tz,
    json_extract(value, '$[5]') AS payload, json_extract(value, '$[6]') AS overlap,
    json_extract(value, '$[7]') AS catch_up, json_extract(value, '$[8]') AS window_us,
    json_extract(value, '$[9]') AS next_at, json_extract(value, '$[10]') AS origin
  FROM json_each(:n)) AS n
WHERE true
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: change_schedules
-- file: schedules.sql
-- parameters: :now instant, :n(name text, type text, cron text, every_us bigint, tz text, payload json, overlap text,
--   catch_up text, window_us bigint, next_at timestamptz, origin text)
UPDATE workflow_schedule AS s
SET type = n.type, cron = n.cron, every_us = n.every_us, tz = n.tz, payload = n.payload, overlap = n.overlap,
    catch_up = n.catch_up, window_us = n.window_us, next_at = n.next_at, origin = n.origin, trouble = NULL,
    updated_at = :now
FROM (SELECT json_extract(value, '$[0]') AS name, json_extract(value, '$[1]') AS type, json_extract(value, '$[2]') AS cron,
    json_extract(value, '$[3]') AS every_us, json_extract(value, '$[4]') AS tz,
    json_extract(value, '$[5]') AS payload, json_extract(value, '$[6]') AS overlap,
    json_extract(value, '$[7]') AS catch_up, json_extract(value, '$[8]') AS window_us,
    json_extract(value, '$[9]') AS next_at, json_extract(value, '$[10]') AS origin
  FROM json_each(:n)) AS n WHERE s.name = n.name

-- name: list_schedules
-- file: schedules.sql
-- parameters: :now instant, :after text, :limit integer
SELECT s.name, s.type, s.cron, s.every_us, s.tz, s.payload AS payload_json, s.overlap, s.catch_up,
  s.window_us, s.next_at, s.paused_at, s.pause_reason, s.origin, s.last_slot_at, s.last_fired_at,
  s.last_run_id, s.extra_run_id, s.last_skipped_at, s.fired, s.skipped, s.trouble, s.created_at, s.updated_at, :now AS judged_at FROM workflow_schedule s
WHERE s.name > :after ORDER BY s.name LIMIT :limit

-- name: pause_schedule
-- file: schedules.sql
-- parameters: :now instant, :reason text, :name text
UPDATE workflow_schedule SET paused_at = :now, pause_reason = :reason, updated_at = :now
WHERE name = :name AND paused_at IS NULL

-- name: resume_schedule
-- file: schedules.sql
-- parameters: :now instant, :name text
UPDATE workflow_schedule SET paused_at = NULL, pause_reason = NULL, updated_at = :now
WHERE name = :name AND paused_at IS NOT NULL

-- name: delete_schedule
-- file: schedules.sql
-- parameters: :name text
DELETE FROM workflow_schedule WHERE name = :name

-- name: note_extra_run
-- file: schedules.sql
-- parameters: :run_id uuid, :now instant, :name text
UPDATE workflow_schedule SET extra_run_id = :run_id, updated_at = :now WHERE name = :name

-- name: load_steps
-- file: steps.sql
-- parameters: :b(run_id uuid)
SELECT s.run_id, s.step_id, s.kind, s.status, s.attempt, s.due_at, s.started_at, s.completed_at,
       s.input AS input_json, s.output AS output_json, s.error AS error_json
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_step s ON s.run_id = b.run_id
ORDER BY s.run_id, s.seq, s.rowid

-- name: load_signals
-- file: steps.sql
-- parameters: :b(run_id uuid)
SELECT s.id, s.run_id, s.name, s.created_at, s.consumed_at, s.payload AS payload_json
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b JOIN workflow_signal s ON s.run_id = b.run_id
WHERE s.consumed_at IS NULL
ORDER BY s.run_id, s.seq, s.rowid

-- name: signals_of_run
-- file: steps.sql
-- parameters: :run_id uuid
SELECT s.id, s.run_id, s.name, s.created_at, s.consumed_at, s.payload AS payload_json
FROM workflow_signal s WHERE s.run_id = :run_id ORDER BY s.seq, s.rowid

-- name: next_in_sequence
-- file: steps.sql
UPDATE workflow_sequence
SET n = CASE WHEN last = (SELECT coalesce(max(e.id), 1) FROM workflow_event e) THEN n + 1 ELSE 1 END,
    last = (SELECT coalesce(max(e.id), 1) FROM workflow_event e)

-- name: record_steps
-- file: steps.sql
-- parameters: :now instant, :b(run_id uuid, epoch bigint, step_id text, kind text, status text, attempt integer,
--   elapsed bigint, due_in bigint, input json, output json, error json)
INSERT INTO workflow_step
  (run_id, seq, lease_epoch, step_id, kind, status, attempt, started_at, completed_at, due_at, input, output, error)
SELECT b.run_id, (SELECT q.last * 1048576 + q.n FROM workflow_sequence q), b.epoch, b.step_id, b.kind, b.status,
       b.attempt, :now - (b.elapsed), CASE WHEN b.status IN ('succeeded', 'failed') THEN :now END,
       :now + (b.due_in), b.input, b.output, b.error
FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch,
    json_extract(value, '$[2]') AS step_id, json_extract(value, '$[3]') AS kind,
    json_extract(value, '$[4]') AS status, json_extract(value, '$[5]') AS attempt,
    json_extract(value, '$[6]') AS elapsed, json_extract(value, '$[7]') AS due_in,
    json_extract(value, '$[8]') AS input, json_extract(value, '$[9]') AS output,
    json_extract(value, '$[10]') AS error
  FROM json_each(:b)) AS b
WHERE true
ON CONFLICT (run_id, step_id) DO UPDATE
SET status = excluded.status, attempt = excluded.attempt, lease_epoch = excluded.lease_epoch,
    completed_at = excluded.completed_at,
    due_at = CASE WHEN excluded.status = 'retrying' THEN excluded.due_at
                  ELSE coalesce(workflow_step.due_at, excluded.due_at) END,
    done_seq = CASE WHEN excluded.completed_at IS NOT NULL THEN excluded.seq END,
    output = excluded.output, error = excluded.error
WHERE workflow_step.completed_at IS NULL OR workflow_step.kind = 'publish'

-- name: clear_steps
-- file: steps.sql
-- parameters: :b(run_id uuid, step_id text)
UPDATE workflow_step AS s
SET status = 'superseded', step_id = '@superseded ' || s.lease_epoch || ' ' || s.step_id
FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS step_id FROM json_each(:b)) AS b WHERE s.run_id = b.run_id AND s.step_id = b.step_id AND s.status = 'failed'

-- name: insert_outbox
-- file: steps.sql
-- parameters: :now instant, :e(run_id uuid, step_id text, place integer, event_type text, payload json)
INSERT INTO outbox_event (aggregate_id, sequence, event_type, payload, created_at)
SELECT e.run_id, e.place + coalesce(
         (SELECT max(o.sequence) FROM outbox_event o WHERE o.aggregate_id = e.run_id), 0),
       e.event_type, e.payload, :now
FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS step_id,
    json_extract(value, '$[2]') AS place, json_extract(value, '$[3]') AS event_type,
    json_extract(value, '$[4]') AS payload
  FROM json_each(:e)) AS e
WHERE NOT EXISTS (SELECT 1 FROM workflow_step s WHERE s.run_id = e.run_id AND s.step_id = e.step_id)

-- name: published_values
-- file: steps.sql
-- parameters: :run_id uuid
SELECT s.step_id, s.output AS output_json, s.completed_at
FROM workflow_step s WHERE s.run_id = :run_id AND s.kind = 'publish'
ORDER BY s.completed_at, coalesce(s.done_seq, s.seq)

-- name: history_of_run
-- file: steps.sql
-- parameters: :run_id uuid, :after bigint, :limit integer
SELECT h.idx, h.event_type, h."timestamp" AS happened_at, CAST(h.details AS text) AS details_json
FROM workflow_history h
WHERE h.workflow_id = :run_id AND h.idx > :after ORDER BY h.idx LIMIT :limit

-- name: consume_signals
-- file: steps.sql
-- parameters: :now instant, :b(signal_id uuid, step_id text)
UPDATE workflow_signal AS s
SET consumed_at = :now, consumed_by = b.step_id
FROM (SELECT json_extract(value, '$[0]') AS signal_id, json_extract(value, '$[1]') AS step_id FROM json_each(:b)) AS b WHERE s.id = b.signal_id AND s.consumed_at IS NULL

-- name: pause_runs
-- file: steps.sql
-- parameters: :now instant, :b(run_id uuid, epoch bigint, wakes bigint, due_in bigint), :worker text
UPDATE workflow_run AS r
SET status = 'paused', version = r.version + 1, crashes = 0, run_at = :now + (b.due_in), lease_until = NULL,
    leased_by = NULL, updated_at = :now
FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch,
    json_extract(value, '$[2]') AS wakes, json_extract(value, '$[3]') AS due_in
  FROM json_each(:b)) AS b
WHERE r.id = b.run_id AND CASE WHEN r.status = 'leased' AND r.leased_by = :worker THEN r.lease_epoch END = b.epoch AND r.wakes = b.wakes
RETURNING id AS run_id

-- name: log_paused
-- file: steps.sql
-- parameters: :now instant, :b(run_id uuid, epoch bigint, elapsed bigint, data json)
INSERT INTO workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
SELECT b.run_id, 'started', b.epoch, NULL, :now - (b.elapsed) FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch,
    json_extract(value, '$[2]') AS elapsed, json_extract(value, '$[3]') AS data
  FROM json_each(:b)) AS b
UNION ALL
SELECT b.run_id, 'paused', b.epoch, b.data, :now FROM (SELECT json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS epoch,
    json_extract(value, '$[2]') AS elapsed, json_extract(value, '$[3]') AS data
  FROM json_each(:b)) AS b

-- name: progress_runs
-- file: steps.sql
-- parameters: :b(run_id uuid)
UPDATE workflow_run AS r
SET crashes = 0, version = r.version + 1
FROM (SELECT json_extract(value, '$[0]') AS run_id FROM json_each(:b)) AS b WHERE r.id = b.run_id AND r.crashes > 0

-- name: wake_for_signal
-- file: steps.sql
-- parameters: :now instant, :run_id uuid
UPDATE workflow_run
SET wakes = wakes + 1, version = version + 1, updated_at = :now,
    run_at = CASE WHEN status = 'paused' AND (run_at IS NULL OR run_at > :now) THEN :now ELSE run_at END
WHERE id = :run_id AND finished_at IS NULL
RETURNING id, status

-- name: insert_signal
-- file: steps.sql
-- parameters: :id uuid, :run_id uuid, :name text, :payload json, :now instant
INSERT INTO workflow_signal (id, run_id, seq, name, payload, created_at)
VALUES (:id, :run_id, -1, :name, :payload, :now)
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: get_signal
-- file: steps.sql
-- parameters: :id uuid
SELECT s.run_id, s.name, CAST(s.payload AS text) AS payload_json FROM workflow_signal s WHERE s.id = :id

-- name: upsert_definitions
-- file: workers.sql
-- parameters: :now instant, :d(name text, description text, on_cancel text, dead_letter text, on_exhausted text)
INSERT INTO workflow_registry
  (workflow_name, runtime, description, on_cancel, dead_letter, on_exhausted, updated_at)
SELECT d.name, 'python', d.description, d.on_cancel, d.dead_letter, d.on_exhausted, :now FROM (SELECT json_extract(value, '$[0]') AS name, json_extract(value, '$[1]') AS description,
    json_extract(value, '$[2]') AS on_cancel, json_extract(value, '$[3]') AS dead_letter,
    json_extract(value, '$[4]') AS on_exhausted
  FROM json_each(:d)) AS d
WHERE true
ON CONFLICT (workflow_name) DO UPDATE
SET description = excluded.description, on_cancel = excluded.on_cancel, dead_letter = excluded.dead_letter,
    on_exhausted = excluded.on_exhausted,
    runtime = excluded.runtime, updated_at = excluded.updated_at

-- name: introduce_definitions
-- file: workers.sql
-- parameters: :now instant, :d(name text, description text, on_cancel text, dead_letter text, on_exhausted text)
INSERT INTO workflow_registry
  (workflow_name, runtime, description, on_cancel, dead_letter, on_exhausted, updated_at)
SELECT d.name, 'python', d.description, d.on_cancel, d.dead_letter, d.on_exhausted, :now FROM (SELECT json_extract(value, '$[0]') AS name, json_extract(value, '$[1]') AS description,
    json_extract(value, '$[2]') AS on_cancel, json_extract(value, '$[3]') AS dead_letter,
    json_extract(value, '$[4]') AS on_exhausted
  FROM json_each(:d)) AS d
WHERE true
ON CONFLICT (workflow_name) DO NOTHING

-- name: create_definition
-- file: workers.sql
-- parameters: :name text, :description text, :now instant
INSERT INTO workflow_registry (workflow_name, description, updated_at) VALUES (:name, :description, :now)
ON CONFLICT (workflow_name) DO NOTHING

-- name: enable_definition
-- file: workers.sql
-- parameters: :name text, :is_enabled boolean, :now instant
INSERT INTO workflow_registry (workflow_name, is_enabled, updated_at)
VALUES (:name, :is_enabled, :now)
ON CONFLICT (workflow_name) DO UPDATE SET is_enabled = excluded.is_enabled, updated_at = excluded.updated_at

-- name: get_definitions
-- file: workers.sql
-- parameters: :d(name text)
SELECT g.workflow_name, g.runtime, g.is_enabled, g.description, g.on_cancel, g.dead_letter, g.on_exhausted
FROM (SELECT json_extract(value, '$[0]') AS name FROM json_each(:d)) AS d JOIN workflow_registry g ON g.workflow_name = d.name

-- name: announce_worker
-- file: workers.sql
-- parameters: :id text, :name text, :host text, :pid integer, :spans json, :load json, :now instant
INSERT INTO workflow_worker (id, name, host, pid, spans, load, started_at, seen_at)
VALUES (:id, :name, :host, :pid, :spans, :load, :now, :now)
ON CONFLICT (id) DO UPDATE
SET seen_at = excluded.seen_at, spans = excluded.spans, load = excluded.load, stopped_at = NULL

-- name: retire_worker
-- file: workers.sql
-- parameters: :now instant, :id text
UPDATE workflow_worker SET stopped_at = :now, seen_at = :now WHERE id = :id

-- name: live_workers
-- file: workers.sql
-- parameters: :now instant, :silence bigint
SELECT w.id AS worker_id, w.name, w.host, w.pid, w.started_at, w.seen_at, w.spans AS spans_json
FROM workflow_worker w
WHERE w.stopped_at IS NULL AND w.seen_at > :now - (:silence)
ORDER BY w.started_at

-- name: forget_workers
-- file: workers.sql
-- parameters: :now instant, :silence bigint
DELETE FROM workflow_worker WHERE seen_at < :now - (:silence)

-- name: definition_names
-- file: workers.sql
-- parameters: :limit integer
SELECT g.workflow_name FROM workflow_registry g ORDER BY g.workflow_name LIMIT :limit
