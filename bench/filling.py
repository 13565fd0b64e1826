"""Fills a database with many runs by plain SQL: a backlog that waits, or a past that is over.

Runs stand a millisecond apart, because thousands with one and the same date would flatter or punish an index in ways
that no real backlog does. A finished run has its whole story, four events. Both end with VACUUM ANALYZE, so that what
is measured afterwards is the steady state and not the housekeeping after a bulk load.

The danger is a row that no worker would ever have written. So only columns that a run of ours has are set, the tables'
CHECKs stand guard, and the trigger that writes the first event stays on.
"""

from __future__ import annotations

import psycopg
from ground import Ground
from hot import TYPE

_PAYLOAD = "json_build_object('order', n, 'note', repeat('x', 80))"
_PENDING = f"""
INSERT INTO workflow.workflow_run (type, payload, run_at, created_at, updated_at)
SELECT '{TYPE}', {_PAYLOAD}, due, due, due
FROM (SELECT n, now() - interval '1 day' + n * interval '1 millisecond' AS due
      FROM generate_series(%(first)s::int, %(last)s::int) AS n) AS backlog
"""
_FINISHED = f"""
INSERT INTO workflow.workflow_run
  (type, payload, status, version, lease_epoch, max_attempts, run_at, created_at, started_at, finished_at, updated_at,
   result)
SELECT '{TYPE}', {_PAYLOAD}, 'succeeded', 2, 1, 3, due, due, due + interval '5 ms', due + interval '9 ms',
       due + interval '9 ms', 'null'
FROM (SELECT n, now() - interval '2 days' + n * interval '1 millisecond' AS due
      FROM generate_series(1, %(runs)s::int) AS n) AS past
"""
_TOLD = """
INSERT INTO workflow.workflow_event (workflow_id, event_type, lease_epoch, data, created_at)
SELECT r.id, e.event_type, 1, CASE e.event_type WHEN 'leased' THEN json_build_object('worker', 'gone') END,
       CASE e.event_type WHEN 'succeeded' THEN r.finished_at ELSE r.started_at END
FROM workflow.workflow_run r CROSS JOIN unnest(ARRAY['leased', 'started', 'succeeded']) AS e(event_type)
WHERE r.status = 'succeeded'
"""


class NotFilled(Exception):
    """The database does not hold what it was to be filled with."""


def backlog(ground: Ground, url: str, runs: int) -> None:
    """Pending runs, all due, so that there are so many of them."""
    with psycopg.connect(url, autocommit=True) as connection:
        present = count(connection, "pending")
        connection.execute(_PENDING.encode(), {"first": present + 1, "last": runs})
        expect(connection, "pending", runs)
    ground.tidy(url)


def past(ground: Ground, url: str, runs: int) -> None:
    """Finished runs with their events, into an empty database."""
    with psycopg.connect(url, autocommit=True) as connection:
        expect(connection, "succeeded", 0)
        connection.execute(_FINISHED.encode(), {"runs": runs})
        connection.execute(_TOLD.encode())
        expect(connection, "succeeded", runs)
        events = connection.execute("SELECT count(*) FROM workflow.workflow_event").fetchone()
        if events is None or events[0] != 4 * runs:
            raise NotFilled(f"{runs} finished runs should have {4 * runs} events, not {events}")
    ground.tidy(url)


def count(connection: psycopg.Connection[tuple[object, ...]], status: str) -> int:
    row = connection.execute("SELECT count(*) FROM workflow.workflow_run WHERE status = %s", (status,)).fetchone()
    assert row is not None
    assert isinstance(row[0], int)
    return row[0]


def expect(connection: psycopg.Connection[tuple[object, ...]], status: str, runs: int) -> None:
    if (found := count(connection, status)) != runs:
        raise NotFilled(f"there should be {runs} {status} runs, and there are {found}")
