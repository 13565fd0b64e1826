"""A stop does not wait for a claim that the database holds up, and nothing stays leased to the worker that has gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.ledger import Raw, leased
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.store import Ledger
from simpleworkflow.store.drivers.sqlite import _Engine
from simpleworkflow.store.operations import leases, writing
from simpleworkflow.store.protocol import Operation

RUNS = 5
UNHURRIED = swf.Settings(poll_every=0.1, drain=2.0, sweep_every=60.0, local_check_every=60.0)
"""Nobody but the claim is to be in the way of the stall."""
_STALL = """
CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('lock_timeout', '0', true);
  PERFORM pg_advisory_xact_lock(4711);
  RETURN NULL;
END $$;
CREATE TRIGGER stall AFTER UPDATE ON workflow.workflow_run
FOR EACH ROW WHEN (NEW.leased_by IS NOT NULL AND OLD.leased_by IS NULL) EXECUTE FUNCTION stall();
"""
_WAITING = "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
_ACTIVE = """
SELECT count(*) AS n FROM pg_stat_activity
WHERE application_name = 'simpleworkflow' AND state <> 'idle' AND datname = current_database()
"""


class Stall:
    """Claims get stuck half way, from `begin` until `end`."""

    def __init__(self, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
        self._raw = raw
        self._stuck = threading.Event()
        self._over = threading.Event()
        self._patch = monkeypatch

    def begin(self) -> None:
        if self._raw.is_sqlite:
            self._patch.setattr(_Engine, "_write", self._stalled(_Engine._write))
        else:
            self._raw.connection.execute(_STALL)
            self._raw.sql("SELECT pg_advisory_lock(4711)")

    def _stalled(self, write: Any) -> Any:
        """SQLite's only writer, which nobody can stop."""

        def stalled(engine: _Engine, operation: Operation[Any], *rest: Any) -> Any:
            if operation.name in {"claim"}:
                self._stuck.set()
                self._over.wait(30)
            return write(engine, operation, *rest)

        return stalled

    def is_met(self) -> bool:
        return self._stuck.is_set() if self._raw.is_sqlite else bool(self._raw.sql(_WAITING)[0]["n"])

    def end(self) -> None:
        if not self._over.is_set():
            self._over.set()
            if not self._raw.is_sqlite:
                self._raw.sql("SELECT pg_advisory_unlock(4711)")


@pytest.fixture
def stall(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stall]:
    stall = Stall(raw, monkeypatch)
    yield stall
    stall.end()


@pytest.mark.parametrize("code", ["over", "running"])
async def test_a_claim_that_a_stop_cuts_off_leaves_nothing_leased(url: str, raw: Raw, stall: Stall, code: str) -> None:
    app = swf.App(url, settings=UNHURRIED)
    busy, may_end = threading.Event(), threading.Event()

    @app.workflow("t.busy.v1")
    def stubborn(ctx: swf.SyncContext, order: None) -> None:
        busy.set()
        may_end.wait(30)

    @app.workflow("t.cut.v1", retry=swf.Retry(max_attempts=1))
    async def cut(ctx: swf.Context, number: int) -> None: ...

    embedded = app.worker()  # its loop ends with it: whatever it wanted to do later is never done
    await asyncio.to_thread(embedded.start)
    worker = embedded._worker
    assert worker is not None
    if code == "running":
        await app.trigger(stubborn, None)
        await eventually(busy.is_set, "the code that goes on after the stop")
    handles = await app.trigger_many(cut, list(range(RUNS)), delay=0.5)
    stall.begin()
    await eventually(stall.is_met, "a claim that is under way")
    if raw.is_sqlite:  # its writer cannot be stopped, so what is cut off goes on when it can: after the stop has begun
        asyncio.get_running_loop().call_later(2.0, stall.end)
    await asyncio.to_thread(embedded.stop)
    assert (worker.stays_behind is None) is (code == "over")
    stall.end()
    await eventually(lambda: raw.is_sqlite or not raw.sql(_ACTIVE)[0]["n"], "the end of the stalled statement")
    await app.trigger("t.later.v1", delay=60)  # on SQLite behind all that its writer still had to do
    may_end.set()
    states = [await handle.get() for handle in handles]
    assert [(run.status, run.crashes, run.attempt) for run in states] == [("pending", 0, 0)] * RUNS
    await app.close()


async def test_strangers_are_handed_back_and_what_is_known_is_not(ledger: Ledger) -> None:
    mine = await leased(ledger)
    await leased(ledger)
    (worker,) = await ledger.run(leases.lease_holders())
    assert await ledger.run(writing.release_strangers(worker, {mine.id})) == 1
    assert await ledger.run(leases.leased_by(worker)) == [(mine.id, mine.epoch)]
    assert await ledger.run(writing.release_strangers(worker, {mine.id})) == 0
