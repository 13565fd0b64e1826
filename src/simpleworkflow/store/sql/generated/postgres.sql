-- Every statement exactly as it is sent to PostgreSQL. Generated from store/sql/queries by tools/expand_sql.py; do not
-- edit, run `make gen`. A batch is sent as one array per column; one row alone is sent as plain values.

-- name: wal_position
-- file: benchmark.postgres.sql
SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint AS bytes

-- name: drop_schema
-- file: benchmark.postgres.sql
DROP SCHEMA IF EXISTS workflow CASCADE

-- name: worker_states
-- file: board.sql
-- parameters: $1 silence bigint
SELECT w.id AS worker_id, w.name, w.host, w.pid, w.started_at, w.seen_at, w.spans AS spans_json, w.stopped_at,
       (SELECT count(*) FROM workflow.workflow_run r WHERE r.status = 'leased' AND r.leased_by = w.id) AS runs,
       CASE WHEN w.stopped_at IS NULL AND w.seen_at > now() - (($1::bigint) * interval '1 microsecond') THEN 1 ELSE 0 END AS alive
FROM workflow.workflow_worker w
ORDER BY w.started_at, w.id

-- name: children_of_run
-- file: board.sql
-- parameters: $1 run_id uuid, $2 after uuid, $3 limit integer
WITH child AS MATERIALIZED (SELECT c.id, c.created_at FROM workflow.workflow_run c WHERE c.parent_id = $1::uuid)
SELECT r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, CASE WHEN r.attempts_unset AND r.lease_epoch = 0 THEN NULL ELSE r.max_attempts END AS max_attempts, r.lease_until, r.leased_by,
  r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.idempotency_key, r.created_at,
  r.updated_at, r.started_at, r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.error AS error_json,
  r.result AS result_json, r.payload AS payload_json, r.traceparent FROM child JOIN workflow.workflow_run r ON r.id = child.id
WHERE ($2::uuid IS NULL OR (child.created_at, child.id) > (SELECT a.created_at, a.id FROM child a WHERE a.id = $2::uuid))
ORDER BY child.created_at, child.id LIMIT $3::integer

-- name: steps_of_run
-- file: board.sql
-- parameters: $1 run_id uuid
SELECT s.run_id, s.step_id, s.kind, s.status, s.attempt, s.due_at, s.started_at, s.completed_at,
       s.input AS input_json, s.output AS output_json, s.error AS error_json
FROM workflow.workflow_step s
WHERE s.run_id = $1::uuid
ORDER BY s.seq, s.step_id

-- name: feed_window
-- file: board.sql
-- parameters: $1 after bigint, $2 limit integer
SELECT coalesce(max(e.id), 0) AS last_id, count(*) AS events
FROM (SELECT x.id FROM workflow.workflow_event x WHERE x.id > $1::bigint ORDER BY x.id LIMIT $2::integer) AS e

-- name: feed
-- file: board.sql
-- parameters: $1 after bigint, $2 upto bigint, $3 since timestamptz, $4 any_event integer, $5 t(event text),
--   $6 low text, $7 high text
SELECT e.id, e.workflow_id, e.event_type, e.lease_epoch, e.data AS data_json, e.created_at, r.type AS run_type
FROM workflow.workflow_event e LEFT JOIN workflow.workflow_run r ON r.id = e.workflow_id
WHERE e.id > $1::bigint AND e.id <= $2::bigint AND e.created_at >= $3::timestamptz
  AND ($4::integer = 1 OR e.event_type IN (SELECT t.event FROM unnest($5::text[]) AS t(event)))
  AND ($6::text IS NULL OR (r.type >= $6::text AND r.type < $7::text))
ORDER BY e.id

-- name: newest_event
-- file: board.sql
SELECT coalesce(max(e.id), 0) AS last_id FROM workflow.workflow_event e

-- name: activity
-- file: board.sql
-- parameters: $1 after bigint, $2 limit integer
SELECT e.event_type, count(*) AS events, max(e.id) AS last_id
FROM (SELECT x.id, x.event_type FROM workflow.workflow_event x WHERE x.id > $1::bigint ORDER BY x.id LIMIT $2::integer) AS e
GROUP BY e.event_type

-- name: events_of_run
-- file: events.sql
-- parameters: $1 run_id uuid, $2 after bigint, $3 limit integer
SELECT e.id, e.workflow_id, e.event_type, e.lease_epoch, e.data AS data_json, e.created_at
FROM workflow.workflow_event e
WHERE e.workflow_id = $1::uuid AND e.id > $2::bigint
ORDER BY e.id LIMIT $3::integer

-- name: first_event_since
-- file: events.sql
-- parameters: $1 floor timestamptz
WITH RECURSIVE search(low, high) AS (
  SELECT coalesce(min(e.id), 0), coalesce(max(e.id), 0) + 1 FROM workflow.workflow_event e
  UNION ALL
  SELECT CASE WHEN (SELECT e.created_at FROM workflow.workflow_event e WHERE e.id >= (s.low + s.high) / 2 ORDER BY e.id LIMIT 1) < $1::timestamptz THEN (s.low + s.high) / 2 + 1 ELSE s.low END,
         CASE WHEN (SELECT e.created_at FROM workflow.workflow_event e WHERE e.id >= (s.low + s.high) / 2 ORDER BY e.id LIMIT 1) < $1::timestamptz THEN s.high ELSE (s.low + s.high) / 2 END
  FROM search s WHERE s.low < s.high
)
SELECT max(low) AS id FROM search

-- name: events_since
-- file: events.sql
-- parameters: $1 since timestamptz, $2 after bigint, $3 limit integer
SELECT e.id, e.workflow_id, e.event_type, e.lease_epoch, e.data AS data_json, e.created_at
FROM workflow.workflow_event e
WHERE e.created_at >= $1::timestamptz AND e.id > $2::bigint
ORDER BY e.id LIMIT $3::integer

-- name: explain_runs
-- file: explain.sql
-- parameters: $1 most integer, $2 b(run_id uuid)
SELECT r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, CASE WHEN r.attempts_unset AND r.lease_epoch = 0 THEN NULL ELSE r.max_attempts END AS max_attempts, r.lease_until, r.leased_by,
  r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.created_at, r.started_at,
  r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.idempotency_key, now() AS judged_at,
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
     AND (s.status = 'retrying' OR s.error IS NULL) AND (r.status = 'paused' OR (r.status = 'leased' AND s.lease_epoch = r.lease_epoch
       AND (s.due_at IS NULL OR s.due_at > now())))) AS open_waits,
  CASE WHEN r.status = 'paused' THEN
    (SELECT e.data FROM workflow.workflow_event e
     WHERE e.workflow_id = r.id AND e.event_type = 'paused' AND e.lease_epoch = r.lease_epoch
     ORDER BY e.id DESC LIMIT 1) END AS awaited_json,
  CASE WHEN r.status IN ('pending', 'paused') AND r.run_at <= now() AND r.held_at IS NULL THEN
    CASE WHEN r.crashes = 0 THEN
      (SELECT count(*) FROM (SELECT 1 FROM workflow.workflow_run o WHERE o.type = r.type AND o.priority = r.priority AND o.run_at <= now() AND (o.run_at, o.id) < (r.run_at, r.id)
        AND o.status IN ('pending', 'paused') AND o.run_at IS NOT NULL AND o.held_at IS NULL
        AND (o.deadline_at IS NULL OR o.deadline_at > now()) AND (o.start_by IS NULL OR o.start_by > now() OR o.started_at IS NOT NULL) AND o.crashes = 0 LIMIT $1::integer) AS ahead)
    ELSE
      (SELECT count(*) FROM (SELECT 1 FROM workflow.workflow_run o WHERE o.type = r.type AND o.priority = r.priority AND o.run_at <= now() AND (o.run_at, o.id) < (r.run_at, r.id)
        AND o.status IN ('pending', 'paused') AND o.run_at IS NOT NULL AND o.held_at IS NULL
        AND (o.deadline_at IS NULL OR o.deadline_at > now()) AND (o.start_by IS NULL OR o.start_by > now() OR o.started_at IS NOT NULL) AND o.crashes > 0
         AND (o.crashes > 1) = (r.crashes > 1) LIMIT $1::integer) AS ahead)
    END
  ELSE 0 END AS before
FROM unnest($2::uuid[]) AS b(run_id) JOIN workflow.workflow_run r ON r.id = b.run_id

-- name: explain_waits
-- file: explain.sql
-- parameters: $1 to $2 b(run_id uuid, epoch bigint), $3 most integer
SELECT x.run_id, x.step_id, x.kind, x.status, x.attempt, x.due_at, x.started_at, x.error AS error_json
FROM unnest($1::uuid[], $2::bigint[]) AS b(run_id, epoch) JOIN workflow.workflow_step x ON x.run_id = b.run_id
WHERE x.step_id IN (
  SELECT s.step_id FROM workflow.workflow_step s WHERE s.run_id = b.run_id AND s.completed_at IS NULL
    AND (s.status = 'retrying' OR s.error IS NULL) AND (b.epoch IS NULL OR (s.lease_epoch = b.epoch AND (s.due_at IS NULL OR s.due_at > now())))
  ORDER BY s.seq, s.step_id LIMIT $3::integer)
ORDER BY x.run_id, x.seq, x.step_id

-- name: explain_awaited
-- file: explain.sql
-- parameters: $1 to $2 b(run_id uuid, step_id text)
SELECT s.run_id, s.step_id, s.kind, s.status, s.attempt, s.due_at, s.started_at, s.error AS error_json
FROM unnest($1::uuid[], $2::text[]) AS b(run_id, step_id) JOIN workflow.workflow_step s ON s.run_id = b.run_id AND s.step_id = b.step_id
WHERE s.completed_at IS NULL
ORDER BY s.run_id, s.seq, s.step_id

-- name: explain_last_steps
-- file: explain.sql
-- parameters: $1 b(run_id uuid)
SELECT s.run_id, s.step_id, s.kind, s.status, s.attempt, s.started_at, s.completed_at
FROM unnest($1::uuid[]) AS b(run_id) JOIN workflow.workflow_step s ON s.run_id = b.run_id AND s.step_id = (
  SELECT x.step_id FROM workflow.workflow_step x
  WHERE x.run_id = b.run_id AND x.completed_at IS NOT NULL AND x.status <> 'superseded'
  ORDER BY coalesce(x.done_seq, x.seq) DESC, x.completed_at DESC, x.step_id DESC LIMIT 1)

-- name: explain_signals
-- file: explain.sql
-- parameters: $1 b(run_id uuid)
SELECT s.run_id, s.name, count(*) AS signals
FROM unnest($1::uuid[]) AS b(run_id) JOIN workflow.workflow_signal s ON s.run_id = b.run_id
WHERE s.consumed_at IS NULL GROUP BY s.run_id, s.name ORDER BY s.run_id, s.name

-- name: explain_children
-- file: explain.sql
-- parameters: $1 b(run_id uuid), $2 most integer
SELECT c.parent_id, c.id FROM unnest($1::uuid[]) AS b(run_id) JOIN workflow.workflow_run c ON c.parent_id = b.run_id
WHERE c.finished_at IS NULL AND c.id IN (
  SELECT x.id FROM workflow.workflow_run x WHERE x.parent_id = b.run_id AND x.finished_at IS NULL
  ORDER BY x.id LIMIT $2::integer)
ORDER BY c.parent_id, c.id

-- name: explain_workers
-- file: explain.sql
-- parameters: $1 silence bigint, $2 w(worker text)
SELECT k.id AS worker_id, k.name, k.host, k.pid, k.started_at, k.seen_at, k.spans AS spans_json, k.stopped_at, k.load AS load_json,
  CASE WHEN k.stopped_at IS NULL AND k.seen_at > now() - (($1::bigint) * interval '1 microsecond') THEN 1 ELSE 0 END AS is_alive
FROM workflow.workflow_worker k
WHERE (k.stopped_at IS NULL AND k.seen_at > now() - (($1::bigint) * interval '1 microsecond')) OR k.id IN (SELECT w.worker FROM unnest($2::text[]) AS w(worker))
ORDER BY k.started_at, k.id

-- name: count_due
-- file: explain.sql
-- parameters: $1 most integer, $2 to $3 lane(type text, priority integer)
SELECT lane.type, lane.priority, (SELECT count(*) FROM (
    SELECT 1 FROM workflow.workflow_run o
    WHERE o.status IN ('pending', 'paused') AND o.run_at <= now() AND o.held_at IS NULL AND o.crashes = 0
      AND o.type = lane.type AND o.priority = lane.priority
      AND (o.deadline_at IS NULL OR o.deadline_at > now())
      AND (o.start_by IS NULL OR o.start_by > now() OR o.started_at IS NOT NULL)
    LIMIT $1::integer) AS ahead) AS due
FROM unnest($2::text[], $3::integer[]) AS lane(type, priority)

-- name: runs_between
-- file: explain.sql
-- parameters: $1 low uuid, $2 high uuid, $3 limit integer
SELECT r.id, r.type, r.status, r.created_at FROM workflow.workflow_run r
WHERE r.id >= $1::uuid AND r.id <= $2::uuid ORDER BY r.id LIMIT $3::integer

-- name: durability
-- file: health.postgres.sql
SELECT CASE s.name WHEN 'server_version' THEN 'PostgreSQL' ELSE s.name END AS name, s.setting,
  CASE s.source
    WHEN 'command line' THEN 'start the server without -c ' || s.name || '=' || s.setting
    WHEN 'client' THEN 'take ' || s.name || ' out of the connection URL (options=)'
    WHEN 'session' THEN 'take ' || s.name || ' out of the connection URL (options=)'
    WHEN 'database' THEN format('ALTER DATABASE %I RESET %I', current_database(), s.name)
    WHEN 'user' THEN format('ALTER ROLE %I RESET %I', current_user, s.name)
    WHEN 'database user' THEN format('ALTER ROLE %I IN DATABASE %I RESET %I', current_user, current_database(), s.name)
    ELSE format('ALTER SYSTEM SET %I = on', s.name) || ', then reload the server: pg_ctl reload' END AS cure
FROM pg_catalog.pg_settings s
WHERE s.name IN ('server_version', 'fsync', 'synchronous_commit', 'full_page_writes')
ORDER BY s.name <> 'server_version', s.name

-- name: structure
-- file: health.postgres.sql
SELECT CASE c.relkind WHEN 'i' THEN 'index' WHEN 'v' THEN 'view' ELSE 'table' END AS kind, c.relname::text AS name,
       coalesce(t.relname, c.relname)::text AS on_table,
       CASE WHEN NOT coalesce(i.indisvalid AND i.indisready, true) THEN 'invalid' ELSE 'well' END AS state
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid
LEFT JOIN pg_catalog.pg_class t ON t.oid = i.indrelid
WHERE n.nspname = 'workflow' AND c.relkind IN ('r', 'p', 'v', 'i')
UNION ALL
SELECT 'trigger', g.tgname::text, c.relname::text, CASE WHEN g.tgenabled IN ('O', 'A') THEN 'well' ELSE 'disabled' END
FROM pg_catalog.pg_trigger g
JOIN pg_catalog.pg_class c ON c.oid = g.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'workflow' AND NOT g.tgisinternal
UNION ALL
SELECT 'function', p.proname::text, p.proname::text, 'well'
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'workflow'
ORDER BY 1, 2

-- name: lacking_privileges
-- file: health.postgres.sql
-- parameters: $1 to $3 wanted(kind text, name text, privilege text)
SELECT current_user::text AS role, 'schema ' || n.nspname AS what, 'USAGE' AS privileges,
       format('GRANT USAGE ON SCHEMA %I TO %I', n.nspname, current_user) AS cure
FROM pg_catalog.pg_namespace n
WHERE n.nspname = 'workflow' AND NOT has_schema_privilege(n.oid, 'USAGE')
UNION ALL
SELECT current_user::text, string_agg(x.name, ', ' ORDER BY x.name), x.privileges,
       format('GRANT %s ON %s %s TO %I', x.privileges, x.kind,
              string_agg(format('%I.%I', x.nspname, x.name), ', ' ORDER BY x.name), current_user)
FROM (SELECT wanted.kind, wanted.name, n.nspname,
             string_agg(wanted.privilege, ', ' ORDER BY array_position(
               ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'], wanted.privilege)) AS privileges
      FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted(kind, name, privilege)
      JOIN pg_catalog.pg_class c ON c.relname = wanted.name
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = 'workflow'
        AND NOT CASE wanted.kind WHEN 'SEQUENCE' THEN has_sequence_privilege(c.oid, wanted.privilege)
                                 ELSE has_table_privilege(c.oid, wanted.privilege) END
      GROUP BY wanted.kind, wanted.name, n.nspname) x
GROUP BY x.kind, x.privileges

-- name: server_facts
-- file: health.postgres.sql
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::integer AS version_number,
       d.datname::text AS database, current_user::text AS role, pg_is_in_recovery() AS is_standby,
       current_setting('default_transaction_read_only') = 'on' AS is_read_only,
       current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on' AS vacuums,
       age(d.datfrozenxid)::bigint AS xids, mxid_age(d.datminmxid)::bigint AS multixacts,
       (SELECT count(*) FROM pg_catalog.pg_stat_replication p
        WHERE current_setting('synchronous_standby_names') = '' AND NOT EXISTS (
          SELECT FROM pg_catalog.pg_replication_slots l WHERE l.active_pid = p.pid AND l.slot_type = 'logical')) AS lagging
FROM pg_catalog.pg_database d WHERE d.datname = current_database()

-- name: server_clock
-- file: health.postgres.sql
SELECT clock_timestamp() AS happened_at

-- name: connection_use
-- file: health.postgres.sql
SELECT 'server' AS scope, (SELECT sum(d.numbackends) FROM pg_catalog.pg_stat_database d)::bigint AS used,
       current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
         - coalesce(current_setting('reserved_connections', true)::bigint, 0) AS allowed
UNION ALL
SELECT 'database', (SELECT d.numbackends FROM pg_catalog.pg_stat_database d WHERE d.datid = b.oid)::bigint, b.datconnlimit
FROM pg_catalog.pg_database b WHERE b.datname = current_database() AND b.datconnlimit >= 0
UNION ALL
SELECT 'role', (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE a.usename = r.rolname), r.rolconnlimit
FROM pg_catalog.pg_roles r WHERE r.rolname = current_user AND r.rolconnlimit >= 0

-- name: table_health
-- file: health.postgres.sql
SELECT c.relname::text AS name, greatest(c.reltuples, 0)::bigint AS estimated,
       (greatest(c.reltuples, 0) * (1 - f.null_frac))::bigint AS finished,
       coalesce(s.n_live_tup, 0) AS live, coalesce(s.n_dead_tup, 0) AS dead,
       extract(epoch FROM now() - greatest(s.last_autovacuum, s.last_vacuum))::float8 AS vacuumed_ago,
       (coalesce(o.threshold, current_setting('autovacuum_vacuum_threshold')::float8)
         + coalesce(o.scale, current_setting('autovacuum_vacuum_scale_factor')::float8)
         * greatest(c.reltuples, s.n_live_tup, 0))::bigint AS dead_allowed,
       coalesce(o.enabled, true) AS vacuums, pg_total_relation_size(c.oid) AS bytes,
       format('ALTER TABLE %I.%I RESET (autovacuum_enabled)', n.nspname, c.relname) AS cure,
       format('VACUUM (ANALYZE) %I.%I', n.nspname, c.relname) AS vacuum
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = c.oid
LEFT JOIN pg_catalog.pg_stats f ON f.schemaname = n.nspname AND f.tablename = c.relname AND f.attname = 'finished_at'
CROSS JOIN LATERAL (
  SELECT max(p.option_value) FILTER (WHERE p.option_name = 'autovacuum_vacuum_threshold')::float8 AS threshold,
         max(p.option_value) FILTER (WHERE p.option_name = 'autovacuum_vacuum_scale_factor')::float8 AS scale,
         bool_and(p.option_value::boolean) FILTER (WHERE p.option_name = 'autovacuum_enabled') AS enabled
  FROM pg_options_to_table(c.reloptions) p) o
WHERE n.nspname = 'workflow' AND c.relkind = 'r'
ORDER BY c.relname

-- name: vacuum_blockers
-- file: health.postgres.sql
-- parameters: $1 older bigint
SELECT CASE WHEN a.state LIKE 'idle in transaction%' THEN 'idle in transaction' ELSE 'long transaction' END AS kind,
       a.pid, coalesce(nullif(a.application_name, ''), 'a session without a name') || ' of ' || a.usename AS who,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds,
       coalesce(age(a.backend_xmin), age(a.backend_xid), 0)::bigint AS xids, 0::bigint AS bytes,
       format('SELECT pg_terminate_backend(%s)', a.pid) AS cure
FROM pg_catalog.pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
  AND a.xact_start < clock_timestamp() - (($1::bigint) * interval '1 microsecond') AND a.backend_type = 'client backend'
UNION ALL
SELECT 'prepared transaction', NULL, p.gid || ' of ' || p.owner, extract(epoch FROM clock_timestamp() - p.prepared)::float8,
       age(p.transaction)::bigint, 0, format('ROLLBACK PREPARED %L', p.gid)
FROM pg_catalog.pg_prepared_xacts p
WHERE p.database = current_database() AND p.prepared < clock_timestamp() - (($1::bigint) * interval '1 microsecond')
UNION ALL
SELECT 'replication slot', NULL, l.slot_name::text, NULL, coalesce(age(l.xmin), age(l.catalog_xmin), 0)::bigint,
       coalesce(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END,
                                l.restart_lsn), 0)::bigint,
       format('SELECT pg_drop_replication_slot(%L)', l.slot_name)
FROM pg_catalog.pg_replication_slots l WHERE NOT l.active
UNION ALL
SELECT 'hidden', NULL, current_user::text, NULL, count(*), 0, format('GRANT pg_monitor TO %I', current_user)
FROM pg_catalog.pg_stat_activity a
WHERE a.datname = current_database() AND a.query = '<insufficient privilege>' HAVING count(*) > 0
ORDER BY 4 DESC NULLS LAST
LIMIT 100

-- name: file_facts
-- file: health.postgres.sql
-- nothing is sent: another statement does this here

-- name: rows_ever
-- file: health.postgres.sql
-- nothing is sent: another statement does this here

-- name: due_lanes
-- file: health.sql
-- parameters: $1 limit integer, $2 to $3 lane(type text, priority integer)
SELECT lane.type, lane.priority,
  (SELECT count(*) FROM (
     SELECT 1 AS one FROM workflow.workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
       AND r.type = lane.type AND r.priority = lane.priority AND r.run_at <= now()
     ORDER BY r.run_at, r.id LIMIT $1::integer) AS c) AS due,
  (SELECT r.id FROM workflow.workflow_run r
   WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
     AND r.type = lane.type AND r.priority = lane.priority AND r.run_at <= now()
   ORDER BY r.run_at, r.id LIMIT 1) AS run_id
FROM unnest($2::text[], $3::integer[]) AS lane(type, priority)

-- name: due_suspect_lanes
-- file: health.sql
-- parameters: $1 limit integer, $2 to $3 lane(type text, priority integer)
SELECT lane.type, lane.priority,
  (SELECT count(*) FROM (
     SELECT 1 AS one FROM workflow.workflow_run r
     WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
       AND r.type = lane.type AND r.priority = lane.priority AND r.run_at <= now()
     ORDER BY r.run_at, r.id LIMIT $1::integer) AS c) AS due,
  (SELECT r.id FROM workflow.workflow_run r
   WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
     AND r.type = lane.type AND r.priority = lane.priority AND r.run_at <= now()
   ORDER BY r.run_at, r.id LIMIT 1) AS run_id
FROM unnest($2::text[], $3::integer[]) AS lane(type, priority)

-- name: crashed_runs
-- file: health.sql
-- parameters: $1 limit integer
SELECT c.type, count(*) AS runs
FROM (SELECT r.type FROM workflow.workflow_run r
      WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
      ORDER BY r.type, r.priority, r.run_at LIMIT $1::integer) AS c
GROUP BY c.type ORDER BY c.type

-- name: expired_leases
-- file: health.sql
-- parameters: $1 grace bigint, $2 limit integer
SELECT c.leased_by, count(*) AS runs, min(c.lease_until) AS lease_until, now() AS judged_at
FROM (SELECT r.leased_by, r.lease_until FROM workflow.workflow_run r
      WHERE r.status = 'leased' AND r.lease_until < now() - (($1::bigint) * interval '1 microsecond')
      ORDER BY r.leased_by, r.id LIMIT $2::integer) AS c
GROUP BY c.leased_by ORDER BY c.leased_by

-- name: missed_deadlines
-- file: health.sql
-- parameters: $1 grace bigint, $2 limit integer
SELECT 'deadline' AS kind, count(*) AS runs, min(c.due_at) AS due_at, now() AS judged_at
FROM (SELECT r.deadline_at AS due_at FROM workflow.workflow_run r
      WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.deadline_at < now() - (($1::bigint) * interval '1 microsecond')
      ORDER BY r.deadline_at LIMIT $2::integer) AS c
UNION ALL
SELECT 'start', count(*), min(c.due_at), now()
FROM (SELECT r.start_by AS due_at FROM workflow.workflow_run r
      WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.start_by < now() - (($1::bigint) * interval '1 microsecond')
      ORDER BY r.start_by LIMIT $2::integer) AS c

-- name: held_runs
-- file: health.sql
-- parameters: $1 limit integer
SELECT count(*) AS looked, sum(CASE WHEN c.held_at IS NOT NULL AND c.finished_at IS NULL THEN 1 ELSE 0 END) AS runs,
       sum(CASE WHEN c.held_at IS NOT NULL AND c.finished_at IS NULL AND c.hold_reason = c.last_error THEN 1 ELSE 0 END)
         AS misfits,
       min(CASE WHEN c.finished_at IS NULL THEN c.held_at END) AS held_at, now() AS judged_at
FROM (SELECT r.held_at, r.finished_at, r.hold_reason, r.last_error FROM workflow.workflow_run r
      ORDER BY r.id DESC LIMIT $1::integer) AS c

-- name: silent_workers
-- file: health.sql
-- parameters: $1 silence bigint, $2 limit integer
SELECT w.id AS worker_id, w.name, w.host, w.pid, w.seen_at, now() AS judged_at FROM workflow.workflow_worker w
WHERE w.stopped_at IS NULL AND w.seen_at <= now() - (($1::bigint) * interval '1 microsecond')
ORDER BY w.seen_at DESC LIMIT $2::integer

-- name: count_queue
-- file: metrics.sql
-- parameters: $1 t(type text), $2 late bigint, $3 most integer
SELECT q.type, q.status, count(*) AS runs, sum(q.is_late) AS late
FROM unnest($1::text[]) AS t(type) CROSS JOIN LATERAL (
  SELECT r.type, r.status, CASE WHEN r.run_at <= now() - (($2::bigint) * interval '1 microsecond') THEN 1 ELSE 0 END AS is_late
  FROM workflow.workflow_run r
  WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
    AND r.type = t.type
  ORDER BY r.priority, r.run_at LIMIT $3::integer) AS q
GROUP BY q.type, q.status

-- name: count_suspects
-- file: metrics.sql
-- parameters: $1 t(type text), $2 late bigint, $3 most integer
SELECT q.type, q.status, count(*) AS runs, sum(q.is_late) AS late
FROM unnest($1::text[]) AS t(type) CROSS JOIN LATERAL (
  SELECT r.type, r.status, CASE WHEN r.run_at <= now() - (($2::bigint) * interval '1 microsecond') THEN 1 ELSE 0 END AS is_late
  FROM workflow.workflow_run r
  WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
    AND r.type = t.type
  ORDER BY r.priority, r.run_at LIMIT $3::integer) AS q
GROUP BY q.type, q.status

-- name: count_leased
-- file: metrics.sql
-- parameters: $1 most integer
SELECT q.type, count(*) AS runs
FROM (SELECT r.type FROM workflow.workflow_run r WHERE r.status = 'leased' ORDER BY r.leased_by LIMIT $1::integer) AS q
GROUP BY q.type

-- name: count_overdue
-- file: metrics.sql
-- parameters: $1 most integer
SELECT (SELECT count(*) FROM (
    SELECT r.id FROM workflow.workflow_run r
    WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.deadline_at <= now() LIMIT $1::integer) AS d)
  + (SELECT count(*) FROM (
    SELECT r.id FROM workflow.workflow_run r
    WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.start_by <= now()
    LIMIT $1::integer) AS s) AS runs

-- name: types_of_runs
-- file: metrics.sql
-- parameters: $1 b(run_id uuid)
SELECT r.type, r.status, count(*) AS runs
FROM unnest($1::uuid[]) AS b(run_id) JOIN workflow.workflow_run r ON r.id = b.run_id
GROUP BY r.type, r.status

-- name: table_sizes
-- file: metrics.postgres.sql
SELECT c.relname::text AS name, pg_total_relation_size(c.oid) AS bytes, NULL::bigint AS free,
       coalesce(nullif(pg_stat_get_live_tuples(c.oid), 0), greatest(c.reltuples, 0))::bigint AS live
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'workflow'
  AND c.relname IN ('workflow_run', 'workflow_step', 'workflow_event', 'workflow_signal', 'outbox_event')

-- name: lock_schema
-- file: migrations.postgres.sql
SELECT pg_advisory_xact_lock(hashtextextended('simpleworkflow.workflow', 0))

-- name: create_schema
-- file: migrations.postgres.sql
CREATE SCHEMA IF NOT EXISTS workflow

-- name: create_migrations
-- file: migrations.sql
CREATE TABLE IF NOT EXISTS workflow.schema_migrations (
  version    text PRIMARY KEY NOT NULL,
  checksum   text NOT NULL,
  applied_at text NOT NULL)

-- name: applied_migrations
-- file: migrations.sql
SELECT m.version, m.checksum, m.applied_at AS applied FROM workflow.schema_migrations m ORDER BY m.version

-- name: record_migration
-- file: migrations.postgres.sql
-- parameters: $1 version text, $2 checksum text
INSERT INTO workflow.schema_migrations (version, checksum, applied_at)
VALUES ($1::text, $2::text, to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"'))

-- name: forget_migration
-- file: migrations.sql
-- parameters: $1 version text
DELETE FROM workflow.schema_migrations WHERE version = $1::text

-- name: outbox_waiting
-- file: outbox.postgres.sql
-- parameters: $1 l(lane text), $2 limit integer
SELECT x.* FROM unnest($1::text[]) AS l(lane) CROSS JOIN LATERAL (
  SELECT o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.created_at, o.attempt, o.payload AS payload_json, r.type AS workflow_type, r.traceparent, l.lane, EXISTS (SELECT 1 FROM workflow.outbox_event s
            WHERE s.aggregate_id = o.aggregate_id AND s.sequence < o.sequence
              AND s.status IN ('retrying', 'dead') AND s.published_at IS NULL) AS is_behind
  FROM workflow.outbox_event o LEFT JOIN workflow.workflow_run r ON r.id = o.aggregate_id
  WHERE substr(CAST(o.aggregate_id AS text), 36, 1) = l.lane AND o.status = 'waiting' AND o.published_at IS NULL
  ORDER BY o.id LIMIT $2::integer) AS x

-- name: outbox_retrying
-- file: outbox.postgres.sql
-- parameters: $1 l(lane text), $2 limit integer
SELECT x.* FROM unnest($1::text[]) AS l(lane) CROSS JOIN LATERAL (
  SELECT o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.created_at, o.attempt, o.payload AS payload_json, r.type AS workflow_type, r.traceparent, l.lane, EXISTS (SELECT 1 FROM workflow.outbox_event s
            WHERE s.aggregate_id = o.aggregate_id AND s.sequence < o.sequence
              AND s.status IN ('retrying', 'dead') AND s.published_at IS NULL) AS is_behind
  FROM workflow.outbox_event o LEFT JOIN workflow.workflow_run r ON r.id = o.aggregate_id
  WHERE substr(CAST(o.aggregate_id AS text), 36, 1) = l.lane AND o.status = 'retrying' AND o.published_at IS NULL AND o.due_at <= now()
  ORDER BY o.due_at LIMIT $2::integer) AS x

-- name: lock_lanes
-- file: outbox.postgres.sql
-- parameters: $1 to $2 l(lane text, epoch bigint), $3 owner text
SELECT n.lane FROM unnest($1::text[], $2::bigint[]) AS l(lane, epoch) JOIN workflow.outbox_lane n ON n.lane = l.lane AND n.epoch = l.epoch AND n.owner = $3::text
ORDER BY n.lane
FOR NO KEY UPDATE OF n

-- name: lock_lanes_of
-- file: outbox.postgres.sql
-- parameters: $1 r(lane text)
SELECT n.lane FROM unnest($1::text[]) AS r(lane) JOIN workflow.outbox_lane n ON n.lane = r.lane ORDER BY n.lane FOR NO KEY UPDATE OF n

-- name: mark_published
-- file: outbox.sql
-- parameters: $1 b(id bigint)
UPDATE workflow.outbox_event AS o
SET published_at = now(), status = 'published', due_at = NULL, last_error = NULL
FROM unnest($1::bigint[]) AS b(id) WHERE o.id = b.id AND o.published_at IS NULL

-- name: mark_refused
-- file: outbox.sql
-- parameters: $1 to $5 b(id bigint, status text, attempt integer, delay bigint, reason text)
UPDATE workflow.outbox_event AS o
SET attempt = b.attempt, status = b.status, last_error = b.reason, due_at = now() + ((b.delay) * interval '1 microsecond')
FROM unnest($1::bigint[], $2::text[], $3::integer[], $4::bigint[], $5::text[]) AS b(id, status, attempt, delay, reason) WHERE o.id = b.id AND o.published_at IS NULL AND o.status IN ('waiting', 'retrying')

-- name: mark_behind
-- file: outbox.sql
-- parameters: $1 b(id bigint)
UPDATE workflow.outbox_event AS o
SET status = 'behind', due_at = NULL
FROM unnest($1::bigint[]) AS b(id) WHERE o.id = b.id AND o.status IN ('waiting', 'retrying') AND o.published_at IS NULL
  AND EXISTS (SELECT 1 FROM workflow.outbox_event s
            WHERE s.aggregate_id = o.aggregate_id AND s.sequence < o.sequence
              AND s.status IN ('retrying', 'dead') AND s.published_at IS NULL)

-- name: release_behind
-- file: outbox.sql
-- parameters: $1 b(run_id uuid)
UPDATE workflow.outbox_event AS o
SET status = 'waiting'
FROM unnest($1::uuid[]) AS b(run_id) WHERE o.aggregate_id = b.run_id AND o.status = 'behind' AND o.published_at IS NULL

-- name: outbox_lanes
-- file: outbox.sql
SELECT n.lane, n.owner, n.epoch, n.lease_until,
       CASE WHEN n.lease_until > now() THEN 1 ELSE 0 END AS is_held
FROM workflow.outbox_lane n ORDER BY n.lane

-- name: renew_lanes
-- file: outbox.postgres.sql
-- parameters: $1 lease bigint, $2 owner text
UPDATE workflow.outbox_lane AS n SET lease_until = now() + (($1::bigint) * interval '1 microsecond')
WHERE n.lane IN (SELECT f.lane FROM workflow.outbox_lane f WHERE f.owner = $2::text ORDER BY f.lane FOR NO KEY UPDATE) RETURNING lane, epoch

-- name: take_lanes
-- file: outbox.postgres.sql
-- parameters: $1 owner text, $2 lease bigint, $3 w(owner text), $4 limit integer
UPDATE workflow.outbox_lane AS n SET owner = $1::text, epoch = n.epoch + 1, lease_until = now() + (($2::bigint) * interval '1 microsecond')
WHERE n.lane IN (
  SELECT f.lane FROM workflow.outbox_lane f
  WHERE f.owner IS NULL OR (f.owner <> $1::text AND (f.lease_until <= now() OR f.owner IN (SELECT w.owner FROM unnest($3::text[]) AS w(owner))))
  ORDER BY f.lane LIMIT $4::integer FOR NO KEY UPDATE SKIP LOCKED)
RETURNING lane, epoch

-- name: release_lanes
-- file: outbox.sql
-- parameters: $1 to $2 l(given_up text, held_with bigint)
UPDATE workflow.outbox_lane AS n SET owner = NULL, lease_until = NULL, epoch = n.epoch + 1
FROM unnest($1::text[], $2::bigint[]) AS l(given_up, held_with) WHERE n.lane = l.given_up AND n.epoch = l.held_with RETURNING lane

-- name: release_lanes_of
-- file: outbox.postgres.sql
-- parameters: $1 owner text
UPDATE workflow.outbox_lane AS n SET owner = NULL, lease_until = NULL, epoch = n.epoch + 1
WHERE n.lane IN (SELECT f.lane FROM workflow.outbox_lane f WHERE f.owner = $1::text ORDER BY f.lane FOR NO KEY UPDATE)

-- name: announce_dispatcher
-- file: outbox.sql
-- parameters: $1 id text
INSERT INTO workflow.outbox_dispatcher (id, seen_at) VALUES ($1::text, now())
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at

-- name: live_dispatchers
-- file: outbox.sql
-- parameters: $1 silence bigint
SELECT d.id AS dispatcher, d.seen_at FROM workflow.outbox_dispatcher d
WHERE d.seen_at > now() - (($1::bigint) * interval '1 microsecond') ORDER BY d.id

-- name: forget_dispatchers
-- file: outbox.postgres.sql
-- parameters: $1 silence bigint, $2 d(id text)
DELETE FROM workflow.outbox_dispatcher AS x
WHERE x.id IN (
  SELECT y.id FROM workflow.outbox_dispatcher y
  WHERE y.seen_at <= now() - (($1::bigint) * interval '1 microsecond') OR y.id IN (SELECT d.id FROM unnest($2::text[]) AS d(id))
  FOR UPDATE SKIP LOCKED)

-- name: add_outbox_rules
-- file: outbox.sql
-- parameters: $1 to $3 u(event_type text, low text, high text)
INSERT INTO workflow.outbox_rule (event_type, low, high, created_at)
SELECT u.event_type, u.low, u.high, now() FROM unnest($1::text[], $2::text[], $3::text[]) AS u(event_type, low, high)
WHERE true
ON CONFLICT DO NOTHING
RETURNING event_type, low, high

-- name: delete_outbox_rules
-- file: outbox.sql
-- parameters: $1 to $3 u(event_type text, low text, high text)
DELETE FROM workflow.outbox_rule AS x
WHERE EXISTS (SELECT 1 FROM unnest($1::text[], $2::text[], $3::text[]) AS u(event_type, low, high) WHERE u.event_type = x.event_type AND u.low = x.low AND u.high = x.high)
RETURNING event_type, low, high

-- name: outbox_rules
-- file: outbox.sql
SELECT u.event_type, u.low, u.high, u.created_at FROM workflow.outbox_rule u ORDER BY u.low, u.high, u.event_type

-- name: outbox_of_run
-- file: outbox.sql
-- parameters: $1 run_id uuid, $2 after bigint, $3 limit integer
SELECT o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.status, o.attempt, o.created_at, o.published_at,
       o.due_at, o.last_error, o.skipped_at, o.skipped_by, o.skip_reason
FROM workflow.outbox_event o WHERE o.aggregate_id = $1::uuid AND o.sequence > $2::bigint ORDER BY o.sequence LIMIT $3::integer

-- name: outbox_head
-- file: outbox.sql
-- parameters: $1 run_id uuid
SELECT o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.status, o.attempt, o.created_at, o.published_at,
       o.due_at, o.last_error, o.skipped_at, o.skipped_by, o.skip_reason
FROM workflow.outbox_event o WHERE o.aggregate_id = $1::uuid AND o.published_at IS NULL ORDER BY o.sequence LIMIT 1

-- name: skip_event
-- file: outbox.sql
-- parameters: $1 by text, $2 reason text, $3 run_id uuid, $4 sequence bigint
UPDATE workflow.outbox_event
SET status = 'skipped', published_at = now(), skipped_at = now(), skipped_by = $1::text, skip_reason = $2::text, due_at = NULL
WHERE aggregate_id = $3::uuid AND sequence = $4::bigint AND status IN ('dead', 'retrying') AND published_at IS NULL
RETURNING sequence

-- name: replay_run
-- file: outbox.sql
-- parameters: $1 run_id uuid, $2 from bigint
UPDATE workflow.outbox_event SET status = 'waiting', published_at = NULL, due_at = NULL, attempt = 0, last_error = NULL,
      skipped_at = NULL, skipped_by = NULL, skip_reason = NULL
WHERE aggregate_id = $1::uuid AND sequence >= $2::bigint AND status IN ('published', 'dead', 'skipped', 'retrying')
RETURNING id

-- name: replay_events
-- file: outbox.sql
-- parameters: $1 b(event_id bigint)
UPDATE workflow.outbox_event AS o SET status = 'waiting', published_at = NULL, due_at = NULL, attempt = 0, last_error = NULL,
      skipped_at = NULL, skipped_by = NULL, skip_reason = NULL
FROM unnest($1::bigint[]) AS b(event_id) WHERE o.id = b.event_id AND o.status IN ('published', 'dead')
RETURNING id

-- name: dead_events
-- file: outbox.sql
-- parameters: $1 after bigint, $2 limit integer
SELECT o.id, o.aggregate_id AS run_id, o.sequence, o.event_type, o.status, o.attempt, o.created_at, o.published_at,
       o.due_at, o.last_error, o.skipped_at, o.skipped_by, o.skip_reason, substr(CAST(o.aggregate_id AS text), 36, 1) AS lane
FROM workflow.outbox_event o
WHERE o.status = 'dead' AND o.published_at IS NULL AND o.id > $1::bigint ORDER BY o.id LIMIT $2::integer

-- name: last_dead_event
-- file: outbox.sql
SELECT o.id FROM workflow.outbox_event o
WHERE o.status = 'dead' AND o.published_at IS NULL ORDER BY o.id DESC LIMIT 1

-- name: store_time
-- file: outbox.sql
SELECT now() AS judged_at

-- name: published_events
-- file: outbox.sql
-- parameters: $1 since timestamptz, $2 until timestamptz, $3 limit integer
SELECT o.id, substr(CAST(o.aggregate_id AS text), 36, 1) AS lane
FROM workflow.outbox_event o
WHERE o.published_at >= $1::timestamptz AND o.published_at < $2::timestamptz AND o.status <> 'skipped'
ORDER BY o.published_at, o.id LIMIT $3::integer

-- name: outbox_counts
-- file: outbox.sql
-- parameters: $1 most integer
SELECT (SELECT count(*) FROM (SELECT 1 FROM workflow.outbox_event o
                              WHERE o.status = 'waiting' AND o.published_at IS NULL LIMIT $1::integer) AS x) AS waiting,
       (SELECT count(*) FROM (SELECT 1 FROM workflow.outbox_event o
                              WHERE o.status = 'retrying' AND o.published_at IS NULL LIMIT $1::integer) AS x) AS retrying,
       (SELECT count(*) FROM (SELECT 1 FROM workflow.outbox_event o
                              WHERE o.status = 'behind' AND o.published_at IS NULL LIMIT $1::integer) AS x) AS behind,
       (SELECT count(*) FROM (SELECT 1 FROM workflow.outbox_event o
                              WHERE o.status = 'dead' AND o.published_at IS NULL LIMIT $1::integer) AS x) AS dead

-- name: outbox_oldest
-- file: outbox.sql
-- parameters: $1 most integer
SELECT now() AS judged_at, min(x.created_at) AS created_at FROM (
  SELECT (SELECT o.created_at FROM workflow.outbox_event o
          WHERE substr(CAST(o.aggregate_id AS text), 36, 1) = (n.lane || '') AND o.status = 'waiting' AND o.published_at IS NULL ORDER BY o.id LIMIT 1) AS created_at
  FROM workflow.outbox_lane n
  UNION ALL
  SELECT r.created_at FROM (SELECT o.created_at FROM workflow.outbox_event o
                            WHERE o.status = 'retrying' AND o.published_at IS NULL LIMIT $1::integer) AS r) AS x

-- name: prunable_events
-- file: outbox.sql
-- parameters: $1 instant timestamptz, $2 after bigint, $3 age bigint, $4 limit integer
SELECT o.id, o.published_at AS happened_at,
       CASE WHEN EXISTS (SELECT 1 FROM workflow.outbox_event n
                         WHERE n.aggregate_id = o.aggregate_id AND n.sequence > o.sequence) THEN 0
            WHEN EXISTS (SELECT 1 FROM workflow.workflow_run r WHERE r.id = o.aggregate_id) THEN 1
            ELSE 0 END AS is_kept
FROM workflow.outbox_event o
WHERE o.published_at >= $1::timestamptz AND (o.published_at > $1::timestamptz OR o.id > $2::bigint) AND o.published_at < now() - (($3::bigint) * interval '1 microsecond')
ORDER BY o.published_at, o.id LIMIT $4::integer

-- name: forget_events
-- file: outbox.sql
-- parameters: $1 b(id bigint)
DELETE FROM workflow.outbox_event WHERE id IN (SELECT b.id FROM unnest($1::bigint[]) AS b(id)) AND published_at IS NOT NULL
RETURNING id

-- name: find_prunable
-- file: prune.sql
-- parameters: $1 to $5 rule(low text, high text, status text, is_deleted integer, age bigint), $6 first uuid,
--   $7 last uuid, $8 limit integer, $9 most integer, $10 shortest bigint
WITH chosen AS MATERIALIZED (SELECT rule.low, rule.high, rule.status, rule.is_deleted, rule.age FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[]) AS rule(low, high, status, is_deleted, age)), page AS MATERIALIZED (
  SELECT r.id, coalesce(r.deleted_at, r.finished_at) AS ended_at FROM workflow.workflow_run r
  WHERE r.id >= $6::uuid AND r.id <= $7::uuid ORDER BY r.id LIMIT $8::integer)
SELECT r.id AS run_id, r.type, r.status, CASE WHEN EXISTS (SELECT 1 FROM workflow.workflow_run p WHERE p.id = r.parent_id AND p.finished_at IS NULL)
         THEN 'open_parent'
       WHEN EXISTS (SELECT 1 FROM workflow.outbox_event o WHERE o.aggregate_id = r.id AND o.published_at IS NULL)
         THEN 'unpublished_events'
        END AS kept, 1 + (SELECT count(*) FROM (SELECT 1 FROM workflow.workflow_step s WHERE s.run_id = r.id LIMIT $9::integer) AS x)
    + (SELECT count(*) FROM (SELECT 1 FROM workflow.workflow_event e WHERE e.workflow_id = r.id LIMIT $9::integer) AS x)
    + (SELECT count(*) FROM (SELECT 1 FROM workflow.workflow_signal g WHERE g.run_id = r.id LIMIT $9::integer) AS x)
    + (SELECT count(*) FROM (SELECT 1 FROM workflow.outbox_event o WHERE o.aggregate_id = r.id LIMIT $9::integer) AS x) AS weight, 0 AS examined
FROM page JOIN workflow.workflow_run r ON r.id = page.id JOIN chosen c ON r.type >= c.low AND r.type < c.high AND r.status = c.status
    AND c.is_deleted = CASE WHEN r.deleted_at IS NULL THEN 0 ELSE 1 END
    AND coalesce(r.deleted_at, r.finished_at) <= now() - ((c.age) * interval '1 microsecond')
WHERE page.ended_at <= now() - (($10::bigint) * interval '1 microsecond')
UNION ALL
SELECT (SELECT page.id FROM page ORDER BY page.id DESC LIMIT 1), NULL, NULL, NULL, 0, (SELECT count(*) FROM page)

-- name: lock_prunable
-- file: prune.postgres.sql
-- parameters: $1 b(run_id uuid)
SELECT r.id AS run_id FROM unnest($1::uuid[]) AS b(run_id) JOIN workflow.workflow_run r ON r.id = b.run_id
WHERE r.finished_at IS NOT NULL ORDER BY r.id FOR UPDATE OF r SKIP LOCKED

-- name: judge_prunable
-- file: prune.sql
-- parameters: $1 to $5 rule(low text, high text, status text, is_deleted integer, age bigint), $6 b(run_id uuid)
WITH chosen AS MATERIALIZED (SELECT rule.low, rule.high, rule.status, rule.is_deleted, rule.age FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[]) AS rule(low, high, status, is_deleted, age))
SELECT r.id AS run_id, r.type, r.status, CASE WHEN EXISTS (SELECT 1 FROM workflow.workflow_run p WHERE p.id = r.parent_id AND p.finished_at IS NULL)
         THEN 'open_parent'
       WHEN EXISTS (SELECT 1 FROM workflow.outbox_event o WHERE o.aggregate_id = r.id AND o.published_at IS NULL)
         THEN 'unpublished_events'
        END AS kept
FROM unnest($6::uuid[]) AS b(run_id) JOIN workflow.workflow_run r ON r.id = b.run_id JOIN chosen c ON r.type >= c.low AND r.type < c.high AND r.status = c.status
    AND c.is_deleted = CASE WHEN r.deleted_at IS NULL THEN 0 ELSE 1 END
    AND coalesce(r.deleted_at, r.finished_at) <= now() - ((c.age) * interval '1 microsecond')

-- name: prune_runs
-- file: prune.postgres.sql
-- parameters: $1 b(run_id uuid)
DELETE FROM workflow.workflow_run WHERE id = ANY (ARRAY(SELECT b.run_id FROM unnest($1::uuid[]) AS b(run_id)))

-- name: take_prune_turn
-- file: prune.sql
-- parameters: $1 policy text, $2 holder text, $3 lease bigint
INSERT INTO workflow.workflow_pruning (policy, holder, held_until, started_at)
VALUES ($1::text, $2::text, now() + (($3::bigint) * interval '1 microsecond'), now())
ON CONFLICT (policy) DO UPDATE
SET holder = excluded.holder, held_until = excluded.held_until,
    started_at = CASE WHEN workflow_pruning.place IS NULL THEN excluded.started_at ELSE workflow_pruning.started_at END
WHERE workflow_pruning.held_until <= now()
RETURNING place AS run_id, started_at, now() AS judged_at

-- name: save_prune_turn
-- file: prune.sql
-- parameters: $1 place uuid, $2 more bigint, $3 lease bigint, $4 policy text, $5 holder text
UPDATE workflow.workflow_pruning
SET place = $1::uuid, removed = removed + $2::bigint, held_until = now() + (($3::bigint) * interval '1 microsecond')
WHERE policy = $4::text AND holder = $5::text
RETURNING policy

-- name: end_prune_pass
-- file: prune.sql
-- parameters: $1 rest bigint, $2 more bigint, $3 policy text, $4 holder text
UPDATE workflow.workflow_pruning
SET place = NULL, holder = NULL, held_until = now() + (($1::bigint) * interval '1 microsecond'), finished_at = now(), last_removed = removed + $2::bigint,
    removed = 0
WHERE policy = $3::text AND holder = $4::text
RETURNING policy

-- name: forget_pruning
-- file: prune.sql
-- parameters: $1 silence bigint
DELETE FROM workflow.workflow_pruning WHERE held_until < now() - (($1::bigint) * interval '1 microsecond')

-- name: pruning_status
-- file: prune.sql
-- parameters: $1 limit integer
SELECT p.policy, p.holder, p.held_until AS due_at, p.started_at, p.finished_at, p.removed, p.last_removed, now() AS judged_at
FROM workflow.workflow_pruning p ORDER BY p.held_until DESC LIMIT $1::integer

-- name: insert_runs
-- file: runs.sql
-- parameters: $1 to $11 n(run_id uuid, type text, payload json, priority integer, run_at timestamptz, delay bigint,
--   idempotency_key text, max_attempts integer, start_within bigint, parent_id uuid, traceparent text),
--   $12 telling boolean
INSERT INTO workflow.workflow_run
  (id, type, payload, priority, run_at, idempotency_key, max_attempts, attempts_unset, start_by, parent_id, traceparent,
   created_at, updated_at)
SELECT n.run_id, n.type, n.payload, n.priority, coalesce(n.run_at, now() + ((n.delay) * interval '1 microsecond')), n.idempotency_key,
       coalesce(n.max_attempts, 3), n.max_attempts IS NULL, coalesce(n.run_at, now() + ((n.delay) * interval '1 microsecond')) + ((n.start_within) * interval '1 microsecond'),
       n.parent_id, n.traceparent, now(), now()
FROM (SELECT run_id, type, CAST(payload AS json) AS payload, priority, run_at, delay, idempotency_key, max_attempts,
    start_within, parent_id, traceparent
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::integer[], $5::timestamptz[], $6::bigint[], $7::text[], $8::integer[],
    $9::bigint[], $10::uuid[], $11::text[]) AS n(run_id, type, payload, priority, run_at, delay, idempotency_key, max_attempts, start_within, parent_id,
    traceparent)) AS n
WHERE NOT EXISTS (SELECT 1 FROM workflow.workflow_registry g WHERE g.workflow_name = n.type AND NOT g.is_enabled)
ON CONFLICT DO NOTHING
RETURNING id, CASE WHEN $12::boolean THEN pg_notify('simpleworkflow_workflow', 'ready')::text END AS told

-- name: runs_like
-- file: runs.sql
-- parameters: $1 to $2 n(run_id uuid, idempotency_key text)
SELECT r.id, r.idempotency_key, r.type, CAST(r.payload AS text) AS payload_json
FROM unnest($1::uuid[], $2::text[]) AS n(run_id, idempotency_key) JOIN workflow.workflow_run r ON r.id = n.run_id
UNION
SELECT r.id, r.idempotency_key, r.type, CAST(r.payload AS text)
FROM unnest($1::uuid[], $2::text[]) AS n(run_id, idempotency_key) JOIN workflow.workflow_run r ON r.idempotency_key = n.idempotency_key
WHERE r.idempotency_key IS NOT NULL AND r.deleted_at IS NULL

-- name: find_lanes
-- file: runs.sql
-- parameters: $1 to $3 span(type text, priority integer, high text), $4 limit integer
SELECT l.type, l.priority, CASE WHEN l.run_at <= now() AND NOT EXISTS (
    SELECT 1 FROM workflow.workflow_registry g WHERE g.workflow_name = l.type AND NOT g.is_enabled)
  THEN 1 ELSE 0 END AS due, (extract(epoch FROM l.run_at - now()) * 1000000)::bigint AS due_in
FROM (
  SELECT lane.type, lane.priority, lane.run_at FROM unnest($1::text[], $2::integer[], $3::text[]) AS span(type, priority, high) CROSS JOIN LATERAL (
    WITH RECURSIVE walk AS (
      (SELECT r.type, r.priority, r.run_at FROM workflow.workflow_run r
       WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
         AND r.type < span.high AND (r.type, r.priority) > (span.type, span.priority)
       ORDER BY r.type, r.priority, r.run_at LIMIT 1)
      UNION ALL
      SELECT h.type, h.priority, h.run_at
      FROM walk CROSS JOIN LATERAL (
        SELECT r.type, r.priority, r.run_at FROM workflow.workflow_run r
        WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes = 0
          AND r.type < span.high AND (r.type, r.priority) > (walk.type, walk.priority)
        ORDER BY r.type, r.priority, r.run_at LIMIT 1) h)
    SELECT walk.type, walk.priority, walk.run_at FROM walk) lane
  LIMIT $4::integer) AS l

-- name: find_suspect_lanes
-- file: runs.sql
-- parameters: $1 to $3 span(type text, priority integer, high text), $4 limit integer
SELECT l.type, l.priority, CASE WHEN l.run_at <= now() AND NOT EXISTS (
    SELECT 1 FROM workflow.workflow_registry g WHERE g.workflow_name = l.type AND NOT g.is_enabled)
  THEN 1 ELSE 0 END AS due, (extract(epoch FROM l.run_at - now()) * 1000000)::bigint AS due_in
FROM (
  SELECT lane.type, lane.priority, lane.run_at FROM unnest($1::text[], $2::integer[], $3::text[]) AS span(type, priority, high) CROSS JOIN LATERAL (
    WITH RECURSIVE walk AS (
      (SELECT r.type, r.priority, r.run_at FROM workflow.workflow_run r
       WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
         AND r.type < span.high AND (r.type, r.priority) > (span.type, span.priority)
       ORDER BY r.type, r.priority, r.run_at LIMIT 1)
      UNION ALL
      SELECT h.type, h.priority, h.run_at
      FROM walk CROSS JOIN LATERAL (
        SELECT r.type, r.priority, r.run_at FROM workflow.workflow_run r
        WHERE r.status IN ('pending', 'paused') AND r.run_at IS NOT NULL AND r.held_at IS NULL AND r.crashes > 0
          AND r.type < span.high AND (r.type, r.priority) > (walk.type, walk.priority)
        ORDER BY r.type, r.priority, r.run_at LIMIT 1) h)
    SELECT walk.type, walk.priority, walk.run_at FROM walk) lane
  LIMIT $4::integer) AS l

-- name: claim_lanes
-- file: runs.sql
-- parameters: $1 to $6 lane(type text, priority integer, max_attempts integer, lease bigint, timeout bigint,
--   low timestamptz), $7 limit integer, $8 worker text
WITH due AS MATERIALIZED (
  SELECT c.place, c.status, lane.max_attempts, lane.lease, lane.timeout
  FROM unnest($1::text[], $2::integer[], $3::integer[], $4::bigint[], $5::bigint[], $6::timestamptz[]) AS lane(type, priority, max_attempts, lease, timeout, low) CROSS JOIN LATERAL (
    SELECT r.ctid AS place, r.status FROM workflow.workflow_run r
    WHERE r.status IN ('pending', 'paused') AND r.held_at IS NULL AND r.crashes = 0
      AND r.type = lane.type AND r.priority = lane.priority AND NOT EXISTS (
        SELECT FROM workflow.workflow_registry g WHERE g.workflow_name = lane.type AND NOT g.is_enabled)
      AND r.run_at <= now()
      AND (r.run_at, r.id) >= (coalesce(lane.low, '-infinity'), '00000000-0000-0000-0000-000000000000')
      AND (r.deadline_at IS NULL OR r.deadline_at > now())
      AND (r.start_by IS NULL OR r.start_by > now() OR r.started_at IS NOT NULL)
    ORDER BY r.run_at, r.id LIMIT $7::integer
    FOR NO KEY UPDATE SKIP LOCKED) c
  LIMIT $7::integer),
claimed AS (
  UPDATE workflow.workflow_run r
  SET status = 'leased', version = r.version + 1, lease_epoch = r.lease_epoch + 1, leased_by = $8::text,
      lease_until = now() + ((due.lease) * interval '1 microsecond'),
      max_attempts = CASE WHEN r.max_attempts IS NULL OR (r.attempts_unset AND r.lease_epoch = 0)
                          THEN due.max_attempts ELSE r.max_attempts END,
      deadline_at = coalesce(r.deadline_at, now() + ((due.timeout) * interval '1 microsecond')),
      started_at = coalesce(r.started_at, now()), updated_at = now()
  FROM due WHERE r.ctid = due.place
  RETURNING r.id, r.type, r.lease_epoch, r.attempt, r.crashes, r.max_attempts, r.priority, r.payload,
    due.lease::float8 / 1000000 AS lease_seconds, extract(epoch FROM r.deadline_at - now())::float8 AS deadline_in,
    r.parent_id, r.wakes, r.idempotency_key, r.run_at, r.traceparent, due.status AS was),
logged AS (
  INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data)
  SELECT id, 'woken', lease_epoch, NULL FROM claimed WHERE was = 'paused'
  UNION ALL
  SELECT id, 'leased', lease_epoch, (SELECT json_build_object('worker', $8::text)) FROM claimed)
SELECT id, type, lease_epoch AS epoch, attempt, crashes, max_attempts, priority, payload, lease_seconds, deadline_in,
       parent_id, wakes, idempotency_key, run_at, now() AS claimed_at, traceparent
FROM claimed

-- name: claim_suspect_lanes
-- file: runs.sql
-- parameters: $1 to $6 lane(type text, priority integer, max_attempts integer, lease bigint, timeout bigint,
--   low timestamptz), $7 least integer, $8 most integer, $9 limit integer, $10 worker text
WITH due AS MATERIALIZED (
  SELECT c.place, c.status, lane.max_attempts, lane.lease, lane.timeout
  FROM unnest($1::text[], $2::integer[], $3::integer[], $4::bigint[], $5::bigint[], $6::timestamptz[]) AS lane(type, priority, max_attempts, lease, timeout, low) CROSS JOIN LATERAL (
    SELECT r.ctid AS place, r.status FROM workflow.workflow_run r
    WHERE r.status IN ('pending', 'paused') AND r.held_at IS NULL AND r.crashes > 0 AND r.crashes BETWEEN $7::integer AND $8::integer
      AND r.type = lane.type AND r.priority = lane.priority AND NOT EXISTS (
        SELECT FROM workflow.workflow_registry g WHERE g.workflow_name = lane.type AND NOT g.is_enabled)
      AND r.run_at <= now()
      AND (r.run_at, r.id) >= (coalesce(lane.low, '-infinity'), '00000000-0000-0000-0000-000000000000')
      AND (r.deadline_at IS NULL OR r.deadline_at > now())
      AND (r.start_by IS NULL OR r.start_by > now() OR r.started_at IS NOT NULL)
    ORDER BY r.run_at, r.id LIMIT $9::integer
    FOR NO KEY UPDATE SKIP LOCKED) c
  LIMIT $9::integer),
claimed AS (
  UPDATE workflow.workflow_run r
  SET status = 'leased', version = r.version + 1, lease_epoch = r.lease_epoch + 1, leased_by = $10::text,
      lease_until = now() + ((due.lease) * interval '1 microsecond'),
      max_attempts = CASE WHEN r.max_attempts IS NULL OR (r.attempts_unset AND r.lease_epoch = 0)
                          THEN due.max_attempts ELSE r.max_attempts END,
      deadline_at = coalesce(r.deadline_at, now() + ((due.timeout) * interval '1 microsecond')),
      started_at = coalesce(r.started_at, now()), updated_at = now()
  FROM due WHERE r.ctid = due.place
  RETURNING r.id, r.type, r.lease_epoch, r.attempt, r.crashes, r.max_attempts, r.priority, r.payload,
    due.lease::float8 / 1000000 AS lease_seconds, extract(epoch FROM r.deadline_at - now())::float8 AS deadline_in,
    r.parent_id, r.wakes, r.idempotency_key, r.run_at, r.traceparent, due.status AS was),
logged AS (
  INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data)
  SELECT id, 'woken', lease_epoch, NULL FROM claimed WHERE was = 'paused'
  UNION ALL
  SELECT id, 'leased', lease_epoch, (SELECT json_build_object('worker', $10::text)) FROM claimed)
SELECT id, type, lease_epoch AS epoch, attempt, crashes, max_attempts, priority, payload, lease_seconds, deadline_in,
       parent_id, wakes, idempotency_key, run_at, now() AS claimed_at, traceparent
FROM claimed

-- name: log_leased
-- file: runs.postgres.sql
-- nothing is sent: another statement does this here

-- name: lock_runs
-- file: runs.postgres.sql
-- parameters: $1 b(run_id uuid)
SELECT r.id FROM workflow.workflow_run r
WHERE r.id = ANY (ARRAY(
  SELECT b.run_id FROM unnest($1::uuid[]) AS b(run_id)
  UNION SELECT c.parent_id FROM unnest($1::uuid[]) AS b(run_id) JOIN workflow.workflow_run c ON c.id = b.run_id))
ORDER BY r.id FOR NO KEY UPDATE

-- name: settle_runs
-- file: runs.postgres.sql
-- parameters: $1 to $14 b(run_id uuid, epoch bigint, status text, event text, started integer, elapsed bigint,
--   burns integer, delay bigint, anew integer, result json, error json, last_error text, hold_reason text, data json),
--   $15 worker text
WITH settled AS (
  UPDATE workflow.workflow_run AS r
  SET status = b.status, version = r.version + 1, attempt = r.attempt + b.burns,
      run_at = CASE WHEN b.status = 'pending' THEN now() + ((b.delay) * interval '1 microsecond') ELSE r.run_at END,
      lease_until = NULL, leased_by = NULL, updated_at = now(),
      finished_at = CASE WHEN b.status = 'pending' THEN NULL ELSE now() END,
      result = b.result, error = coalesce(b.error, r.error), last_error = coalesce(b.last_error, r.last_error),
      held_at = CASE WHEN b.hold_reason IS NULL THEN r.held_at ELSE now() END,
      hold_reason = coalesce(b.hold_reason, r.hold_reason),
      started_at = CASE WHEN b.started = 0 AND b.status = 'pending' AND r.attempt = 0 AND r.crashes = 0
        AND (SELECT 1 FROM workflow.workflow_event e
             WHERE e.workflow_id = r.id AND e.event_type IN ('started', 'retried', 'heartbeat') LIMIT 1) IS NULL
        AND (SELECT 1 FROM workflow.workflow_step s WHERE s.run_id = r.id LIMIT 1) IS NULL THEN NULL ELSE r.started_at END,
      deadline_at = CASE WHEN b.anew = 1 AND b.started = 0 AND b.status = 'pending' AND r.attempt = 0 AND r.crashes = 0
        AND (SELECT 1 FROM workflow.workflow_event e
             WHERE e.workflow_id = r.id AND e.event_type IN ('started', 'retried', 'heartbeat') LIMIT 1) IS NULL
        AND (SELECT 1 FROM workflow.workflow_step s WHERE s.run_id = r.id LIMIT 1) IS NULL THEN NULL ELSE r.deadline_at END
  FROM (SELECT run_id, epoch, status, event, started, elapsed, burns, delay, anew, CAST(result AS json) AS result,
      CAST(error AS json) AS error, last_error, hold_reason, CAST(data AS json) AS data
    FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::integer[], $6::bigint[], $7::integer[], $8::bigint[],
      $9::integer[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[]) AS b(run_id, epoch, status, event, started, elapsed, burns, delay, anew, result, error, last_error, hold_reason,
      data)) AS b
  WHERE r.id = b.run_id AND CASE WHEN r.status = 'leased' AND r.leased_by = $15::text THEN r.lease_epoch END = b.epoch
  RETURNING r.id, b.epoch, b.event, b.started, b.elapsed, b.data, b.hold_reason),
logged AS (
  INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
  SELECT id, 'started', epoch, NULL, now() - ((elapsed) * interval '1 microsecond') FROM settled WHERE started = 1
  UNION ALL
  SELECT id, event, epoch, data, now() FROM settled
  UNION ALL
  SELECT id, 'held', epoch, data, now() FROM settled WHERE hold_reason IS NOT NULL)
SELECT id AS run_id, epoch FROM settled

-- name: finish_runs
-- file: runs.postgres.sql
-- parameters: $1 to $4 b(run_id uuid, epoch bigint, elapsed bigint, result json), $5 worker text
WITH finished AS (
  UPDATE workflow.workflow_run AS r
  SET status = 'succeeded', version = r.version + 1, lease_until = NULL, leased_by = NULL, updated_at = now(),
      finished_at = now(), result = b.result
  FROM (SELECT run_id, epoch, elapsed, CAST(result AS json) AS result FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[]) AS b(run_id, epoch, elapsed, result)) AS b
  WHERE r.id = b.run_id AND CASE WHEN r.status = 'leased' AND r.leased_by = $5::text THEN r.lease_epoch END = b.epoch
  RETURNING r.id, b.epoch, b.elapsed),
logged AS (
  INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, created_at)
  SELECT id, 'started', epoch, now() - ((elapsed) * interval '1 microsecond') FROM finished
  UNION ALL
  SELECT id, 'succeeded', epoch, now() FROM finished)
SELECT id AS run_id, epoch FROM finished

-- name: log_finished
-- file: runs.postgres.sql
-- nothing is sent: another statement does this here

-- name: log_settled
-- file: runs.postgres.sql
-- nothing is sent: another statement does this here

-- name: settled_already
-- file: runs.sql
-- parameters: $1 to $3 b(run_id uuid, epoch bigint, status text), $4 worker text
SELECT r.id AS run_id, b.epoch FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS b(run_id, epoch, status) JOIN workflow.workflow_run r ON r.id = b.run_id
WHERE r.lease_epoch = b.epoch AND r.status = b.status AND EXISTS (
  SELECT 1 FROM workflow.workflow_event e
  WHERE e.workflow_id = r.id AND e.event_type = 'leased' AND e.lease_epoch = b.epoch
    AND (e.data ->> 'worker') = $4::text)

-- name: renew_leases
-- file: runs.postgres.sql
-- parameters: $1 to $3 b(run_id uuid, epoch bigint, lease bigint), $4 worker text
WITH mine AS MATERIALIZED (
  SELECT held.id, b.lease FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS b(run_id, epoch, lease) CROSS JOIN LATERAL (
    SELECT r.id FROM workflow.workflow_run r
    WHERE r.id = b.run_id AND CASE WHEN r.status = 'leased' AND r.leased_by = $4::text THEN r.lease_epoch END = b.epoch
    FOR NO KEY UPDATE SKIP LOCKED) AS held)
UPDATE workflow.workflow_run AS r
SET lease_until = greatest(r.lease_until, now() + ((mine.lease) * interval '1 microsecond')), version = r.version + 1, updated_at = now()
FROM mine WHERE r.id = mine.id
RETURNING r.id AS run_id

-- name: lease_states
-- file: runs.sql
-- parameters: $1 worker text, $2 to $3 b(run_id uuid, epoch bigint)
SELECT r.id, b.epoch, CASE WHEN CASE WHEN r.status = 'leased' AND r.leased_by = $1::text THEN r.lease_epoch END = b.epoch THEN 1 ELSE 0 END AS owned,
       CASE WHEN r.held_at IS NULL THEN 0 ELSE 1 END AS held, r.wakes
FROM unnest($2::uuid[], $3::bigint[]) AS b(run_id, epoch) JOIN workflow.workflow_run r ON r.id = b.run_id

-- name: lock_leases
-- file: runs.postgres.sql
-- parameters: $1 to $2 b(run_id uuid, epoch bigint), $3 worker text
SELECT b.run_id, b.epoch FROM unnest($1::uuid[], $2::bigint[]) AS b(run_id, epoch) CROSS JOIN LATERAL (
  SELECT FROM workflow.workflow_run r
  WHERE r.id = b.run_id AND CASE WHEN r.status = 'leased' AND r.leased_by = $3::text THEN r.lease_epoch END = b.epoch FOR NO KEY UPDATE) AS held

-- name: lock_free_leases
-- file: runs.postgres.sql
-- parameters: $1 to $2 b(run_id uuid, epoch bigint), $3 worker text
SELECT b.run_id, b.epoch FROM unnest($1::uuid[], $2::bigint[]) AS b(run_id, epoch) CROSS JOIN LATERAL (
  SELECT FROM workflow.workflow_run r
  WHERE r.id = b.run_id AND CASE WHEN r.status = 'leased' AND r.leased_by = $3::text THEN r.lease_epoch END = b.epoch FOR NO KEY UPDATE SKIP LOCKED) AS held

-- name: log_events
-- file: runs.sql
-- parameters: $1 to $4 e(run_id uuid, event text, epoch bigint, data json)
INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
SELECT e.run_id, e.event, e.epoch, e.data, now() FROM (SELECT run_id, event, epoch, CAST(data AS json) AS data FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[]) AS e(run_id, event, epoch, data)) AS e

-- name: leased_runs
-- file: runs.sql
-- parameters: $1 worker text
SELECT r.id AS run_id, r.lease_epoch AS epoch FROM workflow.workflow_run r
WHERE r.status = 'leased' AND r.leased_by = $1::text

-- name: lease_holders
-- file: runs.sql
WITH RECURSIVE holder(leased_by) AS (
  SELECT min(leased_by) FROM workflow.workflow_run WHERE status = 'leased'
  UNION ALL
  SELECT (SELECT min(r.leased_by) FROM workflow.workflow_run r WHERE r.status = 'leased' AND r.leased_by > holder.leased_by)
  FROM holder WHERE holder.leased_by IS NOT NULL)
SELECT leased_by FROM holder WHERE leased_by IS NOT NULL

-- name: crashed_in_company
-- file: runs.sql
-- parameters: $1 w(worker text), $2 me text
SELECT r.id AS run_id FROM workflow.workflow_run r
WHERE r.status = 'leased' AND (r.lease_until < now() OR r.leased_by IN (SELECT w.worker FROM unnest($1::text[]) AS w(worker)))
  AND r.leased_by <> $2::text AND r.crashes BETWEEN 1 AND 3 AND (EXISTS (
    SELECT 1 FROM workflow.workflow_run o
    WHERE o.status = 'leased' AND o.leased_by = r.leased_by AND o.id <> r.id AND o.crashes > 0
      AND (r.crashes = 1 OR (o.crashes > 1
        AND (SELECT max(e.id) FROM workflow.workflow_event e WHERE e.event_type = 'leased' AND e.workflow_id = o.id)
          > (SELECT max(e.id) FROM workflow.workflow_event e WHERE e.event_type = 'leased' AND e.workflow_id = r.id))))
  OR EXISTS (
    SELECT 1 FROM workflow.workflow_run o
    WHERE o.status IN ('pending', 'paused') AND o.run_at IS NOT NULL AND o.held_at IS NULL
      AND o.id <> r.id AND o.crashes > 0 AND o.last_error = 'its worker stopped without finishing it: ' || r.leased_by
        AND o.crashes > 1 AND (r.crashes = 1 OR (o.crashes > 2
          AND (SELECT max(e.id) FROM workflow.workflow_event e WHERE e.event_type = 'leased' AND e.workflow_id = o.id)
            > (SELECT max(e.id) FROM workflow.workflow_event e WHERE e.event_type = 'leased' AND e.workflow_id = r.id))))
  OR EXISTS (
    SELECT 1 FROM workflow.workflow_run o
    WHERE o.status = 'leased'
      AND o.id <> r.id AND o.crashes > 0 AND o.last_error = 'its worker stopped without finishing it: ' || r.leased_by
        AND o.crashes > 1 AND (r.crashes = 1 OR (o.crashes > 2
          AND (SELECT max(e.id) FROM workflow.workflow_event e WHERE e.event_type = 'leased' AND e.workflow_id = o.id)
            > (SELECT max(e.id) FROM workflow.workflow_event e WHERE e.event_type = 'leased' AND e.workflow_id = r.id)))))

-- name: crash_runs
-- file: runs.postgres.sql
-- parameters: $1 w(worker text), $2 me text, $3 x(run_id text), $4 limit integer, $5 unit bigint
WITH gone AS MATERIALIZED (
  SELECT r.id FROM workflow.workflow_run r
  WHERE r.status = 'leased' AND (r.lease_until < now() OR r.leased_by IN (SELECT w.worker FROM unnest($1::text[]) AS w(worker)))
    AND r.leased_by <> $2::text
    AND r.attempt + r.crashes - CASE WHEN CAST(r.id AS text) IN (SELECT x.run_id FROM unnest($3::text[]) AS x(run_id)) THEN 1 ELSE 0 END + 1 < coalesce(r.max_attempts, 3)
  ORDER BY r.leased_by, r.id LIMIT $4::integer FOR NO KEY UPDATE SKIP LOCKED)
UPDATE workflow.workflow_run AS r
SET status = 'pending',
    version = version + 1, crashes = crashes + 1, lease_until = NULL, leased_by = NULL,
    max_attempts = CASE WHEN CASE WHEN CAST(r.id AS text) IN (SELECT x.run_id FROM unnest($3::text[]) AS x(run_id)) THEN 1 ELSE 0 END = 1 AND coalesce(max_attempts, 3) < 1000000000 THEN coalesce(max_attempts, 3) + 1
                        ELSE max_attempts END,
    run_at = now() + (($5::bigint * CASE WHEN crashes = 0 THEN 0 WHEN crashes > 9 THEN 300 ELSE (1 << (crashes - 1)) END) * interval '1 microsecond'),
    finished_at = NULL, updated_at = now(),
    last_error = 'its worker stopped without finishing it: ' || leased_by,
    error = json_build_object('type', 'WorkerCrashed', 'message', 'its worker stopped without finishing it: ' || leased_by)
FROM gone WHERE r.id = gone.id
RETURNING r.id, r.status, r.lease_epoch, r.crashes, r.last_error

-- name: give_up_runs
-- file: runs.postgres.sql
-- parameters: $1 w(worker text), $2 me text, $3 x(run_id text), $4 limit integer, $5 unit bigint
WITH gone AS MATERIALIZED (
  SELECT r.id FROM workflow.workflow_run r
  WHERE r.status = 'leased' AND (r.lease_until < now() OR r.leased_by IN (SELECT w.worker FROM unnest($1::text[]) AS w(worker)))
    AND r.leased_by <> $2::text
    AND r.attempt + r.crashes - CASE WHEN CAST(r.id AS text) IN (SELECT x.run_id FROM unnest($3::text[]) AS x(run_id)) THEN 1 ELSE 0 END + 1 >= coalesce(r.max_attempts, 3)
    AND NOT EXISTS (SELECT 1 FROM workflow.workflow_registry g WHERE g.workflow_name = r.type AND g.on_exhausted = 'hold')
  ORDER BY r.leased_by, r.id LIMIT $4::integer FOR NO KEY UPDATE SKIP LOCKED)
UPDATE workflow.workflow_run AS r
SET status = 'failed',
    version = version + 1, crashes = crashes + 1, lease_until = NULL, leased_by = NULL,
    max_attempts = CASE WHEN CASE WHEN CAST(r.id AS text) IN (SELECT x.run_id FROM unnest($3::text[]) AS x(run_id)) THEN 1 ELSE 0 END = 1 AND coalesce(max_attempts, 3) < 1000000000 THEN coalesce(max_attempts, 3) + 1
                        ELSE max_attempts END,
    run_at = now() + (($5::bigint * CASE WHEN crashes = 0 THEN 0 WHEN crashes > 9 THEN 300 ELSE (1 << (crashes - 1)) END) * interval '1 microsecond'),
    finished_at = now(), updated_at = now(),
    last_error = 'its worker stopped without finishing it: ' || leased_by,
    error = json_build_object('type', 'WorkerCrashed', 'message', 'its worker stopped without finishing it: ' || leased_by)
FROM gone WHERE r.id = gone.id
RETURNING r.id, r.status, r.lease_epoch, r.crashes, r.last_error

-- name: hold_spent_runs
-- file: runs.postgres.sql
-- parameters: $1 w(worker text), $2 me text, $3 x(run_id text), $4 limit integer, $5 unit bigint
WITH gone AS MATERIALIZED (
  SELECT r.id FROM workflow.workflow_run r
  WHERE r.status = 'leased' AND (r.lease_until < now() OR r.leased_by IN (SELECT w.worker FROM unnest($1::text[]) AS w(worker)))
    AND r.leased_by <> $2::text
    AND r.attempt + r.crashes - CASE WHEN CAST(r.id AS text) IN (SELECT x.run_id FROM unnest($3::text[]) AS x(run_id)) THEN 1 ELSE 0 END + 1 >= coalesce(r.max_attempts, 3)
    AND EXISTS (SELECT 1 FROM workflow.workflow_registry g WHERE g.workflow_name = r.type AND g.on_exhausted = 'hold')
  ORDER BY r.leased_by, r.id LIMIT $4::integer FOR NO KEY UPDATE SKIP LOCKED)
UPDATE workflow.workflow_run AS r
SET status = 'pending',
    version = version + 1, crashes = crashes + 1, lease_until = NULL, leased_by = NULL,
    max_attempts = CASE WHEN CASE WHEN CAST(r.id AS text) IN (SELECT x.run_id FROM unnest($3::text[]) AS x(run_id)) THEN 1 ELSE 0 END = 1 AND coalesce(max_attempts, 3) < 1000000000 THEN coalesce(max_attempts, 3) + 1
                        ELSE max_attempts END,
    run_at = now() + (($5::bigint * CASE WHEN crashes = 0 THEN 0 WHEN crashes > 9 THEN 300 ELSE (1 << (crashes - 1)) END) * interval '1 microsecond'),
    held_at = now(), hold_reason = 'out of attempts; its worker stopped without finishing it', updated_at = now(),
    last_error = 'its worker stopped without finishing it: ' || leased_by,
    error = json_build_object('type', 'WorkerCrashed', 'message', 'its worker stopped without finishing it: ' || leased_by)
FROM gone WHERE r.id = gone.id
RETURNING r.id, r.status, r.lease_epoch, r.crashes, r.last_error

-- name: expire_deadlines
-- file: runs.postgres.sql
-- parameters: $1 grace bigint, $2 limit integer
WITH overdue AS MATERIALIZED (
  SELECT r.id FROM workflow.workflow_run r
  WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.deadline_at <= now()
    AND (r.status <> 'leased' OR r.deadline_at <= now() - (($1::bigint) * interval '1 microsecond'))
  ORDER BY r.deadline_at LIMIT $2::integer FOR NO KEY UPDATE SKIP LOCKED)
UPDATE workflow.workflow_run AS r
SET status = 'timed_out', version = version + 1, finished_at = now(), updated_at = now(), lease_until = NULL,
  leased_by = NULL, last_error = 'its deadline passed',
  error = json_build_object('type', 'RunTimedOut', 'message', 'its deadline passed')
FROM overdue WHERE r.id = overdue.id
RETURNING r.id, r.status, r.lease_epoch, r.crashes, r.last_error

-- name: expire_unstarted
-- file: runs.postgres.sql
-- parameters: $1 grace bigint, $2 limit integer
WITH overdue AS MATERIALIZED (
  SELECT r.id FROM workflow.workflow_run r
  WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.start_by <= now()
    AND (r.status <> 'leased' OR r.start_by <= now() - (($1::bigint) * interval '1 microsecond'))
  ORDER BY r.start_by LIMIT $2::integer FOR NO KEY UPDATE SKIP LOCKED)
UPDATE workflow.workflow_run AS r
SET status = 'timed_out', version = version + 1, finished_at = now(), updated_at = now(), lease_until = NULL,
  leased_by = NULL, last_error = 'no worker started it in time',
  error = json_build_object('type', 'RunTimedOut', 'message', 'no worker started it in time')
FROM overdue WHERE r.id = overdue.id
RETURNING r.id, r.status, r.lease_epoch, r.crashes, r.last_error

-- name: next_expiry
-- file: runs.postgres.sql
SELECT (extract(epoch FROM (SELECT r.deadline_at FROM workflow.workflow_run r
  WHERE r.deadline_at IS NOT NULL AND r.finished_at IS NULL AND r.status IN ('pending', 'paused')
  ORDER BY r.deadline_at LIMIT 1) - now()) * 1000000)::bigint AS deadline_in,
       (extract(epoch FROM (SELECT r.start_by FROM workflow.workflow_run r
         WHERE r.start_by IS NOT NULL AND r.started_at IS NULL AND r.finished_at IS NULL AND r.status IN ('pending', 'paused')
         ORDER BY r.start_by LIMIT 1) - now()) * 1000000)::bigint AS start_in

-- name: cancel_runs
-- file: runs.sql
-- parameters: $1 reason text, $2 b(run_id uuid)
UPDATE workflow.workflow_run AS r
SET status = 'cancelled', version = r.version + 1, finished_at = now(), updated_at = now(), lease_until = NULL,
    leased_by = NULL, last_error = coalesce($1::text, r.last_error)
FROM unnest($2::uuid[]) AS b(run_id)
WHERE r.id = b.run_id AND r.status IN ('pending', 'leased', 'paused')
RETURNING id, lease_epoch

-- name: hold_runs
-- file: runs.sql
-- parameters: $1 reason text, $2 b(run_id uuid)
UPDATE workflow.workflow_run AS r
SET held_at = now(), hold_reason = $1::text, version = r.version + 1, updated_at = now()
FROM unnest($2::uuid[]) AS b(run_id)
WHERE r.id = b.run_id AND r.status IN ('pending', 'leased', 'paused') AND r.held_at IS NULL
RETURNING id, lease_epoch

-- name: resume_runs
-- file: runs.sql
-- parameters: $1 b(run_id uuid)
UPDATE workflow.workflow_run AS r
SET held_at = NULL, hold_reason = NULL, version = r.version + 1, updated_at = now()
FROM unnest($1::uuid[]) AS b(run_id)
WHERE r.id = b.run_id AND r.status IN ('pending', 'leased', 'paused') AND r.held_at IS NOT NULL
RETURNING id, lease_epoch

-- name: revive_runs
-- file: runs.sql
-- parameters: $1 b(run_id uuid)
UPDATE workflow.workflow_run AS r
SET status = 'pending', version = r.version + 1, run_at = now(), attempt = 0, crashes = 0, deadline_at = NULL,
    start_by = NULL, finished_at = NULL, result = NULL, error = NULL, last_error = NULL, held_at = NULL,
    hold_reason = NULL, updated_at = now()
FROM unnest($1::uuid[]) AS b(run_id)
WHERE r.id = b.run_id AND r.status IN ('succeeded', 'failed', 'cancelled', 'timed_out') AND r.deleted_at IS NULL
RETURNING id, lease_epoch

-- name: cancelled_with_parent
-- file: runs.sql
-- parameters: $1 b(run_id uuid)
SELECT c.id FROM unnest($1::uuid[]) AS b(run_id) JOIN workflow.workflow_run c ON c.parent_id = b.run_id
WHERE c.status = 'cancelled' AND c.deleted_at IS NULL AND substr(c.last_error, 1, 16) = 'its parent ended'

-- name: delete_runs
-- file: runs.sql
-- parameters: $1 reason text, $2 b(run_id uuid)
UPDATE workflow.workflow_run AS r
SET deleted_at = now(), delete_reason = $1::text, version = r.version + 1, updated_at = now()
FROM unnest($2::uuid[]) AS b(run_id)
WHERE r.id = b.run_id AND r.finished_at IS NOT NULL AND r.deleted_at IS NULL
RETURNING id, lease_epoch

-- name: hasten_undo
-- file: runs.sql
-- parameters: $1 idempotency_key text, $2 run_id uuid, $3 epoch bigint, $4 worker text
UPDATE workflow.workflow_run
SET run_at = now(), version = version + 1, updated_at = now()
WHERE idempotency_key = $1::text AND deleted_at IS NULL AND status = 'pending' AND run_at > now() AND EXISTS (
  SELECT 1 FROM workflow.workflow_event e
  WHERE e.workflow_id = $2::uuid AND e.event_type = 'leased' AND e.lease_epoch = $3::bigint AND (e.data ->> 'worker') = $4::text)
RETURNING id

-- name: get_runs
-- file: runs.sql
-- parameters: $1 b(run_id uuid)
SELECT r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, CASE WHEN r.attempts_unset AND r.lease_epoch = 0 THEN NULL ELSE r.max_attempts END AS max_attempts, r.lease_until, r.leased_by,
  r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.idempotency_key, r.created_at,
  r.updated_at, r.started_at, r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.error AS error_json,
  r.result AS result_json, r.payload AS payload_json, r.traceparent FROM unnest($1::uuid[]) AS b(run_id) JOIN workflow.workflow_run r ON r.id = b.run_id

-- name: run_with_key
-- file: runs.sql
-- parameters: $1 idempotency_key text
SELECT r.id FROM workflow.workflow_run r WHERE r.idempotency_key = $1::text AND r.deleted_at IS NULL

-- name: open_runs
-- file: runs.sql
SELECT r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, CASE WHEN r.attempts_unset AND r.lease_epoch = 0 THEN NULL ELSE r.max_attempts END AS max_attempts, r.lease_until, r.leased_by,
  r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.idempotency_key, r.created_at,
  r.updated_at, r.started_at, r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.error AS error_json,
  r.result AS result_json, r.payload AS payload_json, r.traceparent, r.wakes FROM workflow.workflow_run r WHERE r.finished_at IS NULL ORDER BY r.id

-- name: finished_among
-- file: runs.sql
-- parameters: $1 b(run_id uuid)
SELECT r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, CASE WHEN r.attempts_unset AND r.lease_epoch = 0 THEN NULL ELSE r.max_attempts END AS max_attempts, r.lease_until, r.leased_by,
  r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.idempotency_key, r.created_at,
  r.updated_at, r.started_at, r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.error AS error_json,
  r.result AS result_json, r.payload AS payload_json, r.traceparent FROM unnest($1::uuid[]) AS b(run_id) JOIN workflow.workflow_run r ON r.id = b.run_id WHERE r.finished_at IS NOT NULL

-- name: list_runs
-- file: runs.postgres.sql
-- parameters: $1 below uuid, $2 since timestamptz, $3 until timestamptz, $4 any_status integer, $5 s(status text),
--   $6 type text, $7 low text, $8 high text, $9 idempotency_key text, $10 with_deleted integer, $11 held integer,
--   $12 limit integer, $13 at timestamptz, $14 last uuid
WITH page AS (
  (SELECT r.id, r.id AS place, r.created_at FROM workflow.workflow_run r
   WHERE r.id < '04000000-0000-0000-0000-000000000000' AND get_byte(uuid_send(r.id), 6) >> 4 = 7
     AND ($1::uuid IS NULL OR r.id < $1::uuid)
     AND ($2::timestamptz IS NULL OR r.created_at >= $2::timestamptz) AND ($3::timestamptz IS NULL OR r.created_at < $3::timestamptz)
     AND ($4::integer = 1 OR r.status IN (SELECT s.status FROM unnest($5::text[]) AS s(status)))
       AND ($6::text IS NULL OR r.type = $6::text)
       AND ($7::text IS NULL OR (r.type >= $7::text AND r.type < $8::text))
       AND ($9::text IS NULL OR r.idempotency_key = $9::text)
       AND ($10::integer = 1 OR r.deleted_at IS NULL)
       AND ($11::integer = 0 OR (r.held_at IS NOT NULL AND r.finished_at IS NULL))
   ORDER BY r.id DESC LIMIT $12::integer)
  UNION ALL
  (SELECT r.id, CAST(lpad(to_hex(CAST(trunc(extract(epoch FROM least(greatest(r.created_at, 'epoch'), '9999-12-31')) * 1000) AS bigint)), 12, '0')
      || repeat('0', 20) AS uuid), r.created_at FROM workflow.workflow_run r
   WHERE (r.id >= '04000000-0000-0000-0000-000000000000' OR get_byte(uuid_send(r.id), 6) >> 4 <> 7)
     AND ($1::uuid IS NULL OR (
       r.created_at <= to_timestamp(CAST(CAST('x' || translate(substr(CAST($1::uuid AS text), 1, 13), '-', '') AS bit(48)) AS bigint) / 1000.0 + 0.002)
       AND (CAST(lpad(to_hex(CAST(trunc(extract(epoch FROM least(greatest(r.created_at, 'epoch'), '9999-12-31')) * 1000) AS bigint)), 12, '0')
           || repeat('0', 20) AS uuid), r.created_at, r.id) < ($1::uuid, $13::timestamptz, $14::uuid)))
     AND ($2::timestamptz IS NULL OR r.created_at >= $2::timestamptz) AND ($3::timestamptz IS NULL OR r.created_at < $3::timestamptz)
     AND ($4::integer = 1 OR r.status IN (SELECT s.status FROM unnest($5::text[]) AS s(status)))
       AND ($6::text IS NULL OR r.type = $6::text)
       AND ($7::text IS NULL OR (r.type >= $7::text AND r.type < $8::text))
       AND ($9::text IS NULL OR r.idempotency_key = $9::text)
       AND ($10::integer = 1 OR r.deleted_at IS NULL)
       AND ($11::integer = 0 OR (r.held_at IS NOT NULL AND r.finished_at IS NULL))
   ORDER BY r.created_at DESC, r.id DESC LIMIT $12::integer)
  ORDER BY place DESC, created_at DESC, id DESC LIMIT $12::integer)
SELECT r.id, r.type, r.status, r.priority, r.run_at, r.attempt, r.crashes, CASE WHEN r.attempts_unset AND r.lease_epoch = 0 THEN NULL ELSE r.max_attempts END AS max_attempts, r.lease_until, r.leased_by,
  r.lease_epoch, r.held_at, r.hold_reason, r.deadline_at, r.start_by, r.parent_id, r.idempotency_key, r.created_at,
  r.updated_at, r.started_at, r.finished_at, r.deleted_at, r.delete_reason, r.last_error, r.error AS error_json,
  r.result AS result_json, r.payload AS payload_json, r.traceparent FROM page JOIN workflow.workflow_run r ON r.id = page.id
ORDER BY page.place DESC, page.created_at DESC, page.id DESC

-- name: run_places
-- file: runs.sql
-- parameters: $1 b(run_id uuid)
SELECT r.id, r.created_at FROM unnest($1::uuid[]) AS b(run_id) JOIN workflow.workflow_run r ON r.id = b.run_id

-- name: count_runs
-- file: runs.sql
SELECT r.type, r.status, count(*) AS runs FROM workflow.workflow_run r
WHERE r.deleted_at IS NULL GROUP BY r.type, r.status ORDER BY r.type, r.status

-- name: next_schedule
-- file: schedules.sql
-- parameters: $1 but(name text)
SELECT s.next_at, now() AS judged_at FROM workflow.workflow_schedule s
WHERE s.paused_at IS NULL AND s.name NOT IN (SELECT but.name FROM unnest($1::text[]) AS but(name))
ORDER BY s.next_at NULLS FIRST LIMIT 1

-- name: take_schedules
-- file: schedules.postgres.sql
-- parameters: $1 but(name text), $2 only text, $3 limit integer
SELECT s.name, s.type, s.cron, s.every_us, s.tz, s.payload AS payload_json, s.overlap, s.catch_up,
  s.window_us, s.next_at, s.paused_at, s.pause_reason, s.origin, s.last_slot_at, s.last_fired_at,
  s.last_run_id, s.extra_run_id, s.last_skipped_at, s.fired, s.skipped, s.trouble, s.created_at, s.updated_at, now() AS judged_at FROM workflow.workflow_schedule s
WHERE s.paused_at IS NULL AND (s.next_at IS NULL OR s.next_at <= now())
  AND s.name NOT IN (SELECT but.name FROM unnest($1::text[]) AS but(name)) AND ($2::text IS NULL OR s.name = $2::text)
ORDER BY s.updated_at, s.name LIMIT $3::integer FOR NO KEY UPDATE SKIP LOCKED

-- name: lock_schedules
-- file: schedules.postgres.sql
-- parameters: $1 b(name text)
SELECT s.name, s.type, s.cron, s.every_us, s.tz, s.payload AS payload_json, s.overlap, s.catch_up,
  s.window_us, s.next_at, s.paused_at, s.pause_reason, s.origin, s.last_slot_at, s.last_fired_at,
  s.last_run_id, s.extra_run_id, s.last_skipped_at, s.fired, s.skipped, s.trouble, s.created_at, s.updated_at FROM workflow.workflow_schedule s
WHERE s.name IN (SELECT b.name FROM unnest($1::text[]) AS b(name)) ORDER BY s.name FOR NO KEY UPDATE

-- name: get_schedule
-- file: schedules.sql
-- parameters: $1 name text
SELECT s.name, s.type, s.cron, s.every_us, s.tz, s.payload AS payload_json, s.overlap, s.catch_up,
  s.window_us, s.next_at, s.paused_at, s.pause_reason, s.origin, s.last_slot_at, s.last_fired_at,
  s.last_run_id, s.extra_run_id, s.last_skipped_at, s.fired, s.skipped, s.trouble, s.created_at, s.updated_at FROM workflow.workflow_schedule s WHERE s.name = $1::text

-- name: due_schedules
-- file: schedules.sql
-- parameters: $1 but(name text), $2 limit integer
SELECT s.name FROM workflow.workflow_schedule s
WHERE s.paused_at IS NULL AND (s.next_at IS NULL OR s.next_at <= now())
  AND s.name NOT IN (SELECT but.name FROM unnest($1::text[]) AS but(name))
ORDER BY s.updated_at, s.name LIMIT $2::integer

-- name: open_among
-- file: schedules.sql
-- parameters: $1 b(run_id uuid)
SELECT r.id FROM unnest($1::uuid[]) AS b(run_id) JOIN workflow.workflow_run r ON r.id = b.run_id WHERE r.finished_at IS NULL

-- name: advance_schedules
-- file: schedules.sql
-- parameters: $1 to $8 b(schedule text, seen timestamptz, next_at timestamptz, slot timestamptz, run_id uuid,
--   fired bigint, skipped bigint, skip timestamptz)
UPDATE workflow.workflow_schedule AS s
SET next_at = b.next_at, updated_at = now(), trouble = NULL,
    last_slot_at = coalesce(b.slot, s.last_slot_at), last_run_id = coalesce(b.run_id, s.last_run_id),
    last_fired_at = CASE WHEN b.fired > 0 THEN now() ELSE s.last_fired_at END,
    last_skipped_at = coalesce(b.skip, s.last_skipped_at), fired = s.fired + b.fired, skipped = s.skipped + b.skipped
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::timestamptz[], $5::uuid[], $6::bigint[], $7::bigint[],
    $8::timestamptz[]) AS b(schedule, seen, next_at, slot, run_id, fired, skipped, skip)
WHERE s.name = b.schedule AND (s.next_at = b.seen OR (s.next_at IS NULL AND b.seen IS NULL))
RETURNING name

-- name: blame_schedules
-- file: schedules.sql
-- parameters: $1 to $2 b(name text, trouble text)
UPDATE workflow.workflow_schedule AS s SET trouble = b.trouble, updated_at = now()
FROM unnest($1::text[], $2::text[]) AS b(name, trouble) WHERE s.name = b.name AND (s.trouble IS NULL OR s.trouble <> b.trouble)

-- name: what_time
-- file: schedules.sql
SELECT now() AS judged_at

-- name: insert_schedules
-- file: schedules.sql
-- parameters: $1 to $11 n(name text, type text, cron text, every_us bigint, tz text, payload json, overlap text,
--   catch_up text, window_us bigint, next_at timestamptz, origin text)
INSERT INTO workflow.workflow_schedule
  (name, type, cron, every_us, tz, payload, overlap, catch_up, window_us, next_at, origin, created_at, updated_at)
SELECT n.name, n.type, n.cron, n.every_us, n.tz, n.payload, n.overlap, n.catch_up, n.window_us, n.next_at, n.origin, now(), now()
FROM (SELECT name, type, cron, every_us, tz, CAST(payload AS json) AS payload, overlap, catch_up, window_us, next_at,
    origin
  FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[],
    $10::timestamptz[], $11::text[]) AS n(name, type, cron, every_us, tz, payload, overlap, catch_up, window_us, next_at, origin)) AS n
WHERE true
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: change_schedules
-- file: schedules.sql
-- parameters: $1 to $11 n(name text, type text, cron text, every_us bigint, tz text, payload json, overlap text,
--   catch_up text, window_us bigint, next_at timestamptz, origin text)
UPDATE workflow.workflow_schedule AS s
SET type = n.type, cron = n.cron, every_us = n.every_us, tz = n.tz, payload = n.payload, overlap = n.overlap,
    catch_up = n.catch_up, window_us = n.window_us, next_at = n.next_at, origin = n.origin, trouble = NULL,
    updated_at = now()
FROM (SELECT name, type, cron, every_us, tz, CAST(payload AS json) AS payload, overlap, catch_up, window_us, next_at,
    origin
  FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[],
    $10::timestamptz[], $11::text[]) AS n(name, type, cron, every_us, tz, payload, overlap, catch_up, window_us, next_at, origin)) AS n WHERE s.name = n.name

-- name: list_schedules
-- file: schedules.sql
-- parameters: $1 after text, $2 limit integer
SELECT s.name, s.type, s.cron, s.every_us, s.tz, s.payload AS payload_json, s.overlap, s.catch_up,
  s.window_us, s.next_at, s.paused_at, s.pause_reason, s.origin, s.last_slot_at, s.last_fired_at,
  s.last_run_id, s.extra_run_id, s.last_skipped_at, s.fired, s.skipped, s.trouble, s.created_at, s.updated_at, now() AS judged_at FROM workflow.workflow_schedule s
WHERE s.name > $1::text ORDER BY s.name LIMIT $2::integer

-- name: pause_schedule
-- file: schedules.sql
-- parameters: $1 reason text, $2 name text
UPDATE workflow.workflow_schedule SET paused_at = now(), pause_reason = $1::text, updated_at = now()
WHERE name = $2::text AND paused_at IS NULL

-- name: resume_schedule
-- file: schedules.sql
-- parameters: $1 name text
UPDATE workflow.workflow_schedule SET paused_at = NULL, pause_reason = NULL, updated_at = now()
WHERE name = $1::text AND paused_at IS NOT NULL

-- name: delete_schedule
-- file: schedules.sql
-- parameters: $1 name text
DELETE FROM workflow.workflow_schedule WHERE name = $1::text

-- name: note_extra_run
-- file: schedules.sql
-- parameters: $1 run_id uuid, $2 name text
UPDATE workflow.workflow_schedule SET extra_run_id = $1::uuid, updated_at = now() WHERE name = $2::text

-- name: load_steps
-- file: steps.postgres.sql
-- parameters: $1 b(run_id uuid)
SELECT s.* FROM unnest($1::uuid[]) AS b(run_id) CROSS JOIN LATERAL (
  SELECT s.run_id, s.step_id, s.kind, s.status, s.attempt, s.due_at, s.started_at, s.completed_at,
         s.input AS input_json, s.output AS output_json, s.error AS error_json
  FROM workflow.workflow_step s WHERE s.run_id = b.run_id ORDER BY s.seq OFFSET 0) AS s

-- name: load_signals
-- file: steps.postgres.sql
-- parameters: $1 b(run_id uuid)
SELECT s.* FROM unnest($1::uuid[]) AS b(run_id) CROSS JOIN LATERAL (
  SELECT s.id, s.run_id, s.name, s.created_at, s.consumed_at, s.payload AS payload_json
  FROM workflow.workflow_signal s WHERE s.run_id = b.run_id AND s.consumed_at IS NULL ORDER BY s.seq OFFSET 0) AS s

-- name: signals_of_run
-- file: steps.postgres.sql
-- parameters: $1 run_id uuid
SELECT s.id, s.run_id, s.name, s.created_at, s.consumed_at, s.payload AS payload_json
FROM workflow.workflow_signal s WHERE s.run_id = $1::uuid ORDER BY s.seq

-- name: next_in_sequence
-- file: steps.postgres.sql
-- nothing is sent: another statement does this here

-- name: record_steps
-- file: steps.postgres.sql
-- parameters: $1 to $11 b(run_id uuid, epoch bigint, step_id text, kind text, status text, attempt integer,
--   elapsed bigint, due_in bigint, input json, output json, error json)
INSERT INTO workflow.workflow_step AS s
  (run_id, lease_epoch, step_id, kind, status, attempt, started_at, completed_at, due_at, input, output, error)
SELECT b.run_id, b.epoch, b.step_id, b.kind, b.status, b.attempt, now() - ((b.elapsed) * interval '1 microsecond'),
       CASE WHEN b.status IN ('succeeded', 'failed') THEN now() END, now() + ((b.due_in) * interval '1 microsecond'), b.input, b.output, b.error
FROM (SELECT run_id, epoch, step_id, kind, status, attempt, elapsed, due_in, CAST(input AS json) AS input,
    CAST(output AS json) AS output, CAST(error AS json) AS error
  FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::bigint[], $8::bigint[],
    $9::text[], $10::text[], $11::text[]) AS b(run_id, epoch, step_id, kind, status, attempt, elapsed, due_in, input, output, error)) AS b
ON CONFLICT (run_id, step_id) DO UPDATE
SET status = excluded.status, attempt = excluded.attempt, lease_epoch = excluded.lease_epoch,
    completed_at = excluded.completed_at,
    due_at = CASE WHEN excluded.status = 'retrying' THEN excluded.due_at ELSE coalesce(s.due_at, excluded.due_at) END,
    done_seq = CASE WHEN excluded.completed_at IS NOT NULL THEN nextval('workflow.workflow_event_id_seq') END,
    output = excluded.output, error = excluded.error
WHERE s.completed_at IS NULL OR s.kind = 'publish'

-- name: clear_steps
-- file: steps.sql
-- parameters: $1 to $2 b(run_id uuid, step_id text)
UPDATE workflow.workflow_step AS s
SET status = 'superseded', step_id = '@superseded ' || s.lease_epoch || ' ' || s.step_id
FROM unnest($1::uuid[], $2::text[]) AS b(run_id, step_id) WHERE s.run_id = b.run_id AND s.step_id = b.step_id AND s.status = 'failed'

-- name: insert_outbox
-- file: steps.sql
-- parameters: $1 to $5 e(run_id uuid, step_id text, place integer, event_type text, payload json)
INSERT INTO workflow.outbox_event (aggregate_id, sequence, event_type, payload, created_at)
SELECT e.run_id, e.place + coalesce(
         (SELECT max(o.sequence) FROM workflow.outbox_event o WHERE o.aggregate_id = e.run_id), 0),
       e.event_type, e.payload, now()
FROM (SELECT run_id, step_id, place, event_type, CAST(payload AS json) AS payload FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::text[]) AS e(run_id, step_id, place, event_type, payload)) AS e
WHERE NOT EXISTS (SELECT 1 FROM workflow.workflow_step s WHERE s.run_id = e.run_id AND s.step_id = e.step_id)

-- name: published_values
-- file: steps.sql
-- parameters: $1 run_id uuid
SELECT s.step_id, s.output AS output_json, s.completed_at
FROM workflow.workflow_step s WHERE s.run_id = $1::uuid AND s.kind = 'publish'
ORDER BY s.completed_at, coalesce(s.done_seq, s.seq)

-- name: history_of_run
-- file: steps.sql
-- parameters: $1 run_id uuid, $2 after bigint, $3 limit integer
SELECT h.idx, h.event_type, h."timestamp" AS happened_at, CAST(h.details AS text) AS details_json
FROM workflow.workflow_history h
WHERE h.workflow_id = $1::uuid AND h.idx > $2::bigint ORDER BY h.idx LIMIT $3::integer

-- name: consume_signals
-- file: steps.sql
-- parameters: $1 to $2 b(signal_id uuid, step_id text)
UPDATE workflow.workflow_signal AS s
SET consumed_at = now(), consumed_by = b.step_id
FROM unnest($1::uuid[], $2::text[]) AS b(signal_id, step_id) WHERE s.id = b.signal_id AND s.consumed_at IS NULL

-- name: pause_runs
-- file: steps.sql
-- parameters: $1 to $4 b(run_id uuid, epoch bigint, wakes bigint, due_in bigint), $5 worker text
UPDATE workflow.workflow_run AS r
SET status = 'paused', version = r.version + 1, crashes = 0, run_at = now() + ((b.due_in) * interval '1 microsecond'), lease_until = NULL,
    leased_by = NULL, updated_at = now()
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[]) AS b(run_id, epoch, wakes, due_in)
WHERE r.id = b.run_id AND CASE WHEN r.status = 'leased' AND r.leased_by = $5::text THEN r.lease_epoch END = b.epoch AND r.wakes = b.wakes
RETURNING id AS run_id

-- name: log_paused
-- file: steps.sql
-- parameters: $1 to $4 b(run_id uuid, epoch bigint, elapsed bigint, data json)
INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
SELECT b.run_id, 'started', b.epoch, NULL, now() - ((b.elapsed) * interval '1 microsecond') FROM (SELECT run_id, epoch, elapsed, CAST(data AS json) AS data FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[]) AS b(run_id, epoch, elapsed, data)) AS b
UNION ALL
SELECT b.run_id, 'paused', b.epoch, b.data, now() FROM (SELECT run_id, epoch, elapsed, CAST(data AS json) AS data FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[]) AS b(run_id, epoch, elapsed, data)) AS b

-- name: progress_runs
-- file: steps.sql
-- parameters: $1 b(run_id uuid)
UPDATE workflow.workflow_run AS r
SET crashes = 0, version = r.version + 1
FROM unnest($1::uuid[]) AS b(run_id) WHERE r.id = b.run_id AND r.crashes > 0

-- name: wake_for_signal
-- file: steps.sql
-- parameters: $1 run_id uuid
UPDATE workflow.workflow_run
SET wakes = wakes + 1, version = version + 1, updated_at = now(),
    run_at = CASE WHEN status = 'paused' AND (run_at IS NULL OR run_at > now()) THEN now() ELSE run_at END
WHERE id = $1::uuid AND finished_at IS NULL
RETURNING id, status

-- name: insert_signal
-- file: steps.sql
-- parameters: $1 id uuid, $2 run_id uuid, $3 name text, $4 payload json
INSERT INTO workflow.workflow_signal (id, run_id, seq, name, payload, created_at)
VALUES ($1::uuid, $2::uuid, -1, $3::text, $4::json, now())
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: get_signal
-- file: steps.sql
-- parameters: $1 id uuid
SELECT s.run_id, s.name, CAST(s.payload AS text) AS payload_json FROM workflow.workflow_signal s WHERE s.id = $1::uuid

-- name: upsert_definitions
-- file: workers.sql
-- parameters: $1 to $5 d(name text, description text, on_cancel text, dead_letter text, on_exhausted text)
INSERT INTO workflow.workflow_registry
  (workflow_name, runtime, description, on_cancel, dead_letter, on_exhausted, updated_at)
SELECT d.name, 'python', d.description, d.on_cancel, d.dead_letter, d.on_exhausted, now() FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS d(name, description, on_cancel, dead_letter, on_exhausted)
WHERE true
ON CONFLICT (workflow_name) DO UPDATE
SET description = excluded.description, on_cancel = excluded.on_cancel, dead_letter = excluded.dead_letter,
    on_exhausted = excluded.on_exhausted,
    runtime = excluded.runtime, updated_at = excluded.updated_at

-- name: introduce_definitions
-- file: workers.sql
-- parameters: $1 to $5 d(name text, description text, on_cancel text, dead_letter text, on_exhausted text)
INSERT INTO workflow.workflow_registry
  (workflow_name, runtime, description, on_cancel, dead_letter, on_exhausted, updated_at)
SELECT d.name, 'python', d.description, d.on_cancel, d.dead_letter, d.on_exhausted, now() FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS d(name, description, on_cancel, dead_letter, on_exhausted)
WHERE true
ON CONFLICT (workflow_name) DO NOTHING

-- name: create_definition
-- file: workers.sql
-- parameters: $1 name text, $2 description text
INSERT INTO workflow.workflow_registry (workflow_name, description, updated_at) VALUES ($1::text, $2::text, now())
ON CONFLICT (workflow_name) DO NOTHING

-- name: enable_definition
-- file: workers.sql
-- parameters: $1 name text, $2 is_enabled boolean
INSERT INTO workflow.workflow_registry (workflow_name, is_enabled, updated_at)
VALUES ($1::text, $2::boolean, now())
ON CONFLICT (workflow_name) DO UPDATE SET is_enabled = excluded.is_enabled, updated_at = excluded.updated_at

-- name: get_definitions
-- file: workers.sql
-- parameters: $1 d(name text)
SELECT g.workflow_name, g.runtime, g.is_enabled, g.description, g.on_cancel, g.dead_letter, g.on_exhausted
FROM unnest($1::text[]) AS d(name) JOIN workflow.workflow_registry g ON g.workflow_name = d.name

-- name: announce_worker
-- file: workers.sql
-- parameters: $1 id text, $2 name text, $3 host text, $4 pid integer, $5 spans json, $6 load json
INSERT INTO workflow.workflow_worker (id, name, host, pid, spans, load, started_at, seen_at)
VALUES ($1::text, $2::text, $3::text, $4::integer, $5::json, $6::json, now(), now())
ON CONFLICT (id) DO UPDATE
SET seen_at = excluded.seen_at, spans = excluded.spans, load = excluded.load, stopped_at = NULL

-- name: retire_worker
-- file: workers.sql
-- parameters: $1 id text
UPDATE workflow.workflow_worker SET stopped_at = now(), seen_at = now() WHERE id = $1::text

-- name: live_workers
-- file: workers.sql
-- parameters: $1 silence bigint
SELECT w.id AS worker_id, w.name, w.host, w.pid, w.started_at, w.seen_at, w.spans AS spans_json
FROM workflow.workflow_worker w
WHERE w.stopped_at IS NULL AND w.seen_at > now() - (($1::bigint) * interval '1 microsecond')
ORDER BY w.started_at

-- name: forget_workers
-- file: workers.sql
-- parameters: $1 silence bigint
DELETE FROM workflow.workflow_worker WHERE seen_at < now() - (($1::bigint) * interval '1 microsecond')

-- name: definition_names
-- file: workers.sql
-- parameters: $1 limit integer
SELECT g.workflow_name FROM workflow.workflow_registry g ORDER BY g.workflow_name LIMIT $1::integer

-- name: notify
-- file: hints.postgres.sql
-- parameters: $1 channel text, $2 kind text
SELECT pg_notify($1::text, $2::text)

-- name: finish_counted
-- file: runs.postgres.sql
-- parameters: $1 to $4 b(run_id uuid, epoch bigint, elapsed bigint, result json), $5 worker text, $6 telling boolean
WITH finished AS (
  UPDATE workflow.workflow_run AS r
  SET status = 'succeeded', version = r.version + 1, lease_until = NULL, leased_by = NULL, updated_at = now(),
      finished_at = now(), result = b.result
  FROM (SELECT run_id, epoch, elapsed, CAST(result AS json) AS result FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[]) AS b(run_id, epoch, elapsed, result)) AS b
  WHERE r.id = b.run_id AND CASE WHEN r.status = 'leased' AND r.leased_by = $5::text THEN r.lease_epoch END = b.epoch
  RETURNING r.id, b.epoch, b.elapsed),
logged AS (
  INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, created_at)
  SELECT id, 'started', epoch, now() - ((elapsed) * interval '1 microsecond') FROM finished
  UNION ALL
  SELECT id, 'succeeded', epoch, now() FROM finished)
SELECT count(*) AS done,
       CASE WHEN $6::boolean AND count(*) > 0 THEN pg_notify('simpleworkflow_workflow', 'finished')::text END AS told
FROM finished

-- name: record_fenced
-- file: steps.postgres.sql
-- parameters: $1 to $11 s(run_id uuid, epoch bigint, step_id text, kind text, status text, attempt integer,
--   elapsed bigint, due_in bigint, input json, output json, error json), $12 worker text
WITH b AS MATERIALIZED (
  SELECT s.* FROM (SELECT run_id, epoch, step_id, kind, status, attempt, elapsed, due_in, CAST(input AS json) AS input,
      CAST(output AS json) AS output, CAST(error AS json) AS error
    FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::bigint[], $8::bigint[],
      $9::text[], $10::text[], $11::text[]) AS s(run_id, epoch, step_id, kind, status, attempt, elapsed, due_in, input, output, error)) AS s CROSS JOIN LATERAL (
    SELECT FROM workflow.workflow_run r
    WHERE r.id = s.run_id AND CASE WHEN r.status = 'leased' AND r.leased_by = $12::text THEN r.lease_epoch END = s.epoch FOR NO KEY UPDATE) AS held),
written AS (
  INSERT INTO workflow.workflow_step AS s
    (run_id, lease_epoch, step_id, kind, status, attempt, started_at, completed_at, due_at, input, output, error)
  SELECT b.run_id, b.epoch, b.step_id, b.kind, b.status, b.attempt, now() - ((b.elapsed) * interval '1 microsecond'),
         CASE WHEN b.status IN ('succeeded', 'failed') THEN now() END, now() + ((b.due_in) * interval '1 microsecond'), b.input, b.output, b.error
  FROM b
  ON CONFLICT (run_id, step_id) DO UPDATE
  SET status = excluded.status, attempt = excluded.attempt, lease_epoch = excluded.lease_epoch,
      completed_at = excluded.completed_at,
      due_at = CASE WHEN excluded.status = 'retrying' THEN excluded.due_at ELSE coalesce(s.due_at, excluded.due_at) END,
      done_seq = CASE WHEN excluded.completed_at IS NOT NULL THEN nextval('workflow.workflow_event_id_seq') END,
      output = excluded.output, error = excluded.error
  WHERE s.completed_at IS NULL OR s.kind = 'publish')
SELECT b.run_id, b.epoch FROM b

-- name: record_results
-- file: steps.postgres.sql
-- parameters: $1 run_ids text, $2 epochs text, $3 step_ids text, $4 elapsed text, $5 inputs text, $6 outputs text,
--   $7 worker text
WITH written AS (
  INSERT INTO workflow.workflow_step (run_id, lease_epoch, step_id, kind, status, started_at, completed_at, input, output)
  SELECT s.run_id, s.epoch, s.step_id, 'step', 'succeeded', now() - ((s.elapsed) * interval '1 microsecond'), now(),
         CAST(s.input AS json), CAST(s.output AS json)
  FROM unnest(CAST($1::text AS uuid[]), CAST($2::text AS bigint[]), string_to_array($3::text, E'\x1f'),
              CAST($4::text AS bigint[]), string_to_array($5::text, E'\x1f', ''), string_to_array($6::text, E'\x1f', ''))
         AS s(run_id, epoch, step_id, elapsed, input, output)
  CROSS JOIN LATERAL (
    SELECT FROM workflow.workflow_run r
    WHERE r.id = s.run_id AND CASE WHEN r.status = 'leased' AND r.leased_by = $7::text THEN r.lease_epoch END = s.epoch FOR NO KEY UPDATE) AS held
  RETURNING 1)
SELECT count(*) AS held FROM written

-- name: timeline
-- file: timeline.postgres.sql
SELECT CASE WHEN NOT pg_is_in_recovery() THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END AS timeline
