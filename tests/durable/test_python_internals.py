"""What we know of Python beyond its promises is tried at import; a Python that differs costs memory, nothing else."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import warnings
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow import python_internals
from simpleworkflow.model.states import Status


def test_this_python_is_as_expected() -> None:
    assert python_internals.understands_waiting


def test_the_self_test_runs_also_where_a_loop_runs_already() -> None:
    code = """
import asyncio
async def main():
    import simpleworkflow.python_internals as internals
    print(internals.understands_waiting)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize(
    ("name", "blind"),
    [
        ("waiter_of", lambda task: None),
        ("gathered_by", lambda waiter: None),
        ("innermost_of", lambda task: None),
        ("contexts_of_timers", lambda loop: iter(())),
        ("_has_news", lambda *_: False),
    ],
)
def test_the_self_test_fails_when_a_private_field_is_gone(
    monkeypatch: pytest.MonkeyPatch, name: str, blind: Any
) -> None:
    monkeypatch.setattr(python_internals, name, blind)
    assert not python_internals._understands_waiting()


async def test_on_a_python_that_is_not_understood_runs_wait_in_memory_and_still_end(
    app: swf.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_internals, "understands_waiting", False)

    @app.workflow("t.waits.v1")
    async def waits(ctx: swf.Context) -> str:
        both = await asyncio.gather(ctx.wait_for_signal("go", str), ctx.wait_for_signal("on", str))
        return " ".join(both)

    async with app.worker() as embedded:
        handle = await app.trigger(waits)
        worker = embedded._worker
        assert worker is not None
        await eventually(lambda: any(e.is_resident for e in worker._slots), "a run that waits in memory")
        assert (await handle.get()).status is Status.LEASED
        await handle.signal("go", "a")
        await handle.signal("on", "b")
        assert await handle.result(20) == "a b"


def test_a_python_without_the_hook_only_warns_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(warnings, python_internals._UNAWAITED)
    assert not python_internals.hear_of_unawaited(lambda coroutine, frame: True)


def test_a_closure_is_read_also_before_its_variables_have_values() -> None:
    def around() -> Any:
        def function() -> Any:
            return known, unknown

        known = 1
        found = python_internals.closure_of(function)
        unknown = 2
        assert python_internals.closure_of(function) == {"known": 1, "unknown": 2}
        return found

    assert around() == {"known": 1}


async def test_whether_a_coroutine_has_ended_is_seen_from_outside() -> None:
    async def nothing() -> None: ...

    call = nothing()
    assert not python_internals.has_ended(call)
    assert inspect.getcoroutinestate(call) == inspect.CORO_CREATED
    await call
    assert python_internals.has_ended(call)
    assert python_internals.frame_of(call) is None
