"""One session of PostgreSQL: kept alive, made sound again, parted with; and errors that quote no data."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

PARTING = 1.0

try:
    import asyncpg

    TROUBLE: tuple[type[Exception], ...] = (
        OSError,
        TimeoutError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        asyncpg.PostgresError,
    )
    """Whatever a connection may raise when its end has come, half way through anything."""
except ImportError:  # pragma: no cover - the driver says what is missing
    TROUBLE = ()


async def reset(connection: Any) -> bool:
    """After a refused statement the session is sound once its transaction is rolled back."""
    if connection.is_closed():
        return False
    try:
        if connection.is_in_transaction():
            await connection.execute("ROLLBACK", timeout=2.0)
        return not connection.is_closed()
    except TROUBLE:
        return False


async def close(connection: Any) -> None:
    try:
        await connection.close(timeout=1.0)
    except TROUBLE:
        connection.terminate()


async def part(connection: Any, error: BaseException) -> None:
    """A statement whose caller has turned away would go on at the server, and commit when nobody expects it any more:
    the server is told to stop, and heard. One that is out of reach cannot be told."""
    try:
        if isinstance(error, asyncio.CancelledError):
            await connection.close(timeout=PARTING)
    except TROUBLE:
        pass
    finally:
        connection.terminate()


def keep_silent(error: Any) -> None:
    """The server's DETAIL quotes the row, payload and all, and asyncpg the argument; errors end up in logs."""
    error.detail = None
    if "query argument" in str(error):
        error.args = (str(error).partition(":")[0],)


def keep_alive(connection: Any) -> None:
    sock = connection._transport.get_extra_info("socket")
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 25_000)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
