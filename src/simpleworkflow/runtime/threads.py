"""Threads for user code: daemons, made on demand.

The standard pool is joined when the interpreter ends, so one handler that does not return would keep a program from
ending at all. These threads die with the process; the runs they were busy with are taken over.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .tasks import caught

if TYPE_CHECKING:
    from .execute import Execution

P = ParamSpec("P")
T = TypeVar("T")

_Job = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads(Executor):
    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._idle = 0
        self._made = 0
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._guard:
            if self._closed:
                raise RuntimeError("this worker has ended")
            if self._idle == 0 and self._made < self._most:
                self._made += 1
                name = f"{self._name}-{self._made}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
            else:
                self._idle -= 1
        self._jobs.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Idle threads end; busy ones are left to themselves."""
        with self._guard:
            self._closed = True
            made = self._made
        for _ in range(made):
            self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del job, future, call
            with self._guard:
                self._idle += 1


async def call_in_a_thread(execution: Execution, handler: Callable[..., Any], *args: Any) -> Any:
    """A blocking handler, in the context of its run. A thread cannot be stopped: its end is waited for, unless the
    worker ends before it."""
    context = contextvars.copy_context()

    def work() -> Any:
        execution.threads += (threading.get_ident(),)
        return context.run(handler, *args)

    call = asyncio.get_running_loop().run_in_executor(execution.services.threads, caught, work)
    while not call.done():
        try:
            await asyncio.wait({call})
        except asyncio.CancelledError:
            if execution.is_abandoned or execution.reason is None:
                raise
    result, error = call.result()
    if error is not None:
        raise error
    return result
