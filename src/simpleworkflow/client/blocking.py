"""How the blocking twin makes an async call: in the engine's thread, or on the caller's own connection right here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

from ..model.errors import InvalidInput
from .caller_connection import must_be_awaited
from .client import Client

T = TypeVar("T")


def block(client: Client, work: Coroutine[Any, Any, T], connection: Any = None) -> T:
    return client.block(work) if connection is None else _run_inline(work, connection)


def _run_inline(work: Coroutine[Any, Any, T], connection: Any) -> T:
    """A blocking connection never makes the coroutine wait, so its first step is its last."""
    try:
        if not must_be_awaited(connection):
            work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        work.close()
    raise InvalidInput("app.sync needs a blocking connection=; with an async one, await app.trigger(...)")


def iterate(client: Client, items: AsyncIterator[T]) -> Iterator[T]:
    async def step() -> tuple[bool, Any]:
        try:
            return True, await anext(items)
        except StopAsyncIteration:
            return False, None

    while True:
        more, item = client.block(step())
        if not more:
            return
        yield item
