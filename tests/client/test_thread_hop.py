"""Triggers cross into the engine's thread together; each is answered in its own loop, or told that it is too late."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import simpleworkflow as swf
from simpleworkflow.client.triggers.thread_hop import ThreadHop
from simpleworkflow.model.errors import StoreUnavailable
from simpleworkflow.runtime.batch import Reply


class Engine:
    """An event loop in a thread of its own, as an App has one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.inside: list[tuple[int, Reply[int]]] = []
        self.hops = 0

    def take(self, item: int, reply: Reply[int]) -> None:
        self.inside.append((item, reply))

    def do(self, work: object) -> None:
        done = threading.Event()

        def called() -> None:
            work()  # type: ignore[operator]
            done.set()

        self.loop.call_soon_threadsafe(called)
        assert done.wait(5)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()


async def test_those_who_come_together_cross_in_one_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    hop: Any = ThreadHop(engine.loop, engine.take)
    rung: list[object] = []
    real = engine.loop.call_soon_threadsafe
    monkeypatch.setattr(engine.loop, "call_soon_threadsafe", lambda *a, **k: (rung.append(a), real(*a, **k))[1])
    stop = threading.Event()
    real(stop.wait)  # the engine is busy until all of them are queued
    answers = [hop.create(n) for n in range(50)]
    assert not rung, "the engine is woken after this turn of the loop"
    await asyncio.sleep(0)
    assert len(rung) == 1
    stop.set()
    engine.do(lambda: None)
    engine.do(lambda: [reply(item * 10, None) for item, reply in engine.inside])
    assert await asyncio.wait_for(asyncio.gather(*answers), 5) == [n * 10 for n in range(50)]
    engine.close()


async def test_a_loop_that_is_blocked_holds_up_nobody_else() -> None:
    """Whoever came first rings the bell only for itself."""
    engine = Engine()
    hop: Any = ThreadHop(engine.loop, lambda item, reply: reply(item + 1, None))
    entered, go_on = threading.Event(), threading.Event()

    def blocked() -> int:
        async def enter_and_block() -> int:
            answer = hop.create(1)
            entered.set()
            go_on.wait(5)  # the loop does not turn
            return await answer

        return asyncio.run(enter_and_block())

    first = asyncio.create_task(asyncio.to_thread(blocked))
    assert await asyncio.to_thread(entered.wait, 5)
    assert await asyncio.wait_for(hop.create(2), 5) == 3
    go_on.set()
    assert await first == 2
    engine.close()


async def test_whoever_stands_queued_when_the_room_closes_is_told_as_well() -> None:
    engine = Engine()
    hop: Any = ThreadHop(engine.loop, engine.take)
    queued = hop.create(1)
    hop.refuse(StoreUnavailable("closed"))
    engine.do(lambda: hop.clear(StoreUnavailable("closed")))
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(queued, 5)
    assert engine.inside == []
    engine.close()


async def test_each_is_answered_in_the_loop_it_came_from() -> None:
    engine = Engine()
    hop: Any = ThreadHop(engine.loop, lambda item, reply: reply(item + 1, None))

    def elsewhere(numbers: range) -> list[int]:
        async def all_of_them() -> list[int]:
            return await asyncio.gather(*(hop.create(n) for n in numbers))

        return asyncio.run(all_of_them())

    groups = await asyncio.gather(*(asyncio.to_thread(elsewhere, range(n, n + 20)) for n in (0, 100, 200)))
    assert groups == [[n + 1 for n in range(start, start + 20)] for start in (0, 100, 200)]
    engine.close()


async def test_whoever_is_inside_when_the_room_closes_is_told_and_nobody_comes_in_later() -> None:
    engine = Engine()
    hop: Any = ThreadHop(engine.loop, engine.take)
    waiting = [hop.create(n) for n in range(3)]
    engine.do(lambda: None)
    hop.refuse(StoreUnavailable("closed"))
    engine.do(lambda: hop.clear(StoreUnavailable("closed")))
    told = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert [type(error) for error in told] == [StoreUnavailable] * 3
    with pytest.raises(StoreUnavailable):
        hop.create(4)
    engine.do(lambda: [reply(1, None) for _, reply in engine.inside])  # an answer that comes too late harms nobody
    engine.close()


async def test_a_caller_that_gives_up_does_not_disturb_the_others() -> None:
    engine = Engine()
    hop: Any = ThreadHop(engine.loop, engine.take)
    impatient, patient = hop.create(1), hop.create(2)
    impatient.cancel()
    await asyncio.sleep(0)
    engine.do(lambda: None)
    engine.do(lambda: [reply(item, None) for item, reply in engine.inside])
    assert await asyncio.wait_for(patient, 5) == 2
    engine.close()


async def test_fifty_callers_each_get_their_own_run(app: swf.App) -> None:
    """Natural batching of triggers: every caller returns only when its own run is durable."""

    @app.workflow("t.many.v1")
    async def many(ctx: swf.Context, number: int) -> int:
        return number

    handles = await asyncio.gather(*(app.trigger(many, n) for n in range(200)))
    assert [(await handle.get()).payload for handle in handles] == list(range(200))
    assert len({handle.id for handle in handles}) == 200
