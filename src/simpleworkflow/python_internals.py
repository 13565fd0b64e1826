"""Everything that knows more of Python than it promises: private fields of asyncio, locals of frames, closures.

- What a task waits for (`_fut_waiter`, `_children`, the counters of gather and wait, a TaskGroup's tasks, the coroutine
  inside another one) and which timers are pending (`_scheduled`, `_ready`): whether a run only waits, and may
  leave memory. Without it, runs that wait stay in memory.
- What Python says of a coroutine that went away unawaited: its run fails. Without it, Python's own warning remains.
- Who refers to a coroutine (reference counts): a call that was thrown away is told before a long wait. Without it, at
  the end of the run.
- Whether a coroutine has ended (`cr_frame`), calling frames, locals and closures: for lines in messages, types that are
  defined in functions, and the names that the code of a workflow can ask for. CPython has had these for decades.

Verified on CPython 3.11, 3.12 and 3.13. `understands_waiting` tries the first of these on a small loop of its own when
this module is imported, in about a millisecond. Where it fails, as it may on a later Python, no run is taken out of
memory while it waits: that costs memory and nothing else.
"""

from __future__ import annotations

import asyncio
import dis
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import Context
from types import CoroutineType, FrameType, FunctionType, GeneratorType
from typing import Any, NamedTuple, TypeAlias

log = logging.getLogger("simpleworkflow")

Coro: TypeAlias = "CoroutineType[Any, Any, Any]"

frame_above = sys._getframe
"""The frame that is so many calls away."""
reference_count = sys.getrefcount


# Frames, coroutines, closures.


def locals_of(frame: FrameType) -> Mapping[str, Any]:
    return frame.f_locals


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def has_ended(coroutine: Any) -> bool:
    """Whether this coroutine has returned, raised or been closed."""
    return coroutine.cr_frame is None


def frame_of(coroutine: Any) -> FrameType | None:
    """Where the code of this coroutine stands; None for anything else, and when it has ended."""
    frame: FrameType | None = getattr(coroutine, "cr_frame", None)
    return frame


def closure_of(function: FunctionType) -> dict[str, Any]:
    """What the free variables of a function mean; those that have no value yet are left out."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            pass
    return found


_THROWS_AWAY = ("POP_TOP", "POP_JUMP", "TO_BOOL", "UNARY_NOT")
"""How the names of the instructions begin that end the life of a value which nothing has kept: an expression that is a
statement, and a condition."""


def throws_away(frame: FrameType) -> bool:
    """Whether the instruction that is executed there throws a value away."""
    code = frame.f_code.co_code
    return 0 <= frame.f_lasti < len(code) and dis.opname[code[frame.f_lasti]].startswith(_THROWS_AWAY)


_UNAWAITED = "_warn_unawaited_coroutine"


def hear_of_unawaited(is_told: Callable[[Coro, FrameType | None], bool]) -> bool:
    """From now on ask this function about each coroutine that goes away unawaited, with the frame that let it go;
    Python warns of those that it does not know. False when it has been installed before, or this Python has no such
    hook."""
    usual = getattr(warnings, _UNAWAITED, None)
    if usual is None or getattr(usual, "is_ours", False):
        return False

    def warn(coroutine: Coro) -> None:
        try:
            frame: FrameType | None = sys._getframe(1)
        except ValueError:  # the interpreter is ending
            frame = None
        if not is_told(coroutine, frame):
            usual(coroutine)

    warn.is_ours = True  # type: ignore[attr-defined]
    setattr(warnings, _UNAWAITED, warn)
    return True


# What a task waits for.


class Awaited(NamedTuple):
    """What the innermost await of a task stands for."""

    futures: Collection[asyncio.Future[Any]]
    has_news: bool
    """Some of them are done, and the task has not been told yet."""


def waiter_of(task: asyncio.Task[Any]) -> asyncio.Future[Any] | None:
    """The future that this task is blocked on."""
    waiter: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
    return waiter


def gathered_by(waiter: Any) -> Awaited | None:
    """The futures that asyncio.gather waits for with this one, perhaps gathers themselves."""
    children = set(getattr(waiter, "_children", ()))
    return Awaited(children, _has_news(children, "nfinished", lambda counted: counted)) if children else None


def innermost_of(task: asyncio.Task[Any]) -> Awaited | None:
    """The futures of the asyncio.wait without timeout, or of the TaskGroup, that the task's innermost await is in."""
    innermost: Any = task.get_coro()
    while isinstance(innermost, CoroutineType) and (awaited := code_behind(innermost.cr_await)) is not None:
        innermost = awaited
    frame = frame_of(innermost) if isinstance(innermost, CoroutineType) else None
    if frame is None:
        return None
    if module_of(frame) == "asyncio.tasks" and innermost.cr_code.co_name == "_wait":
        waited: Collection[asyncio.Future[Any]] = frame.f_locals.get("fs") or ()
        if frame.f_locals.get("timeout") is not None:
            return None
        return Awaited(waited, _has_news(waited, "counter", lambda left: len(waited) - left))
    if module_of(frame) == "asyncio.taskgroups":
        tasks: Collection[asyncio.Future[Any]] = getattr(frame.f_locals.get("self"), "_tasks", ())
        return Awaited((), any(task.done() for task in tasks))
    return None


def _has_news(futures: Collection[Any], counter: str, counted: Callable[[int], int]) -> bool:
    """Whether some of these are done and gather or wait has not counted them yet.

    The counter lives in the closure of the callback that hangs on those that are not done. When none is left to ask,
    all are done, and that is news in itself.
    """
    done = sum(bool(future.done()) for future in futures)
    for future in futures:
        for callback, _ in () if future.done() else (getattr(future, "_callbacks", None) or ()):
            function = getattr(callback, "__code__", None)
            if function is not None and counter in function.co_freevars:
                return bool(counted(closure_of(callback)[counter]) != done)
    return done > 0


def contexts_of_timers(loop: asyncio.AbstractEventLoop) -> Iterator[Context]:
    """The contexts of all timers of this loop that have not run; a loop that was delayed has moved some among the ready
    callbacks."""
    for handle in (*getattr(loop, "_scheduled", ()), *getattr(loop, "_ready", ())):
        context = getattr(handle, "_context", None)
        if context is not None and not handle.cancelled():
            yield context


_drivers: dict[Any, str] = {}
"""Code of generators that drive a coroutine, with the name of the local variable that holds it."""


def add_driver(function: Any, variable: str) -> None:
    """This generator function hands through what the coroutine in this variable yields."""
    _drivers[function.__code__] = variable


def code_behind(awaited: Any) -> Coro | None:
    """The coroutine that is awaited here, directly or through a driver; None when it is something else."""
    if isinstance(awaited, GeneratorType) and awaited.gi_frame and (name := _drivers.get(awaited.gi_code)):
        awaited = awaited.gi_frame.f_locals[name]
    return awaited if isinstance(awaited, CoroutineType) else None


# Whether this Python is as expected.


async def _try_waiting() -> bool:
    """Each kind of waiting, seen before and after there is news."""
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()

    async def alone() -> None:
        await first

    async def gathering() -> None:
        await asyncio.gather(first, second)

    async def waiting() -> None:
        await asyncio.wait([first, second])

    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            for future in (first, second):
                group.create_task(_wait_for(future))

    tasks = [loop.create_task(work()) for work in (alone, gathering, waiting, grouped)]
    timer = loop.call_later(3600, first.cancel)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    plain, gather, wait, group = tasks
    gathered = gathered_by(waiter_of(gather))
    seen = [waiter_of(plain) is first, gathered is not None and set(gathered.futures) == {first, second}]
    seen += [not one.has_news for one in (gathered, innermost_of(wait), innermost_of(group)) if one is not None]
    waited = innermost_of(wait)
    seen += [waited is not None and set(waited.futures) == {first, second}, len(list(contexts_of_timers(loop))) == 1]
    timer.cancel()
    first.set_result(None)
    news = [gathered_by(waiter_of(gather)), innermost_of(wait)]
    seen += [one is not None and one.has_news for one in news]
    second.set_result(None)
    await asyncio.gather(*tasks)
    return len(seen) == 9 and all(seen)


async def _wait_for(future: asyncio.Future[None]) -> None:
    await future


def _understands_waiting() -> bool:
    """On a loop and a thread of its own: this module may be imported while a loop runs."""
    answers: list[bool] = []

    def run() -> None:
        try:
            with asyncio.Runner() as runner:
                answers.append(runner.run(_try_waiting()))
        except Exception as error:
            log.debug("asyncio is not as expected", exc_info=error)

    thread = threading.Thread(target=run, name="simpleworkflow-self-test")
    thread.start()
    thread.join()
    return answers == [True]


understands_waiting = _understands_waiting()
if not understands_waiting:  # pragma: no cover - no Python that we know
    log.warning("asyncio of Python %s is not as expected: runs that wait stay in memory", sys.version.partition(" ")[0])
