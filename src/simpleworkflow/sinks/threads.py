"""Threads of a sink's own, for what blocks: a look-up of a name, a write, a function of the user's.

Of its own, because one that never returns must not take those that others need. Daemons, because it must not keep the
process from ending either. A closed sink may be used again, by the next worker of a program or the next test: then new
ones are made.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import TypeVar

from ..runtime.tasks import caught
from ..runtime.threads import DaemonThreads

T = TypeVar("T")


class SinkThreads:
    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = f"simpleworkflow-{name}"
        self._pool: DaemonThreads | None = None

    async def call(self, work: Callable[[], T]) -> T:
        if self._pool is None:
            self._pool = DaemonThreads(self._most, self._name)
        context = contextvars.copy_context()
        value: T
        value, error = await asyncio.get_running_loop().run_in_executor(self._pool, caught, lambda: context.run(work))
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Those that are busy are left to themselves."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
