"""Reading one run: its row, its trail, its history, what it waits for, and waiting until it has finished.

Nothing here changes a run. Handles call these functions with the id of their run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar
from uuid import UUID

from ..model.duration import Duration, seconds
from ..model.errors import ResultTimeout, RunNotFound, StoreUnavailable
from ..model.explanation import Detail, Explanation, Picture
from ..model.payload import decode
from ..model.records import Event, HistoryEvent, Run
from ..store.operations import events, outbox, runs, steps
from ..store.operations import explain as explaining
from ..store.protocol import Operation
from ..store.url import mask_text
from .checks import finished_within
from .client import Client
from .explaining.explain import DEPTH
from .explaining.explain import explain as explain_run
from .explaining.sentence import sentence
from .explaining.words import outbox_line

log = logging.getLogger("simpleworkflow.client")

T = TypeVar("T")

EXPLAIN_AFTER = 5.0
"""Seconds of waiting after which the log says what the run is doing instead."""
PAGE = 1000


class Reading(Protocol[T]):
    """An operation that reads one page of what is on record of a run."""

    def __call__(self, run_id: UUID, /, *, after: int, limit: int) -> Operation[list[T]]: ...


async def get(client: Client, run_id: UUID) -> Run:
    (run,) = await client.run(runs.get([run_id]))
    if run is None:
        raise RunNotFound(f"there is no run {run_id}")
    return run


async def all_events(client: Client, run_id: UUID) -> list[Event]:
    return await _all_pages(client, run_id, events.of_run, lambda event: event.id)


async def history(client: Client, run_id: UUID, after: int) -> list[HistoryEvent]:
    return await _all_pages(client, run_id, steps.happenings, lambda line: line.idx, after)


async def _all_pages(
    client: Client, run_id: UUID, read: Reading[T], place: Callable[[T], int], start: int = 0
) -> list[T]:
    """Page after page; every run has at least one line, so none means that there is no such run."""
    found: list[T] = []
    while True:
        after = place(found[-1]) if found else start
        page = await client.run(read(run_id, after=after, limit=PAGE))
        found += page
        if len(page) < PAGE:
            break
    if not found and not start:
        raise RunNotFound(f"there is no run {run_id}")
    return found


async def published(client: Client, run_id: UUID, name: str, as_type: Any) -> Any:
    text = await client.run(steps.published(run_id, name))
    if text is None:
        await get(client, run_id)  # a run that does not exist has published nothing for another reason
        return None
    return decode(text, as_type, what=f"published {name}")


async def explain(client: Client, run_id: UUID) -> str:
    picture = await _picture(client, run_id, depth=1)
    return sentence(picture.runs[run_id], picture)


async def explanation(client: Client, run_id: UUID) -> Explanation:
    told = explain_run(run_id, await _picture(client, run_id, depth=DEPTH))
    stuck = await client.run(outbox.stuck_of(run_id))
    return replace(told, details=(*told.details, Detail("outbox", outbox_line(stuck)))) if stuck else told


async def _picture(client: Client, run_id: UUID, *, depth: int) -> Picture:
    silence = client.settings.worker_silence
    picture = await client.run(explaining.picture(run_id, depth=depth, silence=silence))
    if picture is None:
        raise RunNotFound(f"there is no run {run_id}")
    return replace(picture, database=str(client.address))


async def wait(client: Client, run_id: UUID, timeout: Duration | None) -> Run:
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + seconds(timeout, what="timeout")
    told = False
    run = await get(client, run_id)
    while not run.is_finished:
        left = EXPLAIN_AFTER if deadline is None else max(deadline - loop.time(), 0.0)
        finished = await finished_within(client.engine, run.id, None if told else left)
        if finished is not None:
            return finished
        if deadline is not None:
            raise ResultTimeout(await explain(client, run.id))
        told = True
        await _log_waiting(client, run.id)
        run = await get(client, run.id)
    return run


async def _log_waiting(client: Client, run_id: UUID) -> None:
    """With log_errors="type" without the sentence of explain, which quotes the texts of errors."""
    try:
        if client.settings.log_errors == "type":
            run = await get(client, run_id)
            told = f"run {run_id} ({run.type}) is {run.status}; simpleworkflow explain {run_id} says more"
        else:
            told = mask_text(await explain(client, run_id))
        log.warning("still waiting: %s", told, extra={"run_id": str(run_id)})
    except StoreUnavailable as error:
        log.warning("still waiting for run %s: %s", run_id, error, extra={"run_id": str(run_id)})
