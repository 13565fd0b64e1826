"""pgqrs: a loop of dequeue and delete in batches of 100 to drain; fifty decorated workflows in flight for steps.

Its Python package has no worker that runs many jobs at a time, so the loops here are ours, built from its primitives:
a drain figure is the figure of a queue, not of a job runner. Deleting was faster than archiving. Its own limit of a
thousand enqueues a second is lifted, and it has 20 connections. For the latency its own iterator waits for messages,
with the smallest `poll_interval_ms` there is: an idle worker that asks the database again a
millisecond after each answer.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pgqrs
import psycopg
from pgqrs.decorators import step, workflow
from stage import STEPS, Clock, make_clock, payloads, play

QUEUE, WORKFLOW = "bench", "ten_steps"
CONNECTIONS = 20
BATCH = 100
CONSUMERS = 2  # one waits for the database while the other's batch is handled
IN_FLIGHT = 50
BULK = 1_000
SERVING_POLL_MS = 1
clock = Clock(1)


def numbered_step(number: int) -> Any:
    async def nothing(ctx: Any) -> None:
        return None

    nothing.__name__ = f"nothing_{number}"  # the name is the step's identity
    return step(nothing)


NOTHINGS = [numbered_step(number) for number in range(STEPS)]


@workflow(name=WORKFLOW)
async def ten_steps(ctx: Any, payload: Any) -> None:
    clock.tick()
    for nothing in NOTHINGS:
        await nothing(ctx)


async def _store(url: str) -> Any:
    config = pgqrs.Config(url)
    config.max_connections = CONNECTIONS
    config.max_enqueue_per_second = config.max_enqueue_burst = None
    return await pgqrs.connect_with(config)


async def _prepare(url: str) -> None:
    store = await _store(url)
    await pgqrs.admin(store).install()
    await store.queue(QUEUE)
    await pgqrs.workflow().name(WORKFLOW).store(store).create()


class Door:
    def __init__(self, store: Any, producer: Any) -> None:
        self._store = store
        self._producer = producer

    async def one(self, payload: dict[str, Any]) -> None:
        await self._producer.enqueue(payload)

    async def many(self, everything: Sequence[dict[str, Any]]) -> None:
        for start in range(0, len(everything), BULK):
            await pgqrs.produce_batch(self._store, QUEUE, everything[start : start + BULK])


@asynccontextmanager
async def door(url: str) -> AsyncIterator[Door]:
    store = await _store(url)
    yield Door(store, await store.producer(QUEUE))


async def _drain(url: str, jobs: int) -> dict[str, Any]:
    global clock
    store = await _store(url)
    looking = await psycopg.AsyncConnection.connect(url, autocommit=True)
    clock = make_clock(jobs)

    async def consume() -> None:
        consumer = await store.consumer(QUEUE)
        while messages := await consumer.dequeue(BATCH):
            for _ in messages:
                clock.tick()
            await consumer.delete_many([message.id for message in messages])

    async def done() -> int:
        return jobs - await count("SELECT count(*) FROM pgqrs_messages", looking)

    return await watched(looking, done, [consume() for _ in range(CONSUMERS)])


async def _serve(url: str, jobs: int) -> dict[str, Any]:
    global clock
    store = await _store(url)
    looking = await psycopg.AsyncConnection.connect(url, autocommit=True)
    clock = make_clock(jobs)

    async def consume() -> None:
        messages = store.consume_iter(QUEUE, poll_interval_ms=SERVING_POLL_MS)
        async for message in messages:
            clock.tick()
            await messages.delete(message.id)

    async def done() -> int:
        return jobs - await count("SELECT count(*) FROM pgqrs_messages", looking)

    return await watched(looking, done, [consume()])


async def _steps(url: str, jobs: int) -> dict[str, Any]:
    global clock
    store = await _store(url)
    for payload in payloads(jobs):
        await pgqrs.workflow().name(WORKFLOW).store(store).trigger(payload).execute()
    clock = make_clock(jobs)
    waiting: asyncio.Queue[Any] = asyncio.Queue(IN_FLIGHT)
    finished: list[int] = []

    async def feed() -> None:
        consumer = await store.consumer(WORKFLOW)
        while messages := await consumer.dequeue(IN_FLIGHT):
            if finished:
                ids, finished[:] = finished[:], []
                await consumer.archive_many(ids)  # a run refers to its message, so it cannot be deleted
            for message in messages:
                await waiting.put(message)

    async def execute() -> None:
        while True:
            message = await waiting.get()
            await ten_steps(await pgqrs.run().message(message).store(store).execute())
            finished.append(message.id)

    async def done() -> int:
        return await count("SELECT count(*) FROM pgqrs_workflow_runs WHERE status = 'SUCCESS'", looking)

    looking = await psycopg.AsyncConnection.connect(url, autocommit=True)
    return await watched(looking, done, [feed(), *(execute() for _ in range(IN_FLIGHT))])


async def watched(looking: psycopg.AsyncConnection[Any], done: Any, work: list[Any]) -> dict[str, Any]:
    """The figures of this work; a task that fails ends the run with its error, not at the deadline."""
    watch = asyncio.create_task(clock.wait_async(done))
    tasks = [asyncio.create_task(one) for one in work]
    try:
        pending: set[asyncio.Task[Any]] = {watch, *tasks}
        while not watch.done():
            finished, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                task.result()
        return watch.result()
    finally:
        for task in (watch, *tasks):
            task.cancel()
        await asyncio.gather(watch, *tasks, return_exceptions=True)
        await looking.close()


async def count(question: str, looking: psycopg.AsyncConnection[Any]) -> int:
    row = await (await looking.execute(question)).fetchone()
    return int(row[0]) if row else 0


if __name__ == "__main__":
    play(
        prepare=lambda url: asyncio.run(_prepare(url)),
        door=door,
        drain=lambda url, jobs: asyncio.run(_drain(url, jobs)),
        steps=lambda url, jobs: asyncio.run(_steps(url, jobs)),
        serve=lambda url, jobs: asyncio.run(_serve(url, jobs)),
    )
    sys.stdout.flush()
    os._exit(0)  # its threads outlive the interpreter: a normal exit aborts after the work is done
