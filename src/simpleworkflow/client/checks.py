"""Questions that several calls of the door ask the database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from difflib import get_close_matches
from uuid import UUID

from ..model.errors import NotRunnable
from ..model.records import Run
from ..store.operations import workers
from .engine import Engine

ALIKE = 0.85
"""How alike two names must be for one to be taken for a mistyped other."""


async def check_served(engine: Engine, type: str, what: str) -> None:
    """For require=: has anybody ever served this type, and (what == "worker") does anybody now?"""
    if not await engine.run(workers.definitions([type])):
        raise NotRunnable(f"no worker has ever served {type}; check the name, or start a worker that has it")
    if what == "worker":
        alive = await engine.run(workers.alive(silence=engine.settings.worker_silence))
        if not any(worker.serves(type) for worker in alive):
            raise NotRunnable(f"no live worker serves {type} now; nothing was created")


def similar_name(name: str, known: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    return next(iter(get_close_matches(name, known, n=1, cutoff=ALIKE)), None)


async def finished_within(engine: Engine, run_id: UUID, limit: float | None) -> Run | None:
    """The run, if it finishes before so many seconds have passed (None: however long it takes)."""
    waiting = asyncio.ensure_future(engine.call(lambda: engine.waiters.finished(run_id)))
    try:
        done, _ = await asyncio.wait({waiting}, timeout=limit)
        return waiting.result() if done else None
    finally:
        waiting.cancel()
