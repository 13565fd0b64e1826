"""Which run a task belongs to.

A task belongs to the run that its context names, and the run keeps a list, so that stopping it reaches them all. Tasks
that serve every run (a flush, a hint) are made in a context of their own and belong to none.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from .branches import BRANCH, branch_of_new_task


class Owner(Protocol):
    tasks: set[asyncio.Future[Any]]


CURRENT: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("simpleworkflow_execution", default=None)


def install_task_factory(loop: asyncio.AbstractEventLoop) -> None:
    """Remember which run created a task; the factory that is already there keeps working inside this one."""
    inner = loop.get_task_factory()

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> Any:
        context = kwargs.get("context")
        owner = CURRENT.get() if context is None else context.get(CURRENT)
        if owner is not None:
            context = contextvars.copy_context() if context is None else context
            branch = branch_of_new_task(coro, context)
            if branch is not None:
                kwargs["context"] = context
                context.run(BRANCH.set, branch)
            if asyncio.iscoroutine(coro):
                coro = _contained(coro)
        task = asyncio.Task(coro, loop=loop, **kwargs) if inner is None else inner(loop, coro, **kwargs)
        if owner is not None:
            owner.tasks.add(task)
            task.add_done_callback(owner.tasks.discard)
        return task

    loop.set_task_factory(factory)


async def _contained(coro: Coroutine[Any, Any, Any]) -> Any:
    """sys.exit() in a task of a run ends that run's execution, not the worker and everybody else's."""
    try:
        return await coro
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"a task of the workflow raised {error!r}") from error


def caught(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """For threads: (value, error), since a future refuses to hold some errors and waits for ever instead."""
    try:
        return function(), None
    except BaseException as error:
        return None, error
