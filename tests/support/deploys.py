"""A workflow whose code is replaced by newer code while a run of it waits for a signal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import simpleworkflow as swf
from simpleworkflow.model.states import Status

GO = "go"
DONE = swf.Retry(max_attempts=1)


class Shop:
    """One workflow, its steps, and what they have done."""

    def __init__(self, app: swf.App) -> None:
        self.app = app
        self.did: list[str] = []

    def step(self, name: str, **options: Any) -> Any:
        async def body(*args: Any) -> str:
            self.did.append(name)
            return name

        body.__name__ = name
        return swf.step(**options)(body)

    def deploy(self, handler: Callable[..., Any], **options: Any) -> Any:
        other = swf.App("unused.db")
        return other.workflow("t.shop.v1", retry=DONE, **options)(handler)


async def until_it_waits(app: swf.App, run_id: Any) -> None:
    while (run := await app.get(run_id)).status is not Status.PAUSED:
        assert not run.is_finished, run.last_error
        await asyncio.sleep(0.01)


async def until_held(app: swf.App, run_id: Any) -> swf.Run:
    while True:
        run = await app.get(run_id)
        assert not run.is_finished, run.last_error
        if run.held_at is not None:
            return run
        await asyncio.sleep(0.01)


async def begun(shop: Shop, handler: Callable[..., Any], **options: Any) -> Any:
    """A run of the old code that waits for its signal."""
    old = shop.deploy(handler, **options)
    with swf.testing.serving(shop.app, old):
        async with shop.app.worker():
            handle = await shop.app.trigger(old)
            await until_it_waits(shop.app, handle.id)
    await handle.signal(GO)
    return handle
