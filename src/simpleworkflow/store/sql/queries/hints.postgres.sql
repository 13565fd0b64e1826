-- Wake-up hints. SQLite has none in SQL: there a process tells its own listeners, others watch data_version.

-- name: notify
-- differs: only PostgreSQL has LISTEN and NOTIFY
-- param: channel text, kind text
SELECT pg_notify(:channel, :kind)
