"""Natural batching: while one flush is under way the next batch gathers.

An idle system flushes at once; a busy one shares a commit among everybody who came in the meantime. No timer, no
tuning. One bad item must not strand its neighbours: when a flush is refused the batch is halved until the culprit
stands alone, and only its own caller hears of it. When the database is away items wait (`patient`) or their callers
are told (not patient); a flush that is tried again is told so, since the first try may have committed. One that took
too long is halved, if it can wait: the same again would take as long. Batches stay small for a while then.

`Batcher` keeps all items in order. `Sorter` knows that some items stand in a line (all entries of one run) and that
some need another statement than others: a batch is what one statement can write, several may be under way at once,
and lines stay in order all the same.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from ..clock import monotonic
from ..model.errors import StoreSlow, StoreUnavailable
from ..store.outage import level

log = logging.getLogger("simpleworkflow.batch")

MAX_WEIGHT = 4 * 1024 * 1024
"""Characters of payload in one flush."""
GROWTH = 1.05
"""After a flush that was too large, each one that succeeds lets the next be so much larger."""
SHARE = 50
"""So many items are worth a flush beside another one."""
SLOW = 0.02
"""Seconds after which a flush is held up by something, and nobody else should wait behind it."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Reply = Callable[[Answer | None, Exception | None], object]
"""Hears the answer, or why there is none."""
Waiting = tuple[Item, Reply[Answer], Hashable]
"""An item, who hears of it, and its kind."""


def answer_all(batch: Sequence[Waiting[Item, Answer]], answers: Sequence[Answer]) -> None:
    for one, answer in zip(batch, answers, strict=True):
        one[1](answer, None)


def refuse_all(batch: Iterable[Waiting[Item, Answer]], error: Exception) -> None:
    for one in batch:
        one[1](None, error)


class Batcher(Generic[Item, Answer]):
    _flushers = 1

    def __init__(
        self,
        flush: Callable[[list[Item], bool], Awaitable[Sequence[Answer]]],
        *,
        limit: int,
        patient: bool,
        name: str,
        weigh: Callable[[Item], int] = lambda _: 0,
        answer: Callable[[Sequence[Waiting[Item, Answer]], Sequence[Answer]], None] = answer_all,
        refuse: Callable[[Sequence[Waiting[Item, Answer]], Exception], None] = refuse_all,
    ) -> None:
        """`answer` and `refuse` tell those who posted the items of a batch."""
        self._answer = answer
        self._refuse = refuse
        self._flush = flush
        self._limit = limit
        self._bound: float = limit
        self._patient = patient
        self._name = name
        self._weigh = weigh
        self._kind: Callable[[Item], Hashable] = lambda _: None
        self._waiting: deque[Waiting[Item, Answer]] = deque()
        self._busy: set[asyncio.Task[None]] = set()
        self._in_flight = 0
        self._abandoned = False

    @property
    def backlog(self) -> int:
        return len(self._waiting) + self._in_flight

    def submit(self, item: Item) -> asyncio.Future[Answer]:
        """Queue an item; the future ends when its flush has committed."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.post(item, partial(resolve, answer))
        return answer

    def post(self, item: Item, reply: Reply[Answer]) -> None:
        """The same with a callback instead of a future. A reply must not raise."""
        kind = self._kind(item)
        self._waiting.append((item, reply, kind))
        if len(self._busy) < self._flushers:
            if self._is_enough(kind):
                self._begin()
            else:
                self._wait_a_moment(kind)

    def _begin(self) -> None:
        if self._abandoned and self._patient:
            return  # its owner has done with it, and may be done with the database
        # In a context of its own: it serves everybody, and must not be stopped with the run that came first.
        flusher = asyncio.get_running_loop().create_task(
            self._flush_all(), name=f"simpleworkflow-{self._name}", context=contextvars.Context()
        )
        self._busy.add(flusher)
        flusher.add_done_callback(self._over)

    def _over(self, flusher: asyncio.Task[None]) -> None:
        """One that was cancelled, perhaps before its first step, leaves what waits behind it to another one."""
        self._busy.discard(flusher)
        if self._waiting and not self._patient and not self._busy:
            if self._abandoned:
                self._tell_cut_off(self._waiting)
                self._waiting.clear()
            else:
                self._begin()

    def _is_enough(self, kind: Hashable) -> bool:
        """Whether one more item of this kind makes what is waiting worth a flush beside those under way."""
        return not self._busy

    def _wait_a_moment(self, kind: Hashable) -> None:
        """What is waiting may share the next flush, if the one under way is over soon."""

    async def drain(self, timeout: float) -> bool:
        """Wait until everything is flushed; False when the time is up first."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while self._busy and loop.time() < deadline:
            await asyncio.wait(self._busy, timeout=deadline - loop.time())
        return self.backlog == 0

    def abandon(self) -> None:
        self._abandoned = True
        for flusher in self._busy:
            flusher.cancel()

    async def _flush_all(self) -> None:
        try:
            while batch := self._next_batch():
                self._in_flight += len(batch)
                try:
                    await self._flush_some(batch)
                except BaseException:
                    self._tell_cut_off(batch)
                    raise
                finally:
                    self._in_flight -= len(batch)
                    self._landed(batch)
        finally:
            # At once: what is posted from now on needs a new flusher.
            self._busy.discard(asyncio.current_task())

    def _tell_cut_off(self, batch: Iterable[Waiting[Item, Answer]]) -> None:
        """Code that cancels all tasks of a loop cancels flushes, too: callers that wait for an answer get one. What is
        patient is abandoned by its owner, who knows."""
        if not self._patient:
            refuse_all(batch, StoreUnavailable("the task that was writing this was cancelled before it had an answer"))

    def _next_batch(self) -> list[Waiting[Item, Answer]]:
        """Bounded in number and in weight: a few hundred large payloads would be one enormous statement."""
        batch: list[Waiting[Item, Answer]] = []
        waiting, weight = self._waiting, 0
        while waiting and len(batch) < int(self._bound):
            weight += self._weigh(waiting[0][0])
            if weight > MAX_WEIGHT and batch:
                break
            batch.append(waiting.popleft())
        return batch

    def _landed(self, batch: list[Waiting[Item, Answer]]) -> None:
        """This batch is no longer under way."""

    async def _flush_some(self, batch: list[Waiting[Item, Answer]], repeated: bool = False) -> None:
        try:
            answers = await self._persist([one[0] for one in batch], repeated)
        except Exception as error:
            await self._split(batch, error)
            return
        if self._bound < self._limit:
            self._bound = min(self._bound * GROWTH, self._limit)
        self._answer(batch, answers)

    async def _split(self, batch: list[Waiting[Item, Answer]], error: Exception) -> None:
        if len(batch) > 1 and not isinstance(error, StoreUnavailable):
            middle = len(batch) // 2
            await self._flush_some(batch[:middle], True)
            await self._flush_some(batch[middle:], True)
            return
        self._refuse(batch, error)

    async def _persist(self, items: list[Item], repeated: bool) -> Sequence[Answer]:
        pause = 0.1
        while True:
            try:
                return await self._flush(items, repeated)
            except StoreUnavailable as error:
                if not self._patient:
                    raise
                repeated = True
                if isinstance(error, StoreSlow) and len(items) > 1:
                    told = "%s: %d entries were too many at once: %s"
                    log.log(level(error), told, self._name, len(items), error)
                    return await self._persist_in_pieces(items)
                log.log(level(error), "%s: %d entries wait for the database: %s", self._name, len(items), error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, 5.0)

    async def _persist_in_pieces(self, items: list[Item]) -> list[Answer]:
        """What was too much at once: half of it, and what turns out to be possible from then on."""
        self._bound = len(items) // 2
        answers: list[Answer] = []
        while len(answers) < len(items):
            piece = items[len(answers) : len(answers) + int(self._bound)]
            answers += await self._persist(piece, True)
        return answers


class Sorter(Batcher[Item, Answer]):
    """Several flushes at a time. Items of one line never overtake each other; a batch holds items of one kind.
    `flights` says how many batches of a kind may be under way, one unless told otherwise: they share what is there, so
    that one is being written while another one's callers go on."""

    def __init__(
        self,
        flush: Callable[[list[Item], bool], Awaitable[Sequence[Answer]]],
        *,
        flushers: int,
        line: Callable[[Item], Hashable],
        kind: Callable[[Item], Hashable],
        flights: Mapping[Hashable, int],
        limit: int,
        patient: bool,
        name: str,
        share: int = SHARE,
        **rest: Any,
    ) -> None:
        super().__init__(flush, limit=limit, patient=patient, name=name, **rest)
        self._flushers = flushers
        self._line = line
        self._kind = kind
        self._flights = flights
        self._share = share
        self._flying: dict[int, tuple[Hashable, set[Hashable], float]] = {}
        """The kind and the lines of each batch that is under way, and since when it is."""
        self._free: dict[Hashable, int] = {}
        """How many more batches of each kind may start."""
        self._alarm: asyncio.TimerHandle | None = None

    def _is_enough(self, kind: Hashable) -> bool:
        if not self._busy:
            return True
        if self._alarm is not None and len(self._waiting) < self._share:
            return False  # somebody will look again anyway
        if not self._flights_left(kind):
            return False
        return len(self._waiting) >= self._share or self._is_held_up()

    def _is_held_up(self) -> bool:
        for _, _, since in self._flying.values():  # the first is the oldest
            return monotonic() - since > SLOW
        return False

    def _wait_a_moment(self, kind: Hashable) -> None:
        if self._alarm is None and self._flights_left(kind):
            loop, context = asyncio.get_running_loop(), contextvars.Context()
            self._alarm = loop.call_later(SLOW, self._look_again, context=context)

    def _look_again(self) -> None:
        """Nobody else may come whose item would start what waits behind a flush that is held up."""
        self._alarm = None
        if self._abandoned or len(self._busy) >= self._flushers:
            return
        ready = next((kind for _, _, kind in self._waiting if self._flights_left(kind)), self)
        if ready is self:
            return  # each of them waits for a flight of its own kind to land
        if self._is_held_up() or not self._busy:
            self._begin()
        else:
            self._wait_a_moment(ready)

    def _flights_left(self, kind: Hashable) -> int:
        return self._free.setdefault(kind, self._flights.get(kind, 1))

    def _next_batch(self) -> list[Waiting[Item, Answer]]:
        """The first that may go, and all of its kind; who is passed over keeps its place, and its line behind it."""
        stopped: set[Hashable] = set()
        for _, lines, _ in self._flying.values():
            stopped |= lines
        passed: list[Waiting[Item, Answer]] = []
        batch = self._first(stopped, passed)
        if batch:
            self._fill(batch, stopped, passed)
        self._waiting.extendleft(reversed(passed))
        return batch

    def _first(self, stopped: set[Hashable], passed: list[Waiting[Item, Answer]]) -> list[Waiting[Item, Answer]]:
        while self._waiting:
            one = self._waiting.popleft()
            line = self._line(one[0])
            if self._flights_left(one[2]) and line not in stopped:
                return [one]
            stopped.add(line)
            passed.append(one)
        return []

    def _fill(
        self, batch: list[Waiting[Item, Answer]], stopped: set[Hashable], passed: list[Waiting[Item, Answer]]
    ) -> None:
        waiting, line_of, weigh = self._waiting, self._line, self._weigh
        item, _, chosen = batch[0]
        lines, weight = {line_of(item)}, weigh(item)
        share = -(-(len(waiting) + 1) // self._flights_left(chosen))
        room = min(max(share, self._share), int(self._bound)) - 1
        while waiting and room > 0:
            one = waiting.popleft()
            item, _, kind = one
            line = line_of(item)
            if kind == chosen and line not in stopped:
                heavier = weight + weigh(item)
                if heavier <= MAX_WEIGHT:
                    weight = heavier
                    room -= 1
                    batch.append(one)
                    lines.add(line)
                    continue
            stopped.add(line)
            passed.append(one)
        self._free[chosen] -= 1
        self._flying[id(batch)] = chosen, lines, monotonic()

    def _landed(self, batch: list[Waiting[Item, Answer]]) -> None:
        kind, _, _ = self._flying.pop(id(batch))
        self._free[kind] += 1


def resolve(future: asyncio.Future[Answer], answer: Answer | None, error: Exception | None) -> None:
    """A reply for a future; one that nobody waits for any more is left alone."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(answer)  # type: ignore[arg-type]  # with no error there is an answer
