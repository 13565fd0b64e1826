"""What every call of a program goes through: one database, opened by the first call, and the workflows known here.

App, handles and namespaces hold the same Client. It opens the engine when it is first needed, opens it anew in a forked
child or after close(), runs operations of the store, and finds the run that a call is about: by its id, or by the
business key that it was triggered with (`idempotency_key=`).

A key is looked up by one statement on its unique index; a call by id asks nothing. A key belongs to one run at a time,
and deleting the run frees it. So a handle keeps the run that its key named when it was first used. Inside a workflow
the answer is on record, so that a replay means the same run even if another one has the key by then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, TypeVar, cast
from uuid import UUID

from ..clock import Clock
from ..config import DefaultURL, Settings, default_url, guards
from ..model.errors import InvalidInput, RunNotFound, StoreUnavailable
from ..model.names import check_key
from ..model.records import Definition
from ..runtime.hints import Hint
from ..runtime.registry import Registry
from ..store.operations import runs
from ..store.protocol import Operation
from ..store.url import parse_url
from .engine import CLOSED, Engine
from .inside import workflow_here
from .request import RunId, run_uuid

T = TypeVar("T")

SHOWN = 60
"""Characters of a key that are shown in the name of a record."""

_opening = threading.Lock()
"""Two threads whose first calls meet must not open two engines."""


def _new_lock() -> None:
    global _opening
    _opening = threading.Lock()  # a forked child may have been born while another thread held it


os.register_at_fork(after_in_child=_new_lock)


class Client:
    def __init__(
        self,
        url: str | None,
        *,
        schema: str | None,
        settings: Settings | None,
        clock: Clock | None,
        registry: Registry,
    ) -> None:
        self.url = default_url() if url is None else url
        self.schema = schema
        self.address = parse_url(self.url, schema=schema)
        self.clock = clock
        self.registry = registry
        self.settings = settings or Settings()
        self._running: Engine | None = None

    @property
    def engine(self) -> Engine:
        """Opened by the first call, and anew in a forked child or after close(); but not by what is left of a call that
        was under way when it was closed: nobody would close that one."""
        with _opening:
            engine = self._running
            if engine is None or engine.is_closed or engine.is_inherited():
                if engine is not None and engine.is_here():
                    raise StoreUnavailable(CLOSED)
                if isinstance(self.url, DefaultURL):
                    for allow in guards:
                        allow(self.url)
                engine = self._running = Engine(self.url, self.schema, self.settings, self.clock)
            return engine

    def home(self) -> object:
        """Equal for Apps and workers of one and the same database."""
        return self.engine.ledger.home

    def run(self, operation: Operation[T]) -> Awaitable[T]:
        """Run one operation of the store."""
        return self.engine.run(operation)

    def block(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the engine's thread and block the calling thread until it is done."""
        try:
            engine = self.engine
        except BaseException:
            work.close()
            raise
        return engine.block(work)

    async def tell(self, *hints: Hint) -> None:
        """Tell other processes that something has happened."""
        for hint in hints:
            await self.engine.tell(hint)

    def use(self, url: str) -> None:
        """Point to another database, before the first call."""
        if self._running is not None and not self._running.is_closed:
            raise InvalidInput("this App is already open; choose its database before the first call")
        self.address = parse_url(url, schema=self.schema)
        self.url = url

    @contextmanager
    def elsewhere(self, url: str, *, clock: Clock | None = None) -> Iterator[None]:
        """Use another database for a while, as tests do; the usual one is not touched meanwhile."""
        before = self.url, self.address, self.clock, self._running
        self.url, self.address, self.clock, self._running = url, parse_url(url), clock, None
        try:
            yield
        finally:
            self.url, self.address, self.clock, self._running = before

    def close(self) -> None:
        """Blocks for a moment. The next call opens it again."""
        with _opening:
            engine = self._running
        if engine is not None and not engine.is_inherited():
            engine.close()

    # What is known here.

    def definitions(self) -> Sequence[Definition]:
        """The workflows that have a handler here."""
        return [workflow.definition for workflow in self.registry.served()]

    def serves(self, name: str) -> bool:
        """Whether there is a handler for this type here."""
        workflow = self.registry.find(name)
        return workflow is not None and workflow.handler is not None

    # Which run is meant.

    async def find(self, run_id: RunId | None, key: str | None) -> UUID:
        """The run that is meant by this id or this key."""
        wanted = check_address(run_id, key)
        if key is None or wanted is not None:
            return cast("UUID", wanted)
        here = workflow_here(self.home)
        if here is None:
            return await self._with_key(key)

        async def found() -> str:
            return str(await self._with_key(key))

        name = f"run of key {_as_name(key)}"
        told: str = await here.call(lambda: here.durable.values.remember(name, found, str))
        return UUID(told)

    async def _with_key(self, key: str) -> UUID:
        run_id = await self.run(runs.with_key(key))
        if run_id is None:
            raise RunNotFound(f"there is no run with the key {key!r}; the key of a deleted run is free again")
        return run_id


def check_address(run_id: RunId | None, key: str | None) -> UUID | None:
    """Exactly one of id and key says which run; the id, if it is that one."""
    if key is None:
        if run_id is None:
            raise InvalidInput("say which run: give its id, or key= with the idempotency key it was triggered with")
        return run_uuid(run_id)
    if run_id is not None:
        raise InvalidInput(f"give the id of a run or key=, not both (id={str(run_id)!r}, key={key!r})")
    check_key(key, "key")
    return None


def by_key(run_id: Any, name: Any, last: Any, missing: Any) -> tuple[Any, Any]:
    """The arguments behind the run when a key says which run: signal("approved", payload, key="order-4711")."""
    if run_id is None:
        return name, last
    if _is_id(run_id) or (name is not None and last is not missing):
        raise InvalidInput(f"give the id of a run or key=, not both (id={str(run_id)!r})")
    return (run_id, last) if name is None else (run_id, name)


def _is_id(value: Any) -> bool:
    try:
        UUID(str(value))
    except ValueError:
        return False
    return True


def _as_name(key: str) -> str:
    """A key may hold anything printable; the name of a record may not, and two keys never share one."""
    plain = "".join("_" if char in "#/" else char for char in key[:SHOWN])
    return f"{plain} {sha256(key.encode()).hexdigest()[:12]}"
