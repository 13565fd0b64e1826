"""An error of a step, a child or a wait is the same on the first execution and on every replay."""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import simpleworkflow as swf
from simpleworkflow.model.states import Status

ONCE = swf.Retry(max_attempts=1)


class Refusal(Exception):
    pass


class Declined(Refusal):
    def __swf_data__(self) -> dict[str, Any]:
        return {"code": self.args[1]}


@swf.step(retry=swf.Retry(max_attempts=2, initial="1ms"))
async def charge() -> None:
    raise Declined("card declined", 51)


@swf.step()
def charge_in_a_thread() -> None:
    raise Declined("card declined", 51)


@swf.step()
async def bad_output():  # type: ignore[no-untyped-def]
    return object()


def seen(error: Any) -> list[Any]:
    return [
        type(error).__name__,
        str(error),
        error.__cause__ is None,
        error.__context__ is None,
        getattr(error, "error", None),
        getattr(error, "data", None),
    ]


@pytest.mark.parametrize("step", [charge, charge_in_a_thread, bad_output], ids=lambda step: step.__name__)
async def test_a_failed_step_raises_the_same_error_on_every_execution(app: swf.App, step: Any) -> None:
    told: list[Any] = []

    @app.workflow("t.same.v1", retry=ONCE)
    async def handler(ctx: swf.Context) -> None:
        try:
            await ctx.step(step)
        except swf.StepFailed as error:
            told.append(seen(error))
        await ctx.sleep("1100ms")

    async with app.worker():
        await app.run(handler, timeout="15s")
    assert len(told) == 2
    assert told[0] == told[1]
    assert told[0][:1] + told[0][2:4] == ["StepFailed", True, True]
    if step is not bad_output:
        assert told[0][5] == {"code": 51}
        assert "raise Declined" in told[0][4]["traceback"]


async def test_a_failed_step_raises_the_same_error_in_a_plain_def_workflow(app: swf.App) -> None:
    told: list[Any] = []

    @app.workflow("t.same.v1", retry=ONCE)
    def handler(ctx: swf.SyncContext) -> None:
        try:
            ctx.step(charge)
        except swf.StepFailed as error:
            told.append(seen(error))
        ctx.sleep("1100ms")

    async with app.worker():
        await app.run(handler, timeout="15s")
    assert len(told) == 2
    assert told[0] == told[1]
    assert told[0][2:4] == [True, True]


async def test_what_branches_on_a_failed_step_takes_the_same_path_on_every_replay(app: swf.App) -> None:
    paths: list[str] = []
    answers: list[tuple[bool, bool]] = []

    @app.workflow("t.path.v1", retry=ONCE)
    async def handler(ctx: swf.Context) -> str:
        try:
            await ctx.step(charge)
        except swf.StepFailed as error:
            path = f"told: {error.data['code']}" if error.is_a(Declined) else "unknown"
            paths.append(path)
            answers.append((error.is_a(Refusal), error.is_a((ValueError, OSError))))
        await ctx.sleep("1100ms")
        return path

    async with app.worker():
        assert await app.run(handler, timeout="15s") == "told: 51"
    assert paths == ["told: 51"] * 2
    assert answers == [(True, False)] * 2


async def test_a_signal_that_does_not_fit_raises_the_same_error_on_every_execution(app: swf.App) -> None:
    told: list[Any] = []

    @app.workflow("t.misfit.v1", retry=ONCE)
    async def handler(ctx: swf.Context) -> None:
        try:
            await ctx.wait_for_signal("go", int)
        except swf.InvalidInput as error:
            told.append(seen(error))
        try:
            await ctx.wait_for_signal("never", timeout="10ms")
        except swf.SignalTimeout as error:
            told.append(seen(error))
        await ctx.sleep("1100ms")

    async with app.worker():
        handle = await app.trigger(handler)
        await handle.signal("go", "no number")
        await handle.result("15s")
    for kind in ("InvalidInput", "SignalTimeout"):
        mine = [one for one in told if one[0] == kind]
        assert len(mine) >= 2
        assert all(one == mine[0] for one in mine)
        assert mine[0][2:4] == [True, True]


@pytest.mark.parametrize("uncaught_step", [False, True])
async def test_a_childs_error_keeps_class_bases_and_data_for_its_parent(app: swf.App, uncaught_step: bool) -> None:
    told: list[Any] = []

    @app.workflow("t.child.v1", retry=ONCE)
    async def child(ctx: swf.Context) -> None:
        if uncaught_step:
            await ctx.step(charge)
        raise Declined("card declined", 51)

    @app.workflow("t.parent.v1", retry=ONCE)
    async def parent(ctx: swf.Context) -> None:
        try:
            await ctx.run(child)
        except swf.RunFailed as error:
            told.append([*seen(error), [error.is_a(kind) for kind in (Declined, "Refusal", OSError, swf.StepFailed)]])
        await ctx.sleep("1100ms")

    async with app.worker():
        await app.run(parent, timeout="15s")
        with pytest.raises(swf.RunFailed) as caught:
            await app.run(child, timeout="15s")
    assert caught.value.is_a(Declined)
    assert caught.value.data == {"code": 51}
    assert len(told) == 2
    assert told[0] == told[1]
    assert told[0][2:4] == [True, True]
    assert told[0][5:] == [{"code": 51}, [True, True, False, uncaught_step]]


async def test_a_run_that_failed_by_a_step_says_what_the_step_said_on_every_execution(app: swf.App) -> None:
    @app.workflow("t.fails.v1", retry=ONCE)
    async def handler(ctx: swf.Context) -> None:
        await ctx.step(charge)

    async with app.worker():
        with pytest.raises(swf.RunFailed) as caught:
            await app.run(handler, timeout="15s")
    assert caught.value.error["type"] == "StepFailed"
    assert caught.value.error["cause"]["type"] == "Declined"
    assert caught.value.error["cause"]["data"] == {"code": 51}


async def test_non_retryable_errors_of_a_step_are_still_known_by_their_class(app: swf.App) -> None:
    tries: list[int] = []

    @swf.step(retry=swf.Retry(max_attempts=5, initial="1ms", non_retryable=(Refusal,)))
    async def once() -> None:
        tries.append(1)
        raise Declined("no", 1)

    @app.workflow("t.once.v1", retry=ONCE)
    async def handler(ctx: swf.Context) -> None:
        with pytest.raises(swf.StepFailed) as caught:
            await ctx.step(once)
        assert caught.value.is_permanent

    async with app.worker():
        await app.run(handler, timeout="15s")
    assert tries == [1]


async def test_a_step_that_failed_in_a_task_group_is_known_to_whoever_waits_for_the_run(app: swf.App) -> None:
    @app.workflow("t.group.v1", retry=ONCE)
    async def child(ctx: swf.Context) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.step(charge))

    @app.workflow("t.parent.v1", retry=ONCE)
    async def parent(ctx: swf.Context) -> list[Any]:
        try:
            await ctx.run(child)
        except swf.RunFailed as error:
            return [error.is_a(Declined), error.data]
        return []

    async with app.worker():
        assert await app.run(parent, timeout="15s") == [True, {"code": 51}]
        with pytest.raises(swf.RunFailed) as caught:
            await app.run(child, timeout="15s")
    assert (caught.value.is_a(Declined), caught.value.data) == (True, {"code": 51})


PROGRAM = """
import asyncio, os
import simpleworkflow as swf

app = swf.App(os.environ["FLOWS_URL"])

class Declined(Exception):
    pass

@swf.step
async def charge() -> None:
    raise Declined

@app.workflow("t.program.v1", retry=swf.Retry(max_attempts=1))
async def pay(ctx: swf.Context) -> str:
    try:
        await ctx.step(charge)
    except swf.StepFailed as error:
        path = "declined" if error.is_a(Declined) else "unknown"
        await ctx.set_value("path", path)
        await ctx.wait_for_signal("go")
        return path
    return "paid"

async def main() -> None:
    async with app.worker():
        handle = await app.trigger(pay, idempotency_key="one")
        while (await handle.get()).status != "paused":
            await asyncio.sleep(0.01)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize("started_as", [("{name}.py",), ("-m", "{name}")], ids=["file", "module"])
async def test_a_class_of_a_program_is_the_one_that_a_worker_imports(
    app: swf.App, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started_as: tuple[str, ...]
) -> None:
    name = f"flows_{len(started_as)}_{'pg' if '://' in url else 'sqlite'}"
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    monkeypatch.setenv("FLOWS_URL", url)
    command = [sys.executable, *(word.format(name=name) for word in started_as)]
    program = await asyncio.to_thread(
        subprocess.run, command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=60
    )
    assert program.returncode == 0, program.stderr
    monkeypatch.syspath_prepend(str(tmp_path))
    flows = importlib.import_module(name)
    handle = app.handle(key="one")
    assert (await handle.get()).status is Status.PAUSED
    await handle.signal("go", None)
    async with flows.app.worker():
        assert await handle.result("15s") == "declined"
    assert await handle.get_value("path") == "declined"
    await flows.app.close()
