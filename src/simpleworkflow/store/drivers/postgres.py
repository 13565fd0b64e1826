"""PostgreSQL through asyncpg.

Dangers, and what is done about them:
- A socket can die without a word. Every call has a deadline; when it passes the connection is torn down, never
  trusted again. Keepalive and TCP_USER_TIMEOUT shorten the wait where the platform has them.
- A commit can succeed while its answer is lost. The operation is then repeated with `repeated=True`, and it decides
  by epoch and status what the first try did.
- Deadlocks, serialization failures and lock timeouts are repeated after a short random pause.
- A wrong plan, once cached, ruins the hot statements: engine connections run with the planner's other roads closed,
  and look-ups are priced so that a table which was still empty when the plan was made is not read from end to end.
  Left to itself PostgreSQL plans every claim anew, because it takes a plan that knows the batch for cheaper; with the
  roads closed there is no other to find. Where the best road depends on what is asked (a scan), each is planned.
- A standby that takes over may not have seen the last commits, leases among them. Every new connection says on which
  timeline its server is; when that changes, nothing is leased until the owner of this driver has verified its leases.
- Behind a transaction pooler (?pgbouncer=true) session settings and prepared statements do not hold, so there each
  operation opens its transaction with SET LOCAL, nothing is prepared, and hints come from polling alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any, TypeVar

from ...clock import monotonic
from ...model.errors import (
    MissingExtra,
    MissingMigration,
    SimpleWorkflowError,
    StoreBusy,
    StoreError,
    StoreSlow,
    StoreUnavailable,
)
from ...model.install import needs
from ..catalog import Statement, adapt_batch, statements
from ..protocol import Capabilities, Mode, Operation, Rows, Script, Wanted, drive_async, query
from ..timelines import Timelines
from ..url import DatabaseURL
from .postgres_session import TROUBLE, close, keep_alive, keep_silent, part, reset

try:
    import asyncpg
except ImportError:  # pragma: no cover - the message is tested by hiding the package
    asyncpg = None

T = TypeVar("T")

_LOST: tuple[type[Exception], ...] = (OSError, TimeoutError)
if asyncpg is not None:
    _LOST += (asyncpg.InterfaceError, asyncpg.InternalClientError)

POOL = 8
CONNECT_TIMEOUT = 5.0
STATEMENT_TIMEOUT = 20.0
TELL_AFTER = 1.0
"""Seconds without a connection after which others hear of it; a restart is often over by then."""
LISTEN_CHECK = 10.0
_PLANNER = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "random_page_cost": "0.01",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "lock_timeout": "500ms",
}
_SESSION = {**_PLANNER, "application_name": "simpleworkflow", "idle_in_transaction_session_timeout": "60s"}
_TOGETHER = frozenset({Mode.TRANSACTION, Mode.SCAN, Mode.SNAPSHOT})
_LOCKED = "55P03"
_TAKEN = "23505"
_CUT_OFF = "57014"
_AGAIN = {"40001", "40P01", _LOCKED}
_GONE = {"25006", "25P03", "25P04", "40003"}
_GONE_CLASSES = {"08", "53", "57", "58"}
"""Connection, resources, operators, system: passing troubles of the server, never the fault of what was sent."""
_QUOTING = {"22", "23"}
"""Data and integrity: what was sent does not fit, and the message shows it."""
_UNMIGRATED = {"42P01", "3F000", "42883", "42703"}


class _Again(Exception):
    """The server asked for another try; nothing was committed."""


class _Gone(Exception):
    """The connection is lost; what it was doing may or may not have committed."""


class _Slow(_Gone):
    """The same because time was up, the server's (statement_timeout) or ours."""


class _Rewound(Exception):
    """Leases that are held have not been verified on this timeline; none may be taken."""


class _Taken(Exception):
    """What was to be inserted without looking is there already."""


class PostgresDriver:
    dialect = "postgres"
    can = Capabilities(walks_lanes=True, fuses_writes=True, has_many_writers=True, notifies=True, bounds_waits=True)

    def __init__(self, url: DatabaseURL, *, pool: int = POOL) -> None:
        if asyncpg is None:
            raise MissingExtra(needs("PostgreSQL needs", "asyncpg", "postgres"))
        self._url = url
        self._size = pool
        self._statements = statements("postgres", url.schema)
        self._channel = f"simpleworkflow_{url.schema}"
        self._idle: list[Any] = []
        self._slots = asyncio.Semaphore(pool)
        self._closed = False
        self._shows_timeline = True
        self.timelines = Timelines()
        self.on_gone: Callable[[Exception, float], object] = lambda error, began: None

    def __repr__(self) -> str:
        return f"<PostgresDriver {self._url}>"

    @property
    def home(self) -> object:
        return self._url

    def twin(self) -> PostgresDriver:
        return PostgresDriver(self._url, pool=self._size)

    async def run(self, operation: Operation[T], *, timeout: float | None = None) -> T:
        began = monotonic()
        deadline = began + (STATEMENT_TIMEOUT if timeout is None else timeout)
        repeated, pause, was_slow = operation.repeated, 0.02, False
        while True:
            if self._closed:
                raise StoreUnavailable("this App is closed")
            try:
                return await self._attempt(operation, repeated, deadline)
            except _Again as again:
                reason: Exception = again
            except _Rewound as rewound:
                told = f"leases are verified first: a standby has taken over at {self._url}"
                raise StoreUnavailable(told) from rewound
            except _Taken as taken:
                if repeated:
                    raise StoreError(f"PostgreSQL refused: {taken}") from taken
                repeated = True
                continue
            except _Gone as gone:
                reason, repeated = gone, True
            is_slow = isinstance(reason, _Slow)
            if isinstance(reason, _Gone) and not is_slow and monotonic() - began > TELL_AFTER:
                self.on_gone(reason, began)
            if is_slow and (was_slow or monotonic() + pause > deadline):
                told = f"PostgreSQL at {self._url} did not answer {operation.name} in time: {reason}"
                raise StoreSlow(told) from reason
            was_slow = is_slow
            if monotonic() + pause > deadline:
                if isinstance(reason, _Again):
                    raise StoreBusy(
                        f"{operation.name}: others were in the way until time was up ({reason})"
                    ) from reason
                raise StoreUnavailable(f"PostgreSQL at {self._url} cannot be reached: {reason}") from reason
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, 2.0)

    async def _attempt(self, operation: Operation[T], repeated: bool, deadline: float) -> T:
        connection = None
        await self._slot(deadline)
        try:
            try:
                async with asyncio.timeout(max(deadline - monotonic(), 0.05)):
                    connection = await self._connection()
                    self._may_lease(operation)
                    result = await self._drive(connection, operation, repeated)
            except BaseException as error:
                # Whatever it was, this connection's state is unknown: never hand it to anyone else.
                is_under_way = connection is not None
                if connection is not None and not (
                    isinstance(error, asyncpg.PostgresError) and await reset(connection)
                ):
                    parted, connection = connection, None
                    await part(parted, error)
                if isinstance(error, _Rewound):
                    raise
                if isinstance(error, TimeoutError) and is_under_way:
                    raise _Slow("the connection was given up") from error
                if isinstance(error, Exception) and not isinstance(error, SimpleWorkflowError):
                    raise self._translate(error, operation) from error
                raise
            finally:
                if connection is not None:
                    self._keep(connection)
        finally:
            self._slots.release()
        return result

    async def _slot(self, deadline: float) -> None:
        """Wait for a free connection, but not for longer than the caller will."""
        if not self._slots.locked():
            await self._slots.acquire()  # at once
            return
        try:
            async with asyncio.timeout(max(deadline - monotonic(), 0.05)):
                await self._slots.acquire()
        except TimeoutError:
            raise StoreUnavailable(f"every connection to {self._url} was busy until time was up") from None

    async def _drive(self, connection: Any, operation: Operation[T], repeated: bool) -> T:
        is_open, in_transaction = False, operation.mode in _TOGETHER or self._url.pgbouncer

        async def execute(wanted: Wanted) -> Rows:
            nonlocal is_open
            if in_transaction and not is_open:
                is_open = True  # not before its first statement: the transaction's time is that of its beginning
                await self._begin(connection, operation)
            return await self._execute(connection, wanted)

        result = await drive_async(operation.steps(repeated=repeated), execute)
        if is_open:
            await connection.execute("COMMIT")
        return result

    async def _begin(self, connection: Any, operation: Operation[Any]) -> None:
        await connection.execute(_begin(operation.mode, self._url.pgbouncer))
        if self._url.pgbouncer and operation.takes_leases and self._shows_timeline:
            await self._look_at_timeline(connection)  # whose server may be another one each time
            self._may_lease(operation)

    async def _execute(self, connection: Any, wanted: Wanted) -> Rows:
        if isinstance(wanted, Script):
            await connection.execute(wanted.text)
            return []
        statement = self._statements[wanted.name]
        if not statement.text:
            return []
        alone = all(len(wanted.parameters[name]) == 1 for name in statement.batches)
        text = statement.for_one if alone else statement.text
        rows: Rows = await connection.fetch(text, *bind(statement, wanted.parameters, alone=alone))
        return rows

    async def _connection(self) -> Any:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._connect()

    async def _connect(self) -> Any:
        pooled = self._url.pgbouncer
        connection = await asyncpg.connect(
            self._url.target,
            timeout=CONNECT_TIMEOUT,
            statement_cache_size=0 if pooled else 200,
            server_settings={} if pooled else _SESSION,
        )
        keep_alive(connection)
        try:
            await self._look_first(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _look_first(self, connection: Any) -> None:
        """Not every server shows it. Behind a pooler in a transaction: outside of one, the parts of a statement may
        reach different servers."""
        if self._url.pgbouncer:
            await connection.execute(_begin(Mode.TRANSACTION, pooled=True))
        try:
            await self._look_at_timeline(connection)
            self._shows_timeline = True
        except asyncpg.PostgresError as error:
            if (error.sqlstate or "")[:2] in _GONE_CLASSES:
                raise
            self._shows_timeline = False
        if self._url.pgbouncer:
            await connection.execute("ROLLBACK")

    async def _look_at_timeline(self, connection: Any) -> None:
        """A standby has none."""
        (row,) = await self._execute(connection, query("timeline"))
        if self.timelines.saw(connection, row["timeline"]):
            idle, self._idle = self._idle, []
            for one in idle:
                self._keep(one)
            self.timelines.on_new()

    def _may_lease(self, operation: Operation[Any]) -> None:
        if operation.takes_leases and not self.timelines.is_accepted:
            raise _Rewound

    def _keep(self, connection: Any) -> None:
        """For the next operation, unless it is of a server whose place another has taken."""
        if connection.is_closed():
            return
        if self.timelines.is_of_now(connection):
            self._idle.append(connection)
        else:
            connection.terminate()

    def _translate(self, error: Exception, operation: Operation[Any]) -> Exception:
        code = getattr(error, "sqlstate", None) or ""
        if code[:2] in _QUOTING:
            keep_silent(error)
        if "unsupported startup parameter" in str(error):
            return StoreUnavailable(f"{self._url} looks like PgBouncer ({error}); add ?pgbouncer=true to the URL")
        if code == _LOCKED and operation.impatient:
            return StoreBusy(f"{operation.name}: somebody's open transaction is in the way ({error})")
        if code in _AGAIN:
            return _Again(str(error))
        if code == _TAKEN and operation.hopeful:
            return _Taken(str(error))
        if isinstance(error, _LOST) or code[:2] in _GONE_CLASSES or code in _GONE:
            return (_Slow if code == _CUT_OFF else _Gone)(str(error) or type(error).__name__)
        if code in _UNMIGRATED:
            return MissingMigration(
                f"the database at {self._url} has not been migrated for this version ({error}); run: "
                f"simpleworkflow migrate up --url {self._url}"
            )
        if code[:2] in {"28", "3D"}:
            return StoreUnavailable(f"PostgreSQL at {self._url} refused the connection: {error}")
        return StoreError(f"PostgreSQL refused: {error}")

    async def hint(self, kind: str) -> None:
        """Outside any durable transaction: a commit with NOTIFY in it takes a database-wide lock."""
        if self._url.pgbouncer or self._closed:
            return
        async with self._slots:
            connection = None
            try:
                async with asyncio.timeout(2.0):
                    connection = await self._connection()
                    await self._execute(connection, query("notify", channel=self._channel, kind=kind))
            except TROUBLE:
                if connection is not None:
                    connection.terminate()
                return
            except BaseException:
                if connection is not None:
                    connection.terminate()
                raise
            self._keep(connection)

    async def listen(self, heard: Callable[[str], None]) -> None:
        """One session of its own. Its end is heard of at once, or found by a check every few seconds where nobody says
        so; after a gap everyone is told to look."""
        if self._url.pgbouncer:
            await asyncio.Event().wait()
        pause = 0.1
        while True:
            connection = None
            try:
                connection, ended = await self._connect(), asyncio.Event()
                connection.add_termination_listener(lambda _, ended=ended: ended.set())
                await connection.add_listener(self._channel, lambda *news: heard(str(news[3])))
                heard("changed")
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LISTEN_CHECK):
                            await ended.wait()
                    await connection.fetchval("SELECT 1", timeout=5.0)
                    pause = 0.1
            except TROUBLE:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, 5.0)
            finally:
                if connection is not None:
                    connection.terminate()

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*map(close, idle))


def _begin(mode: Mode, pooled: bool) -> str:
    """One round trip. A scan gets back the roads that engine connections close, for its own transaction."""
    if mode is Mode.SCAN:
        settings = {name: "on" for name in _PLANNER if name.startswith("enable_")}
        settings["plan_cache_mode"] = "force_custom_plan"
    else:
        settings = _PLANNER if pooled else {}
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY" if mode is Mode.SNAPSHOT else "BEGIN"
    return "; ".join([begin, *(f"SET LOCAL {name} = '{value}'" for name, value in settings.items())])


def bind(statement: Statement, parameters: dict[str, Any], *, alone: bool = False) -> list[Any]:
    """Positional arguments: a batch becomes one array per column, or its only row if each batch has but one."""
    bound: list[Any] = []
    for name in statement.order:
        columns = statement.batches.get(name)
        if columns is None:
            bound.append(parameters[name])
        else:
            bound += parameters[name][0] if alone else adapt_batch(parameters[name], len(columns))
    return bound
