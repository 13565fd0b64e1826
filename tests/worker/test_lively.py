"""A worker that has just had work looks for more sooner than one at rest, so that a lost hint costs no second."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow import poll_backoff
from simpleworkflow.client.results import ResultWaiters
from simpleworkflow.poll_backoff import PollBackoff
from simpleworkflow.store import Ledger
from simpleworkflow.worker import intake
from simpleworkflow.worker.worker import Worker

RARELY = swf.Settings(poll_every=3_600.0)


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints do not arrive, as behind a pooler or when they are lost."""

    async def listen(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Ledger, "listen", listen)
    monkeypatch.setattr(Worker, "nudge", lambda _: None)


async def is_finished(handle: swf.RunHandle[Any]) -> bool:
    return (await handle.get()).is_finished


@pytest.mark.usefixtures("deaf")
async def test_after_work_the_next_run_is_found_without_a_hint(url: str) -> None:
    app = swf.App(url, settings=RARELY)

    @app.workflow("t.next.v1")
    async def next_one(ctx: swf.Context, nth: int) -> int:
        return nth

    handle = await app.trigger(next_one, 0)
    async with app.worker():
        for nth in (1, 2):
            await eventually(partial(is_finished, handle), "done, though nobody was told")
            handle = await app.trigger(next_one, nth)
        await eventually(partial(is_finished, handle), "the last one too")
    await app.close()


@pytest.mark.usefixtures("deaf")
async def test_a_result_is_found_without_a_hint(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app, may_end, looks, real = swf.App(url, settings=RARELY), threading.Event(), [], ResultWaiters._look

    async def look(waiters: ResultWaiters) -> None:
        looks.append(await real(waiters))

    monkeypatch.setattr(ResultWaiters, "_look", look)

    @app.workflow("t.soon.v1")
    def soon(ctx: swf.SyncContext) -> str:
        assert may_end.wait(60)
        return "here"

    handle = await app.trigger(soon)
    async with app.worker():
        waiting = asyncio.ensure_future(handle.result(timeout=20))
        await eventually(lambda: looks, "a look that came too early")
        may_end.set()
        assert await waiting == "here"
    await app.close()


@pytest.mark.usefixtures("deaf")
async def test_a_worker_looks_ever_less_often_and_no_less_than_it_was_told(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, pauses = swf.App(url, settings=swf.Settings(poll_every=0.2)), []
    real = intake.pause_unless
    monkeypatch.setattr(poll_backoff, "REST", 0)  # what a look takes on a busy machine is another matter

    async def seen(event: asyncio.Event, seconds: float) -> bool:
        pauses.append(seconds)
        return await real(event, seconds)

    monkeypatch.setattr(intake, "pause_unless", seen)

    @app.workflow("t.once.v1")
    async def once(ctx: swf.Context) -> None: ...

    handle = await app.trigger(once)
    async with app.worker():
        await eventually(partial(is_finished, handle), "done")
        await eventually(lambda: intake.SOONEST in pauses and pauses[-1] == 0.2, "rest")
    growing = pauses[pauses.index(intake.SOONEST) : -1]
    assert growing == sorted(growing), "ever less often"
    assert len(set(growing)) > 5
    await app.close()


@pytest.mark.usefixtures("deaf")
async def test_when_a_run_has_left_its_slot_the_next_is_soon_looked_for(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim may have been long ago; who waited for it is there again now."""
    app, may_end, happened, real = swf.App(url, settings=RARELY), threading.Event(), [], PollBackoff.happened

    def seen(looks: PollBackoff) -> None:
        happened.append(looks)
        real(looks)

    @app.workflow("t.long.v1")
    def long(ctx: swf.SyncContext) -> None:
        monkeypatch.setattr(PollBackoff, "happened", seen)  # from here on: the claim is behind us
        assert may_end.wait(60)

    handle = await app.trigger(long)
    async with app.worker():
        may_end.set()
        await eventually(partial(is_finished, handle), "done")
        await eventually(lambda: happened, "the pace was told")
    await app.close()
