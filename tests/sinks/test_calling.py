"""A function as a sink: sync or async, with its exceptions as answers."""

from __future__ import annotations

import asyncio
import sys
import threading
from uuid import uuid4

import pytest

import simpleworkflow as swf
from simpleworkflow.model.errors import InvalidPolicy
from simpleworkflow.sinks import by_run
from simpleworkflow.sinks.by_run import EARLIER_REFUSED
from simpleworkflow.sinks.calling import CallingSink
from simpleworkflow.sinks.protocol import CloudEvent, Refusal

from .made import event, reason, story


async def test_async_functions_run_in_the_loop_and_others_in_a_thread() -> None:
    where: list[threading.Thread] = []

    async def in_loop(_: CloudEvent) -> None:
        where.append(threading.current_thread())

    def in_thread(_: CloudEvent) -> None:
        where.append(threading.current_thread())

    for function in (in_loop, in_thread):
        assert await CallingSink(function).publish([event()]) == [None]
    assert where[0] is threading.current_thread()
    assert where[1] is not threading.current_thread()


class Called:
    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    async def __call__(self, _: CloudEvent) -> None:
        await asyncio.sleep(0)
        self.threads.append(threading.current_thread())


async def test_objects_and_lambdas_that_give_coroutines_are_awaited() -> None:
    called = Called()
    await CallingSink(called).publish([event()])
    await CallingSink(lambda given: called(given)).publish([event()])
    assert called.threads == [threading.current_thread()] * 2


async def test_an_exception_is_a_refusal_with_its_type_and_message() -> None:
    def broken(_: CloudEvent) -> None:
        raise ConnectionError("no broker at amqp://user:hunter2@broker/")

    (answer,) = await CallingSink(broken).publish([event()])
    assert answer == Refusal("ConnectionError: no broker at amqp://user:***@broker/")


async def test_permanent_errors_and_wished_delays_are_passed_on() -> None:
    async def picky(given: CloudEvent) -> None:
        raise swf.PermanentError("never") if given.sequence == 1 else swf.RetryAfter("30s")

    async def grouped(_: CloudEvent) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(picky(event(1)))

    assert await CallingSink(grouped).publish([event()]) == [Refusal("PermanentError: never", is_permanent=True)]
    answers = await CallingSink(picky).publish([event(1), event(2)])
    assert answers[0] == Refusal("PermanentError: never", is_permanent=True)
    assert answers[1] is not None
    assert (answers[1].is_permanent, answers[1].retry_after) == (False, 30)


async def test_after_a_refusal_the_rest_of_that_run_only_is_not_called() -> None:
    called: list[tuple[object, int]] = []
    bad, good = story(4), story(4)

    async def fussy(given: CloudEvent) -> None:
        called.append((given.run_id, given.sequence))
        if given is bad[1]:
            raise ValueError("no")

    mixed = [one for pair in zip(bad, good, strict=True) for one in pair]
    answers = await CallingSink(fussy).publish(mixed)
    assert [answer and answer.reason for answer in answers[0::2]] == [
        None, "ValueError: no", EARLIER_REFUSED, EARLIER_REFUSED,
    ]  # fmt: skip
    assert answers[1::2] == [None] * 4
    assert [sequence for run, sequence in called if run == bad[0].run_id] == [1, 2]
    assert [sequence for run, sequence in called if run == good[0].run_id] == [1, 2, 3, 4]


async def test_runs_go_side_by_side_within_the_limit_and_each_in_order() -> None:
    under_way: set[object] = set()
    most = 0
    seen: list[CloudEvent] = []

    async def slow(given: CloudEvent) -> None:
        nonlocal most
        assert given.run_id not in under_way, "two events of one run at once"
        under_way.add(given.run_id)
        most = max(most, len(under_way))
        for _ in range(3):
            await asyncio.sleep(0)
        under_way.remove(given.run_id)
        seen.append(given)

    runs = [uuid4() for _ in range(10)]
    given = [event(sequence, run=run) for sequence in (1, 2, 3) for run in runs]
    assert await CallingSink(slow, at_once=4).publish(given) == [None] * 30
    assert most == 4
    for run in runs:
        assert [one.sequence for one in seen if one.run_id == run] == [1, 2, 3]


async def test_a_slow_receiver_gets_no_more_events_than_the_relay_has_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(by_run, "monotonic", lambda: now)

    async def slow(_: CloudEvent) -> None:
        nonlocal now
        now += 15

    given = [*story(2), *story(3)]
    answers = await CallingSink(slow, at_once=1).publish(given)
    assert answers == [None, None, None, by_run.NO_TIME_LEFT, Refusal(EARLIER_REFUSED)]


async def test_no_delivery_is_started_that_could_outlast_the_relays_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(by_run, "monotonic", lambda: now)

    async def slow(_: CloudEvent) -> None:
        nonlocal now
        now += 30

    answers = await by_run.deliver_by_run(story(3), CallingSink(slow)._deliver, 1, longest=31)
    assert (answers[0], now) == (None, 30), "a second one could have ended at 61, and the relay gives a call 60"
    assert answers[1] == by_run.NO_TIME_LEFT


async def test_something_cancelled_inside_the_function_is_a_refusal() -> None:
    async def tired(_: CloudEvent) -> None:
        raise asyncio.CancelledError

    (answer,) = await CallingSink(tired).publish([event()])
    assert "cancelled" in reason(answer)


async def test_an_exit_or_a_stop_inside_the_function_is_a_refusal_and_ends_nothing() -> None:
    def leaves(_: CloudEvent) -> None:
        sys.exit("broker gone")

    async def leaves_the_loop(_: CloudEvent) -> None:
        sys.exit("broker gone")

    def stops(_: CloudEvent) -> None:
        next(iter(()))  # a future refuses to hold this one, and would wait for ever

    for function, told in ((leaves, "SystemExit"), (leaves_the_loop, "SystemExit"), (stops, "StopIteration")):
        async with asyncio.timeout(5):
            (answer,) = await CallingSink(function).publish([event()])
        assert told in reason(answer)


async def test_functions_that_hang_take_no_threads_from_others() -> None:
    over = threading.Event()
    sink = CallingSink(lambda _: over.wait(10), at_once=40)

    async def others() -> None:
        await asyncio.sleep(0.01)  # all forty are under way
        await asyncio.to_thread(over.set)

    async with asyncio.timeout(5):
        answers, _ = await asyncio.gather(sink.publish([event() for _ in range(40)]), others())
    assert answers == [None] * 40


async def test_a_cancelled_relay_cancels_the_function() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def waits(_: CloudEvent) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    publishing = asyncio.create_task(CallingSink(waits).publish([event()]))
    await started.wait()
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    assert ended.is_set()


def test_what_cannot_be_called_is_refused_at_once() -> None:
    with pytest.raises(InvalidPolicy, match="not a function"):
        CallingSink("https://example.com")
    with pytest.raises(InvalidPolicy, match="at_once"):
        CallingSink(print, at_once=0)
