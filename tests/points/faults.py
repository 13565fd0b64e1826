"""Faults at the driver seam: the k-th round trip of a worker process ends in its death or in an error.

The package has no hooks for this. The connection classes that its drivers get from sqlite3 and asyncpg are replaced by
subclasses that count, and the drivers' own methods are wrapped only to learn which operation a statement belongs to: a
round trip counts when it works for a run (claim, load, flush, settle, look at a child), BEGIN and COMMIT included.
Polling, renewals and sweeps come and go with the clock; they would make the numbers meaningless.

Deaths are SIGKILL, before the statement was sent or after its answer came. Errors on PostgreSQL are raised by the
server itself, so that the session is in the state a real deadlock leaves behind; a reset cuts the connection after the
statement was answered, so that a commit has happened and nobody was told. SQLite's errors carry the codes of the real
ones; some of those end the transaction by themselves, and so does the injected `ioerr`. An error after COMMIT (`lost`)
is a disk that wrote and then reported a failure.

Every fault leaves its mark, synced to disk, before it strikes: a test knows that it fired.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from simpleworkflow.store.drivers import postgres, sqlite

BEFORE, AFTER, RESET, LOST = "before", "after", "reset", "lost"
DEATHS = (BEFORE, AFTER)
SERVER_ERRORS = {"deadlock": "40P01", "serialization": "40001", "timeout": "57014"}
FILE_ERRORS = {"busy": sqlite3.SQLITE_BUSY, "full": sqlite3.SQLITE_FULL, "ioerr": sqlite3.SQLITE_IOERR}
ERRORS = {"sqlite": (*FILE_ERRORS, LOST), "postgres": (*SERVER_ERRORS, RESET)}
COUNTED = {
    "claim",
    "load",
    "reload",
    "get",
    "_write_locked",
    "_record_fenced",
    "_record_results",
    "_finish",
    "_finish_counted",
    "_settle",
}

OPERATION: contextvars.ContextVar[str | None] = contextvars.ContextVar("points_operation", default=None)


class Fault(NamedTuple):
    """What happens at which round trip; number 0 never comes."""

    number: int = 0
    kind: str = BEFORE


class Trips:
    """Counts the round trips of this process and says which one is to be struck."""

    def __init__(self, fault: Fault, folder: Path) -> None:
        self._fault = fault
        self._marks = folder / "marks.log"
        self._trips = folder / f"trips-{os.getpid()}.log"
        self._guard = threading.Lock()
        self._count = 0

    def strikes(self, text: str) -> str | None:
        """The fault for this round trip, if it is the one."""
        operation = OPERATION.get()
        if operation not in COUNTED or text.startswith(("ROLLBACK", "PRAGMA")):
            return None
        with self._guard:
            self._count += 1
            number = self._count
            words = " ".join(text.split())[:60]
            _append(self._trips, {"number": number, "operation": operation, "text": words})
        return self._fault.kind if number == self._fault.number else None

    def mark(self) -> None:
        _append(self._marks, {**self._fault._asdict(), "pid": os.getpid()}, sync=True)

    def die(self) -> None:
        self.mark()
        os.kill(os.getpid(), signal.SIGKILL)


def _append(path: Path, line: dict[str, Any], *, sync: bool = False) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, (json.dumps(line) + "\n").encode())
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)


def install(fault: Fault, folder: Path) -> None:
    """From now on, in this process."""
    trips = Trips(fault, folder)
    sqlite3.connect = functools.partial(sqlite3.connect, factory=_file_connection(trips))  # type: ignore[assignment]
    asyncpg.connect = functools.partial(asyncpg.connect, connection_class=_server_connection(trips))
    for name in ("_read", "_write"):
        setattr(sqlite._Engine, name, _named(getattr(sqlite._Engine, name)))
    postgres.PostgresDriver._attempt = _named_async(postgres.PostgresDriver._attempt)  # type: ignore[method-assign]


def _named(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(self: Any, operation: Any, *rest: Any) -> Any:
        token = OPERATION.set(operation.name)
        try:
            return method(self, operation, *rest)
        finally:
            OPERATION.reset(token)

    return run


def _named_async(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def run(self: Any, operation: Any, *rest: Any) -> Any:
        token = OPERATION.set(operation.name)
        try:
            return await method(self, operation, *rest)
        finally:
            OPERATION.reset(token)

    return run


def _file_connection(trips: Trips) -> type[sqlite3.Connection]:
    class Counted(sqlite3.Connection):
        def execute(self, text: str, *rest: Any) -> sqlite3.Cursor:
            kind = trips.strikes(text)
            if kind == BEFORE:
                trips.die()
            if kind in FILE_ERRORS:
                trips.mark()
                if kind == "ioerr" and self.in_transaction:
                    super().execute("ROLLBACK")
                raise _file_error(kind)
            answer = super().execute(text, *rest)
            if kind == AFTER:
                trips.die()
            if kind == LOST:
                trips.mark()
                raise _file_error("ioerr")
            return answer

    return Counted


def _file_error(kind: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(f"injected: {kind}")
    error.sqlite_errorcode = FILE_ERRORS[kind]
    error.sqlite_errorname = f"SQLITE_{kind.upper()}"
    return error


def _server_connection(trips: Trips) -> type[asyncpg.Connection]:
    class Counted(asyncpg.Connection):
        async def execute(self, text: str, *rest: Any, **options: Any) -> Any:
            return await self._struck(text, super().execute, *rest, **options)

        async def fetch(self, text: str, *rest: Any, **options: Any) -> Any:
            return await self._struck(text, super().fetch, *rest, **options)

        async def _struck(self, text: str, call: Callable[..., Any], *rest: Any, **options: Any) -> Any:
            kind = trips.strikes(text)
            if kind == BEFORE:
                trips.die()
            if kind in SERVER_ERRORS:
                trips.mark()
                code = SERVER_ERRORS[kind]
                await super().execute(f"DO $$ BEGIN RAISE 'injected: {kind}' USING ERRCODE = '{code}'; END $$")
            answer = await call(text, *rest, **options)
            if kind == AFTER:
                trips.die()
            if kind == RESET:
                trips.mark()
                self._transport.abort()  # as if by the network: asyncpg learns of it, nobody asked it to close
                while not self.is_closed():
                    await asyncio.sleep(0)
                raise asyncpg.ConnectionDoesNotExistError("injected: connection was closed in the middle of operation")
            return answer

    return Counted
