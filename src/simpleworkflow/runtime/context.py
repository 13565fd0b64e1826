"""What a handler holds: who it is, how to ask for more time, how to learn that it should stop.

`Context` for `async def`, `SyncContext` for `def`: the same names, awaited or blocking.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Protocol
from uuid import UUID

from ..model.duration import Duration, seconds
from ..model.records import Lease


class Stage(Protocol):
    """What an execution offers to its context."""

    lease: Lease

    def is_stopping(self) -> bool: ...

    def heartbeat(self, lease: float) -> Awaitable[None]: ...

    def heartbeat_blocking(self, lease: float) -> None: ...


class _Identity:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._log: logging.LoggerAdapter[logging.Logger] | None = None

    @property
    def run_id(self) -> UUID:
        return self._stage.lease.id

    @property
    def type(self) -> str:
        return self._stage.lease.type

    @property
    def attempt(self) -> int:
        """How many executions of this run have failed before: 0 the first time."""
        return self._stage.lease.attempt

    @property
    def max_attempts(self) -> int:
        return self._stage.lease.max_attempts

    @property
    def epoch(self) -> int:
        """The fencing token: it grows with every execution; pass it on to systems that can refuse an older one."""
        return self._stage.lease.epoch

    @property
    def idempotency_key(self) -> str | None:
        return self._stage.lease.idempotency_key

    def is_cancelled(self) -> bool:
        """Whether this execution should stop: cancelled, lost, out of time, or the worker is shutting down."""
        return self._stage.is_stopping()

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that knows the run."""
        if self._log is None:
            extra = {"run_id": str(self.run_id), "workflow": self.type}
            self._log = logging.LoggerAdapter(logging.getLogger(f"simpleworkflow.run.{self.type}"), extra)
        return self._log

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type} {self.run_id}>"


class Context(_Identity):
    """The first parameter of an `async def` workflow."""

    async def heartbeat(self, lease: Duration = 30) -> None:
        """Prolong the lease to at least this long from now, and leave a line in the audit trail.

        Leases are renewed without your help; ask only when the trail should show that the work is alive. Does not
        return when the run is no longer ours: the execution is being stopped.
        """
        await self._stage.heartbeat(seconds(lease, what="heartbeat"))


class SyncContext(_Identity):
    """The first parameter of a plain `def` workflow, which runs in a thread."""

    def heartbeat(self, lease: Duration = 30) -> None:
        """As `Context.heartbeat`; raises ExecutionStopped when the run is no longer ours."""
        self._stage.heartbeat_blocking(seconds(lease, what="heartbeat"))
