-- Which history of the database this server writes.

-- name: timeline
-- differs: only here can a server be replaced by one that has not seen the last commits. A standby that takes over counts
-- one further; one that is still a standby says nothing.
SELECT CASE WHEN NOT pg_is_in_recovery() THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END AS timeline
