"""Triggers that come at the same time, in one event loop, share commits.

A batcher belongs to one loop and to the connections of that loop. Triggers with a key have batches of their own: a key
in somebody's open transaction must not delay the others. When it delays a batch, each trigger of the batch is tried
alone: those that are free succeed at the next try, the others wait, a few at a time, until their time is up.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import TypeVar

from ...config import Settings
from ...model.duration import human
from ...model.errors import SimpleWorkflowError, StoreBusy, StoreError, StoreUnavailable
from ...model.records import Created, NewRun
from ...runtime.batch import MAX_WEIGHT, Batcher, Reply, Sorter, resolve
from ...runtime.hints import Hint, Hinter
from ...store import Ledger
from ...store.operations import runs

T = TypeVar("T")
Answer = Created | SimpleWorkflowError

BATCH = 500
SHARE = 16
"""So many triggers are worth a commit beside another one."""
BULK_AT_ONCE = 2
KEYED_BATCH = 100
ALONE_AT_ONCE = 3
WAITING_AT_ONCE = 2
"""How many triggers may try alone, and how many may wait for a lock, at a time: each holds a connection."""
TIMEOUT_GRACE = 1.0


class TriggerBatcher:
    def __init__(self, loop: asyncio.AbstractEventLoop, ledger: Ledger, hinter: Hinter, settings: Settings) -> None:
        self.loop = loop
        self._ledger = ledger
        self._hinter = hinter
        self._settings = settings
        self._plain: Batcher[NewRun, Answer] = Sorter(
            self._flush,
            flushers=2,
            line=attrgetter("id"),
            kind=lambda _: None,
            flights={None: 2 if ledger.can.has_many_writers else 1},
            limit=BATCH,
            patient=False,
            name="triggers",
            weigh=_weight,
            share=SHARE,
        )
        self._keyed = Batcher(self._flush, limit=KEYED_BATCH, patient=False, name="keyed-triggers", weigh=_weight)
        self._alone: set[asyncio.Task[None]] = set()
        self._trying = asyncio.Semaphore(ALONE_AT_ONCE)
        self._waiting = asyncio.Semaphore(WAITING_AT_ONCE)
        self._closed: StoreUnavailable | None = None
        self.keeper: object = None
        """The generator that closes this batcher at the end of its loop."""

    def create(self, new: NewRun) -> asyncio.Future[Answer]:
        """Durable when the future ends. In the batcher's own loop."""
        if self._closed is not None:
            raise self._closed
        answer: asyncio.Future[Answer] = self.loop.create_future()
        self.take(new, partial(resolve, answer))
        return answer

    def take(self, new: NewRun, reply: Reply[Answer]) -> None:
        """The same with a callback instead of a future."""
        answered = partial(self._answered, new, self.loop.time(), reply)
        (self._plain if new.idempotency_key is None else self._keyed).post(new, answered)

    def _answered(
        self, new: NewRun, since: float, reply: Reply[Answer], answer: Answer | None, error: Exception | None
    ) -> None:
        if not isinstance(error, StoreBusy):
            reply(answer, error if error is None or self._closed is None else self._closed)
            return
        alone = self._answer_alone(new, since + self._settings.store_timeout, reply)
        self._alone.add(task := self.loop.create_task(alone, context=contextvars.Context()))
        task.add_done_callback(partial(self._alone_over, reply))

    def _alone_over(self, reply: Reply[Answer], task: asyncio.Task[None]) -> None:
        """Answered here, not in the task: one that is cancelled before its first step answers nothing."""
        self._alone.discard(task)
        if task.cancelled():
            reply(None, self._closed or StoreUnavailable("the loop that wrote this trigger was stopped"))

    async def _answer_alone(self, new: NewRun, deadline: float, reply: Reply[Answer]) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                reply(await self._create_alone(new, deadline), None)
        except (TimeoutError, StoreBusy):
            what = f"idempotency key {new.idempotency_key!r}" if new.idempotency_key else f"run id {new.id}"
            told = f"somebody's open transaction holds {what}; trigger again to learn what came of it"
            reply(None, StoreBusy(told))
        except Exception as error:
            reply(None, error)

    async def _create_alone(self, new: NewRun, deadline: float) -> Answer:
        """The lock may be that of our own first try, whose connection was lost before it had committed."""
        try:
            async with self._trying:
                (answer,) = await self._create([new], repeated=new.has_new_id)
        except StoreBusy:
            async with self._waiting:
                left = deadline - self.loop.time()
                (answer,) = await self._create([new], timeout=left, impatient=False, repeated=new.has_new_id)
        return answer

    async def _flush(self, new: list[NewRun], _: bool) -> Sequence[Answer]:
        return await self._create(new)

    async def create_many(self, new: Sequence[NewRun]) -> list[Answer]:
        """Two statements at a time: one is prepared here while the other one is being written."""
        answers: list[Answer] = []
        under_way: deque[asyncio.Task[Sequence[Answer]]] = deque()
        try:
            for chunk in _chunks(new):
                under_way.append(self.loop.create_task(self._create(chunk, impatient=False)))
                if len(under_way) == BULK_AT_ONCE:
                    answers += await under_way.popleft()
            while under_way:
                answers += await under_way.popleft()
        finally:
            if under_way:  # one has failed; the others are awaited all the same
                await asyncio.gather(*under_way, return_exceptions=True)
        return answers

    async def _create(
        self, new: list[NewRun], *, timeout: float | None = None, impatient: bool = True, repeated: bool = False
    ) -> Sequence[Answer]:
        is_alone = len(new) == 1 and self._ledger.can.notifies and not repeated
        telling = is_alone and self._hinter.may_tell_now()
        operation = runs.create(new, telling=telling)
        operation.impatient, operation.repeated = impatient, repeated
        timeout = self._settings.store_timeout if timeout is None else timeout
        work = self._ledger.run(operation, timeout=timeout)
        # PostgreSQL's driver lets nothing wait without an end, and a second timer is a second timer for every trigger.
        try:
            answers = await (work if self._ledger.can.bounds_waits else in_time(self._ledger, self._settings, work))
        except StoreError as error:
            if not (telling and self._hinter.may_be_to_blame(error)):
                raise
            return await self._create(new, timeout=timeout, impatient=impatient)
        if not telling:
            self._hinter.tell(Hint.READY)
        return answers

    async def close(self, error: StoreUnavailable, patience: float) -> None:
        """Take no further trigger; those under way get a moment to finish, and then this error. Calling it twice is
        fine."""
        self._closed = self._closed or error
        for batcher in (self._plain, self._keyed):
            await batcher.drain(patience)
            batcher.abandon()
            await batcher.drain(1.0)
        late = list(self._alone)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1.0)
        await self._hinter.stop()
        await self._ledger.close()


async def in_time(ledger: Ledger, settings: Settings, work: Awaitable[T]) -> T:
    """The store keeps its own deadline and knows best what went wrong; this one catches what has none."""
    try:
        async with asyncio.timeout(settings.store_timeout + TIMEOUT_GRACE):
            return await work
    except TimeoutError:
        limit = human(settings.store_timeout)
        raise StoreUnavailable(f"{ledger.url} did not answer within {limit}") from None


def _weight(new: NewRun) -> int:
    return len(new.payload)


def _chunks(new: Sequence[NewRun]) -> Iterator[list[NewRun]]:
    """In order, each bounded in number and weight."""
    chunk: list[NewRun] = []
    weight = 0
    for one in new:
        weight += _weight(one)
        if chunk and (len(chunk) == BATCH or weight > MAX_WEIGHT):
            yield chunk
            chunk, weight = [], _weight(one)
        chunk.append(one)
    if chunk:
        yield chunk
