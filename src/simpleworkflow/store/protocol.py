"""The seam between operations and drivers.

An operation is a generator: it yields `Query(name, parameters)` and receives rows. It holds all logic and no I/O, so
one text serves asyncpg, sqlite3 and a caller's own psycopg or SQLAlchemy connection, and tests can fail it before or
after any statement. Because a driver may have to repeat a whole operation (deadlock, lost connection), an `Operation`
carries the recipe, not a half-used generator.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from enum import Enum
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from .timelines import Timelines

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")

Row = Mapping[str, Any]


class Query(NamedTuple):
    """A named statement of the catalogue and its parameters; a batch parameter is a list of tuples."""

    name: str
    parameters: dict[str, Any]


class Script(NamedTuple):
    """Several statements without parameters: the body of a migration."""

    text: str


def query(name: str, /, **parameters: Any) -> Query:
    return Query(name, parameters)


Wanted = Query | Script
Rows = Sequence[Row]
Steps = Generator[Wanted, Rows, T]


class Mode(Enum):
    READ = "read"
    """Sees committed data, changes nothing; may run beside the writer."""

    SNAPSHOT = "snapshot"
    """Several statements that see one and the same state and one and the same time; changes nothing."""

    SCAN = "scan"
    """Reads much of a table, or what its parameters decide, so the planner is left free; not for hot paths."""

    STATEMENTS = "statements"
    """Each statement may commit alone (a database with round trips saves two); SQLite still uses one transaction."""

    TRANSACTION = "transaction"
    """All or nothing."""


class Operation(Generic[T_co]):
    """A recipe for one run through the database."""

    __slots__ = ("_make", "_takes_repeated", "hopeful", "impatient", "mode", "name", "repeated", "takes_leases")

    def __init__(self, name: str, mode: Mode, make: Callable[..., Steps[T_co]], takes_repeated: bool) -> None:
        self.name = name
        self.mode = mode
        self.impatient = False
        """Whether StoreBusy is an answer; otherwise the driver keeps trying until the deadline."""
        self.hopeful = False
        """Whether it writes without looking what is there; a key that is taken then means: once more, as repeated."""
        self.takes_leases = False
        """Whether it must wait while the leases of an earlier timeline have not been verified."""
        self.repeated = False
        """Whether an earlier run of the same work may have committed without our learning of it."""
        self._make = make
        self._takes_repeated = takes_repeated

    def steps(self, *, repeated: bool = False) -> Steps[T_co]:
        """A fresh generator. `repeated` says that an earlier try may have committed without our learning of it."""
        return self._make(repeated=True) if repeated and self._takes_repeated else self._make()


def _operation(mode: Mode) -> Callable[[Callable[P, Steps[T]]], Callable[P, Operation[T]]]:
    def decorate(function: Callable[P, Steps[T]]) -> Callable[P, Operation[T]]:
        takes_repeated = "repeated" in inspect.signature(function).parameters

        @functools.wraps(function)
        def build(*args: P.args, **kwargs: P.kwargs) -> Operation[T]:
            return Operation(function.__name__, mode, functools.partial(function, *args, **kwargs), takes_repeated)

        return build

    return decorate


reading = _operation(Mode.READ)
beholding = _operation(Mode.SNAPSHOT)
scanning = _operation(Mode.SCAN)
statements = _operation(Mode.STATEMENTS)
transaction = _operation(Mode.TRANSACTION)


class Capabilities(NamedTuple):
    """What a database can do, each asked for where it is used."""

    walks_lanes: bool
    """One claim statement walks many lanes; without it they are claimed one by one."""
    fuses_writes: bool
    """One statement proves a lease and writes what it allows, with its events."""
    has_many_writers: bool
    """Several connections may write at the same time."""
    notifies: bool
    """A hint can travel with a commit."""
    bounds_waits: bool
    """Every operation keeps its own deadline; without it the caller sets one."""


class Driver(Protocol):
    """One database, from one event loop (or thread)."""

    dialect: str
    can: Capabilities
    on_gone: Callable[[Exception, float], object]
    """Called with the reason and the operation's begin while one is repeated for want of a connection."""

    timelines: Timelines
    """`on_new` is called in the driver's loop when a connection shows another one, before anything else is sent."""

    @property
    def home(self) -> object:
        """The same for all drivers that reach the same data."""
        ...

    async def run(self, operation: Operation[T], *, timeout: float | None = None) -> T:
        """Run the operation to its end, repeating it as needed until the timeout; then StoreUnavailable."""
        ...

    def twin(self) -> Driver:
        """The same database for another event loop."""
        ...

    async def hint(self, kind: str) -> None:
        """Tell every process that something happened; losing it costs latency, nothing else."""
        ...

    async def listen(self, heard: Callable[[str], None]) -> None:
        """Call `heard` for each hint until cancelled; heals itself."""
        ...

    async def close(self) -> None: ...


def drive(steps: Steps[T], execute: Callable[[Wanted], Rows]) -> T:
    """Run an operation with a blocking execute function."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(execute(wanted))
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        steps.close()


async def drive_async(steps: Steps[T], execute: Callable[[Wanted], Awaitable[Rows]]) -> T:
    """Run an operation with an awaitable execute function."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(await execute(wanted))
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        steps.close()
