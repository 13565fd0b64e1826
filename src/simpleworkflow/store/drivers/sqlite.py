"""SQLite: one writer thread per process and file, whole transactions at a time.

Dangers, and what is done about them:
- A deferred transaction that turns into a writer fails at once, whatever the busy timeout: every transaction here
  starts with BEGIN IMMEDIATE and waits for its turn, up to the caller's deadline. No "database is locked" gets out.
- The writer serves operations in order, and later ones may have less time: they leave the queue when it is over.
- SQLite before 3.51.3 can corrupt a WAL file when a passive checkpoint races a writer in another connection.
  Automatic checkpoints are off; the writer thread checkpoints between its own transactions, in TRUNCATE mode, which
  takes the write lock first. Memory-mapped I/O stays off.
- Connections do not survive fork(): a child drops them unclosed (closing would touch the parent's files) and opens
  its own; a fork waits until no thread is inside SQLite (fork.py).
- The host's clock is the store's clock: instants are bound as integers, once per transaction.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ...clock import Clock, SystemClock, monotonic
from ...model.errors import MissingMigration, StoreError, StoreUnavailable
from ...poll_backoff import PollBackoff
from ..catalog import Statement, statements
from ..protocol import Capabilities, Mode, Operation, Query, Row, Rows, Script, Wanted, drive
from ..timelines import Timelines
from ..url import MEMORY
from .fork import GATE
from .sqlite_look import keeping_the_log
from .sqlite_values import bind, converter, read_row

T = TypeVar("T")

MINIMUM = (3, 35, 0)
READERS = 2
CHECKPOINT_BYTES = 4 * 1024 * 1024
CHECKPOINT_RETRY = 1.0
SOONEST_CHECK, BUSY_CHECK, CHANGE_CHECK = 0.002, 0.01, 0.1
"""Seconds between two looks for what others have committed: right after a commit, while each look finds one (a
listener reads the tables, and reads them once for many commits), and while there is none."""
_PATIENCE = 60.0
_BUSY_WAIT = 2.0
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_PASSING = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}


class SqliteDriver:
    dialect = "sqlite"
    can = Capabilities(
        walks_lanes=False, fuses_writes=False, has_many_writers=False, notifies=False, bounds_waits=False
    )

    def __init__(self, path: str, clock: Clock | None = None, _engine: _Engine | None = None) -> None:
        if sqlite3.sqlite_version_info < MINIMUM:
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old; simpleworkflow needs 3.35 or newer")
        self._clock = clock or SystemClock()
        self._path = path
        self._engine = _Engine.share(path) if _engine is None else _engine.joined()
        self._closed = False
        self.timelines = Timelines()  # a file has but one
        self.on_gone: Callable[[Exception, float], object] = lambda error, began: None  # it waits inside SQLite

    def __repr__(self) -> str:
        return f"<SqliteDriver {self._path}>"

    @property
    def home(self) -> object:
        return self._engine

    def twin(self) -> SqliteDriver:
        return SqliteDriver(self._path, self._clock, _engine=self._here())

    async def run(self, operation: Operation[T], *, timeout: float | None = None) -> T:
        patience = _PATIENCE if timeout is None else timeout
        future = self.submit(operation, patience)
        answer = asyncio.wrap_future(future)
        try:
            done, _ = await asyncio.wait((answer,), timeout=patience)
        except asyncio.CancelledError:
            answer.cancel()
            raise
        if not done and future.cancel():  # what has begun keeps its deadline itself
            raise StoreUnavailable(f"{self._path} has been busy or locked for too long; nothing was changed")
        return await answer

    def submit(self, operation: Operation[T], patience: float = _PATIENCE) -> Future[T]:
        """Queue the operation; usable from any thread."""
        if self._closed:
            raise StoreUnavailable("this App is closed")
        return self._here().submit(operation, self._clock, monotonic() + patience)

    def _here(self) -> _Engine:
        """The engine of this process: a forked child leaves its parent's alone and joins its own."""
        if self._engine.pid != os.getpid():
            if self._path == MEMORY:
                raise StoreUnavailable("a database in memory stays with the process that made it; use a file to fork")
            self._engine = _Engine.share(self._path)
        return self._engine

    async def hint(self, kind: str) -> None:
        self._here().tell(kind)

    async def listen(self, heard: Callable[[str], None]) -> None:
        """In this process hints arrive at once; other processes' commits are seen by PRAGMA data_version."""
        loop = asyncio.get_running_loop()

        def relay(kind: str) -> None:
            try:
                loop.call_soon_threadsafe(heard, kind)
            except RuntimeError:
                pass  # that loop has closed; its subscription ends with it

        unsubscribe = self._here().subscribe(relay)
        try:
            if self._path == MEMORY:
                await asyncio.Event().wait()
            await self._watch(heard)
        finally:
            unsubscribe()

    async def _watch(self, heard: Callable[[str], None]) -> None:
        connection: sqlite3.Connection | None = None
        seen, looks = None, PollBackoff(SOONEST_CHECK, busy=BUSY_CHECK)
        try:
            while True:
                try:
                    connection = connection or GATE.through(_connect, self._path, True)
                    version = GATE.through(_version, connection)
                except (sqlite3.Error, StoreUnavailable):
                    seen = None  # whatever is there when it can be seen again is news
                    looks.failed()
                else:
                    if version != seen:
                        seen = version
                        looks.happened()
                        heard("changed")
                await asyncio.sleep(looks.pause(CHANGE_CHECK))
        finally:
            if connection is not None:
                GATE.through(connection.close)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._engine.leave)


class _Engine:
    """The threads and connections of one file in one process, shared by every driver on it."""

    _shared: ClassVar[weakref.WeakValueDictionary[tuple[int, str], _Engine]] = weakref.WeakValueDictionary()
    _forgotten: ClassVar[list[_Engine]] = []  # engines of a parent process: kept so that nothing closes them
    _guard = threading.Lock()

    def __init__(self, path: str) -> None:
        self.path = path
        self.pid = os.getpid()
        self.users = 0
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="simpleworkflow-sqlite-writer")
        self._readers = (
            self._writer
            if path == MEMORY
            else ThreadPoolExecutor(READERS, thread_name_prefix="simpleworkflow-sqlite-reader")
        )
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._statements = statements("sqlite")
        self._converters: dict[str, list[tuple[str, Callable[[Any], Any] | None]]] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._checkpoint_after = 0.0
        self._has_written = False
        self._is_left = False

    @classmethod
    def share(cls, path: str) -> _Engine:
        """The engine of a file in this process, with the caller counted among its users."""
        if path == MEMORY:
            return cls(path).joined()
        key = (os.getpid(), str(Path(path).resolve()))
        with cls._guard:
            engine = cls._shared.get(key)
            if engine is None:
                engine = cls._shared[key] = cls(key[1])
            engine.users += 1
            return engine

    def joined(self) -> _Engine:
        with self._guard:
            self.users += 1
        return self

    @classmethod
    def forget_all(cls) -> None:
        """In a forked child: the parent's connections must be neither used nor closed."""
        cls._forgotten.extend(cls._shared.values())
        cls._shared = weakref.WeakValueDictionary()
        cls._guard = threading.Lock()

    def submit(self, operation: Operation[T], clock: Clock, deadline: float) -> Future[T]:
        if operation.mode in {Mode.READ, Mode.SCAN, Mode.SNAPSHOT}:
            return self._readers.submit(GATE.through, self._read, operation, clock, deadline)
        return self._writer.submit(GATE.through, self._write, operation, clock, deadline)

    def subscribe(self, listener: Callable[[str], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self, kind: str) -> None:
        for listener in tuple(self._listeners):
            listener(kind)

    def leave(self) -> None:
        """The last driver to leave closes the connections, each in a quiet thread pool. What still waits for another
        process to let go of the file waits no longer: nobody is there to hear of it."""
        if self.pid != os.getpid():
            return
        with self._guard:
            self.users -= 1
            if self.users > 0:
                return
            self._shared.pop((os.getpid(), self.path), None)
        self._is_left = True
        self._writer.submit(GATE.through, self._checkpoint_at_the_end)
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=True)
        only_looked = self._connections and self.path != MEMORY and not self._has_written
        with keeping_the_log(self.path) if only_looked else nullcontext():
            for connection in self._connections:
                GATE.through(connection.close)
        self._connections.clear()

    # Everything below runs in the writer thread or a reader thread.

    def _connection(self, read_only: bool) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = _connect(self.path, read_only and self.path != MEMORY)
            self._connections.append(connection)
        return connection

    def _read(self, operation: Operation[T], clock: Clock, deadline: float) -> T:
        connection = self._retry(lambda: self._connection(True), deadline)
        return self._retry(lambda: self._look(connection, operation, clock.wall()), deadline)

    def _look(self, connection: sqlite3.Connection, operation: Operation[T], now: int) -> T:
        """A snapshot is a read transaction; it must not outlive the look, or the log could never be emptied."""
        if operation.mode is not Mode.SNAPSHOT:
            return drive(operation.steps(), lambda q: self._execute(connection, q, now))
        connection.execute("BEGIN")
        try:
            return drive(operation.steps(), lambda q: self._execute(connection, q, now))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _write(self, operation: Operation[T], clock: Clock, deadline: float) -> T:
        connection = self._retry(lambda: self._connection(False), deadline)
        self._retry(lambda: connection.execute("BEGIN IMMEDIATE"), deadline)
        now = clock.wall()
        try:
            result = drive(operation.steps(repeated=operation.repeated), lambda q: self._execute(connection, q, now))
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise _translate(error, self.path) from error
        if connection.total_changes:  # who only looks leaves the log to those who write
            self._has_written = True
        if self.path != MEMORY and self._has_written:
            self._checkpoint_when_large()
        return result

    def _retry(self, action: Callable[[], T], deadline: float) -> T:
        """Wait for other processes; SQLite's own busy handler does the short waits, this one the long ones."""
        while True:
            try:
                return action()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _BUSY or self._is_left or monotonic() > deadline:
                    raise _translate(error, self.path) from error
                threading.Event().wait(random.uniform(0.001, 0.02))
            except sqlite3.Error as error:
                raise _translate(error, self.path) from error

    def _execute(self, connection: sqlite3.Connection, wanted: Wanted, now: int) -> Rows:
        if isinstance(wanted, Script):
            for one in split_statements(wanted.text):
                connection.execute(one)
            return []
        statement = self._statements[wanted.name]
        if not statement.text:
            return []
        if statement.each is None:
            return self._fetch(connection, statement, wanted, now)
        return [
            found
            for row in wanted.parameters[statement.each]
            for found in self._fetch(
                connection, statement, Query(wanted.name, {**wanted.parameters, statement.each: [row]}), now
            )
        ]

    def _fetch(self, connection: sqlite3.Connection, statement: Statement, wanted: Query, now: int) -> list[Row]:
        cursor = connection.execute(statement.text, bind(statement, wanted, now))
        if cursor.description is None:
            return []
        columns = self._converters.get(wanted.name)
        if columns is None:
            columns = self._converters[wanted.name] = [(d[0], converter(d[0])) for d in cursor.description]
        return [read_row(row, columns) for row in cursor.fetchall()]

    def _checkpoint_when_large(self) -> None:
        if monotonic() < self._checkpoint_after:
            return
        try:
            size = os.stat(self.path + "-wal").st_size
        except OSError:
            return
        if size > CHECKPOINT_BYTES:
            self._checkpoint(0.25)

    def _checkpoint_at_the_end(self) -> None:
        if self.path != MEMORY and self._has_written:
            self._checkpoint(1.0)

    def _checkpoint(self, patience: float) -> None:
        """TRUNCATE takes the write lock before it reads the log, so it cannot race another process's writer."""
        self._checkpoint_after = monotonic() + CHECKPOINT_RETRY
        try:
            connection = self._connection(False)
            connection.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_WAIT * 1000)}")
        except sqlite3.Error:
            pass  # a reader is in the way or the disk is full; the next large commit tries again


os.register_at_fork(after_in_child=_Engine.forget_all)


def _connect(path: str, read_only: bool) -> sqlite3.Connection:
    if path != MEMORY and not Path(path).parent.is_dir():
        raise StoreUnavailable(f"cannot open {path}: the folder {Path(path).parent} does not exist")
    connection = sqlite3.connect(path, timeout=_BUSY_WAIT, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchone()
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    return connection


def _version(connection: sqlite3.Connection) -> int:
    """Of what others have committed. The fetch ends its transaction: a fork in between would take that along."""
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def split_statements(script: str) -> list[str]:
    """Statements of a script; trigger bodies hold semicolons, so SQLite itself says where each one ends."""
    found, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return [*found, pending] if pending.strip() else found


def _translate(error: BaseException, path: str) -> BaseException:
    if not isinstance(error, sqlite3.Error):
        return error
    code = getattr(error, "sqlite_errorcode", 0) or 0
    if code & 0xFF in _BUSY:
        return StoreUnavailable(
            f"{path} has been locked by another process for too long ({error}); nothing was changed"
        )
    if code & 0xFF in _PASSING:
        return StoreUnavailable(f"{path} cannot be used now: {error}")
    if "no such table" in str(error) or "no such column" in str(error):
        return MissingMigration(
            f"{path} has not been migrated for this version ({error}); run: simpleworkflow migrate up"
        )
    return StoreError(f"{path}: {error}")
