"""Slips of people who know another library: each gets the line to write, where it was written."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypedDict
from unittest.mock import Mock

import pytest

import simpleworkflow as swf


@dataclass
class Order:
    id: str


class Note(TypedDict):
    text: str


@pytest.fixture
def idle() -> swf.App:
    """An App that opens nothing: declarations need no database."""
    return swf.App(":memory:")


# A step or a function where a workflow is wanted.


@swf.step
async def charge(cents: int) -> str:
    return str(cents)


async def ship_it(ctx: swf.Context) -> None: ...


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (charge, "charge is a step and no workflow: call it in a function that is decorated with @app.workflow"),
        (ship_it, "ship_it is a function and no workflow: decorate it with @app.workflow"),
        (7, "trigger takes a workflow"),
        (Order, "trigger takes a workflow"),
    ],
)
def test_a_step_that_is_triggered_gets_the_line_to_write(idle: swf.App, given: Any, told: str) -> None:
    for call in (idle.sync.run, idle.sync.trigger):
        with pytest.raises(swf.InvalidInput, match=told):
            call(given, 1)


# A workflow called like a function.


def make(app: swf.App) -> dict[str, Any]:
    @app.workflow("a.ship.v1")
    async def ship(ctx: swf.Context, order: Order) -> str:
        return order.id

    @app.workflow("a.count.v1")
    async def count(ctx: swf.Context, n: int) -> int:
        return n

    @app.workflow("a.note.v1")
    async def note(ctx: swf.Context, note: Note) -> str:
        return note["text"]

    @app.workflow("a.tick.v1")
    def tick(ctx: swf.SyncContext) -> str:
        return "tick"

    return {"ship": ship, "count": count, "note": note, "tick": tick}


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("ship", (), {}),
        ("ship", (Order("1"),), {}),
        ("ship", (), {"order": Order("1")}),
        ("ship", (Order("1"), Order("2")), {}),
        ("ship", ({"id": "1"}, Order("2")), {}),
        ("ship", (SimpleNamespace(), Order("1"), 3), {}),
        ("count", (3,), {}),
        ("count", ("x", 3), {}),
        ("count", ([], 3), {}),
        ("note", ({"text": "x"},), {}),
        ("note", ({"text": "x"}, {"text": "y"}), {}),
        ("tick", (), {}),
        ("tick", (3,), {}),
    ],
)
def test_a_workflow_called_without_a_context_says_how_to_run_it(
    idle: swf.App, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(swf.InvalidWorkflow, match=rf"a\.{name}\.v1 is a workflow: write .*\.run\({name}.*passes a"):
        make(idle)[name](*args, **kwargs)


def test_the_sentence_shows_the_lines_of_this_workflow(idle: swf.App) -> None:
    flows = make(idle)
    with pytest.raises(swf.InvalidWorkflow) as caught:
        flows["ship"](Order("1"))
    assert str(caught.value) == (
        "a.ship.v1 is a workflow: write await app.run(ship, order), or in another workflow await ctx.run(ship, order); "
        "a test that calls its function passes a context first: ship(ctx, order)"
    )
    with pytest.raises(swf.InvalidWorkflow) as caught:
        flows["tick"]()
    assert str(caught.value) == (
        "a.tick.v1 is a workflow: write app.sync.run(tick), or in another workflow ctx.run(tick); "
        "a test that calls its function passes a context first: tick(ctx)"
    )


@pytest.mark.parametrize("context", [None, SimpleNamespace(run_id="1"), Mock(), Mock(spec=swf.Context), object()])
async def test_a_test_may_call_the_function_with_a_stand_in_for_its_context(idle: swf.App, context: Any) -> None:
    flows = make(idle)
    assert await flows["ship"](context, Order("7")) == "7"
    assert await flows["count"](context, n=3) == 3
    assert flows["tick"](ctx=context) == "tick"


def test_a_mistake_inside_of_the_function_is_shown_as_it_is(idle: swf.App) -> None:
    @idle.workflow("a.broken.v1")
    def broken(ctx: swf.SyncContext, n: int) -> int:
        return len(n)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        broken(Mock(), 3)


# Workflows that end others.


async def test_on_cancel_and_on_failure_take_a_workflow_or_its_name(app: swf.App) -> None:
    heard: list[tuple[str, Any]] = []

    @app.workflow("a.undo.v1")
    async def undo(ctx: swf.Context, told: dict[str, Any]) -> None:
        heard.append(("undo", told["payload"]))

    @app.workflow("a.bury.v1")
    async def bury(ctx: swf.Context, told: dict[str, Any]) -> None:
        heard.append(("bury", told["payload"]))

    @app.workflow("a.work.v1", on_cancel=undo, on_failure=bury)
    async def work(ctx: swf.Context, how: str) -> None:
        if how == "fail":
            raise swf.PermanentError("no")
        await ctx.wait_for_signal("never")

    assert (work.on_cancel, work.dead_letter) == ("a.undo.v1", "a.bury.v1")
    async with swf.testing.env(app) as env:
        await app.trigger(work, "fail")
        waiting = await app.trigger(work, "wait")
        await env.settle()
        await waiting.cancel()
        await env.settle()
    assert sorted(heard) == [("bury", "fail"), ("undo", "wait")]


@pytest.mark.parametrize("option", ["on_cancel", "on_failure"])
def test_another_thing_in_their_place_is_refused_with_a_sentence(idle: swf.App, option: str) -> None:
    async def undecorated(ctx: swf.Context, told: dict[str, Any]) -> None: ...

    async def work(ctx: swf.Context) -> None: ...

    for wrong in (undecorated, 7, ["a.undo.v1"]):
        with pytest.raises(swf.InvalidPolicy, match=f"a.work.v1: {option} takes a workflow or its name, not "):
            idle.workflow("a.work.v1", **{option: wrong})(work)  # type: ignore[arg-type]
    decorated = idle.workflow("a.work.v1")(work)
    with pytest.raises(swf.InvalidPolicy, match=f"{option} names the workflow itself"):
        swf.App(":memory:").workflow("a.work.v1", **{option: decorated})(work)


async def test_a_worker_warns_of_an_on_cancel_or_on_failure_that_nobody_has_defined(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = swf.App(url)

    @app.workflow("a.work.v1", on_cancel="nope.nope", on_failure="a.served.v1")
    async def work(ctx: swf.Context) -> None: ...

    @app.workflow("a.served.v1", on_cancel="a.declared.v1", on_failure="a.defined.v1")
    async def served(ctx: swf.Context, told: Any) -> None: ...

    app.declare("a.declared.v1")
    await app.definitions.create("a.defined.v1")
    with caplog.at_level(logging.WARNING, "simpleworkflow.worker"):
        async with app.worker(prefixes="a."):
            pass
    told = [record.getMessage() for record in caplog.records if "no worker has served" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("a.work.v1 says on_cancel='nope.nope', a workflow that this App does not have")
    assert told[0].endswith("app.declare('nope.nope')")
    await app.close()


# Too late.


async def test_a_call_that_came_too_late_says_what_the_run_failed_with(app: swf.App) -> None:
    @app.workflow("a.work.v1")
    async def work(ctx: swf.Context, reason: str) -> None:
        raise swf.PermanentError(reason)

    async with app.worker():
        short, long = [await app.trigger(work, reason) for reason in ("no such order 4711", "x" * 5000)]
        for handle in (short, long):
            with pytest.raises(swf.RunFailed):
                await handle.result(20)
    for call in (short.signal("go"), short.cancel(), short.hold(), short.resume()):
        with pytest.raises(swf.AlreadyFinished, match=r"has already failed \(.*no such order 4711\); "):
            await call
    with pytest.raises(swf.AlreadyFinished) as caught:
        await long.signal("go")
    assert len(str(caught.value)) < 500


async def test_a_run_that_succeeded_at_last_has_no_old_error_in_the_sentence(app: swf.App) -> None:
    @app.workflow("a.flaky.v1", retry=swf.Retry(initial=0))
    async def flaky(ctx: swf.Context) -> None:
        if ctx.attempt == 0:
            raise ValueError("once")

    async with app.worker():
        handle = await app.trigger(flaky)
        await handle.result(20)
    with pytest.raises(swf.AlreadyFinished, match=r"has already succeeded; the signal 'go' was not accepted"):
        await handle.signal("go")
