-- PostgreSQL's own texts: a server has settings, sessions, statistics and a clock that SQLite has not. Where a remedy is
-- a statement, the server writes it, so that names are quoted as it wants them.

-- name: durability
-- differs: the server's own list of settings, and where each was set
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
-- differs: the server's own lists; an index that a failed build left behind is there but invalid, a trigger may be off
SELECT CASE c.relkind WHEN 'i' THEN 'index' WHEN 'v' THEN 'view' ELSE 'table' END AS kind, c.relname::text AS name,
       coalesce(t.relname, c.relname)::text AS on_table,
       CASE WHEN NOT coalesce(i.indisvalid AND i.indisready, true) THEN 'invalid' ELSE 'well' END AS state
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid
LEFT JOIN pg_catalog.pg_class t ON t.oid = i.indrelid
WHERE n.nspname = '{schema}' AND c.relkind IN ('r', 'p', 'v', 'i')
UNION ALL
SELECT 'trigger', g.tgname::text, c.relname::text, CASE WHEN g.tgenabled IN ('O', 'A') THEN 'well' ELSE 'disabled' END
FROM pg_catalog.pg_trigger g
JOIN pg_catalog.pg_class c ON c.oid = g.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = '{schema}' AND NOT g.tgisinternal
UNION ALL
SELECT 'function', p.proname::text, p.proname::text, 'well'
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = '{schema}'
ORDER BY 1, 2

-- name: lacking_privileges
-- differs: SQLite has no roles. By oid, since names cannot be looked up in a schema that one may not use
-- batch: wanted(kind text, name text, privilege text)
SELECT current_user::text AS role, 'schema ' || n.nspname AS what, 'USAGE' AS privileges,
       format('GRANT USAGE ON SCHEMA %I TO %I', n.nspname, current_user) AS cure
FROM pg_catalog.pg_namespace n
WHERE n.nspname = '{schema}' AND NOT has_schema_privilege(n.oid, 'USAGE')
UNION ALL
SELECT current_user::text, string_agg(x.name, ', ' ORDER BY x.name), x.privileges,
       format('GRANT %s ON %s %s TO %I', x.privileges, x.kind,
              string_agg(format('%I.%I', x.nspname, x.name), ', ' ORDER BY x.name), current_user)
FROM (SELECT wanted.kind, wanted.name, n.nspname,
             string_agg(wanted.privilege, ', ' ORDER BY array_position(
               ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'], wanted.privilege)) AS privileges
      FROM :wanted
      JOIN pg_catalog.pg_class c ON c.relname = wanted.name
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = '{schema}'
        AND NOT CASE wanted.kind WHEN 'SEQUENCE' THEN has_sequence_privilege(c.oid, wanted.privilege)
                                 ELSE has_table_privilege(c.oid, wanted.privilege) END
      GROUP BY wanted.kind, wanted.name, n.nspname) x
GROUP BY x.kind, x.privileges

-- name: server_facts
-- differs: SQLite has no server
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
-- differs: the server has a clock of its own; this moment's, not the transaction's
SELECT clock_timestamp() AS happened_at

-- name: connection_use
-- differs: SQLite has no connections to run out of
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
-- differs: SQLite has neither dead rows nor statistics of tables
SELECT c.relname::text AS name, greatest(c.reltuples, 0)::bigint AS estimated,
       (greatest(c.reltuples, 0) * (1 - f.null_frac))::bigint AS finished,
       coalesce(s.n_live_tup, 0) AS live, coalesce(s.n_dead_tup, 0) AS dead,
       extract(epoch FROM :now - greatest(s.last_autovacuum, s.last_vacuum))::float8 AS vacuumed_ago,
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
WHERE n.nspname = '{schema}' AND c.relkind = 'r'
ORDER BY c.relname

-- name: vacuum_blockers
-- differs: SQLite has no sessions to look at
-- param: older bigint
SELECT CASE WHEN a.state LIKE 'idle in transaction%' THEN 'idle in transaction' ELSE 'long transaction' END AS kind,
       a.pid, coalesce(nullif(a.application_name, ''), 'a session without a name') || ' of ' || a.usename AS who,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds,
       coalesce(age(a.backend_xmin), age(a.backend_xid), 0)::bigint AS xids, 0::bigint AS bytes,
       format('SELECT pg_terminate_backend(%s)', a.pid) AS cure
FROM pg_catalog.pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
  AND a.xact_start < clock_timestamp() - us(:older) AND a.backend_type = 'client backend'
UNION ALL
SELECT 'prepared transaction', NULL, p.gid || ' of ' || p.owner, extract(epoch FROM clock_timestamp() - p.prepared)::float8,
       age(p.transaction)::bigint, 0, format('ROLLBACK PREPARED %L', p.gid)
FROM pg_catalog.pg_prepared_xacts p
WHERE p.database = current_database() AND p.prepared < clock_timestamp() - us(:older)
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
-- differs: the file is the server's business

-- name: rows_ever
-- differs: pg_class has an estimate
