"""Which run a task belongs to.

A task belongs to the run that its context names, and the run keeps a list, so that stopping it reaches them all. Tasks
that serve every run (a flush, a hint) are made in a context of their own and belong to none.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from types import CoroutineType
from typing import Any, Protocol

from ..config import LogErrors
from ..model.failure import failed_steps, one_line
from .branches import BRANCH, IN_STEP, Body, Branch, branch_of_new_task

log = logging.getLogger("simpleworkflow.tasks")


class Owner(Protocol):
    tasks: set[asyncio.Future[Any]]
    ticks: int
    """Counts births and failures of tasks: tells which of them lived at the same time."""
    escaped: list[tuple[int, int, Exception]]
    """(birth, end, error) of the tasks that failed."""

    def tasks_of(self, body: Body) -> set[asyncio.Future[Any]]:
        """The tasks of a step body that is under way."""


CURRENT: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("simpleworkflow_execution", default=None)


def install_task_factory(loop: asyncio.AbstractEventLoop, detail: LogErrors = "type") -> None:
    """Remember which run created a task; the factory that is already there keeps working inside this one. `detail`: how
    much is logged of an error that nobody caught."""
    inner = loop.get_task_factory()

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> Any:
        context = kwargs.get("context")
        owner = CURRENT.get() if context is None else context.get(CURRENT)
        if owner is None:
            return asyncio.Task(coro, loop=loop, **kwargs) if inner is None else inner(loop, coro, **kwargs)
        context = contextvars.copy_context() if context is None else context
        body = context.get(IN_STEP)
        branch = branch_of_new_task(coro, context)
        if branch is not None:
            kwargs["context"] = context
            context.run(BRANCH.set, branch)
        work = contained(coro, owner, context.get(BRANCH)) if asyncio.iscoroutine(coro) else coro
        task = asyncio.Task(work, loop=loop, **kwargs) if inner is None else inner(loop, work, **kwargs)
        if work is not coro:
            # A task that is cancelled before its first turn never reaches what it contains, and Python would complain.
            task.add_done_callback(lambda _: coro.close())
        if body is None or not body.is_over:
            family = owner.tasks if body is None else owner.tasks_of(body)
            family.add(task)
            task.add_done_callback(family.discard)
        return task

    loop.set_task_factory(factory)
    if loop.get_exception_handler() is None:
        loop.set_exception_handler(partial(_tell_uncaught, detail))


def _tell_uncaught(detail: LogErrors, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody caught in this loop, mostly the error of a task that workflow code has left behind. Its text may hold
    personal data."""
    error = context.get("exception")
    what = str(context.get("message") or "something went wrong in the worker's loop")
    told = "" if error is None else f": {type(error).__name__ if detail == 'type' else one_line(error)}"
    log.error("%s%s", what, told, exc_info=error if detail == "traceback" else None)


async def contained(coro: Coroutine[Any, Any, Any], owner: Owner, branch: Branch | None) -> Any:
    """sys.exit() in a task of a run ends that run's execution, not the worker and everybody else's. `branch` is for
    those who look at the task from outside."""
    born = owner.ticks = owner.ticks + 1
    try:
        return await coro
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"a task of the workflow raised {error!r}") from error
    except Exception as error:
        owner.ticks += 1
        owner.escaped.append((born, owner.ticks, error))
        raise


def failed_beside(error: BaseException, escaped: list[tuple[int, int, Exception]]) -> list[Exception]:
    """The errors of tasks that failed while the one lived whose error ended the run: gather raises only the first."""
    culprits = set(failed_steps(error))
    births = [born for born, _, one in escaped if culprits & set(failed_steps(one))]
    return [one for _, end, one in escaped if births and end > min(births)]


def has_not_begun(task: asyncio.Future[Any]) -> bool:
    """Of a task that is alive and that nobody has dismissed by a cancel."""
    return any(inspect.getcoroutinestate(work) == inspect.CORO_CREATED for work in _work_of([task]))


def left_behind(tasks: Iterable[asyncio.Future[Any]]) -> list[str]:
    """The names of the coroutines that are under way and that nobody has dismissed, by a cancel or by a race."""
    inside = [inspect.getcoroutinelocals(work) for work in _work_of(tasks)]
    return [
        str(getattr(held["coro"], "__qualname__", held["coro"]))
        for held in inside
        if "coro" in held and not (held["branch"] is not None and held["branch"].is_lost)
    ]


def _work_of(tasks: Iterable[asyncio.Future[Any]]) -> Iterator[CoroutineType[Any, Any, Any]]:
    for task in tasks:
        if isinstance(task, asyncio.Task) and not (task.done() or task.cancelling()):
            work = task.get_coro()
            if isinstance(work, CoroutineType):
                yield work


def is_being_cancelled() -> bool:
    """Whether the calling task itself was cancelled; a CancelledError may also come from something inside it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def caught(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """For threads: (value, error), since a future refuses to hold some errors and waits for ever instead."""
    try:
        return function(), None
    except BaseException as error:
        return None, error
