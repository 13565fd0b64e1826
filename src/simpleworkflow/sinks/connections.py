"""Connections to a webhook's host: resolved once, every address checked, and the checked one connected.

A name is looked up by us and never again by anybody below: between two look-ups its owner could change the answer from
a public address to 127.0.0.1 (DNS rebinding). If a single address of several is refused, the name is: a public one in
front must not make the private one behind it acceptable. TLS proves the host's *name*, although the connection was
made to an address. Connections are kept for a few seconds and used again.

Look-ups get threads of their own: a resolver that hangs must not take those that steps need.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address

from ..clock import monotonic
from .addresses import Address, Allowed
from .http1 import MOST_HEAD_BYTES, Answer, Connection, StaleConnection
from .target import PUBLIC_ONLY, Target
from .threads import SinkThreads

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""The addresses of a host name."""

IDLE_SECONDS = 15.0
MOST_ADDRESSES = 4
LOOKUP_THREADS = 4


class Unreachable(Exception):
    """No event gets there now: the host cannot be reached, or must not be."""


class Connections:
    """Kept connections to one target. Used from one event loop."""

    def __init__(
        self, target: Target, allowed: Allowed, *, resolve: Resolve | None, tls: ssl.SSLContext | None, timeout: float
    ) -> None:
        self._target = target
        self._allowed = allowed
        self._threads = SinkThreads(LOOKUP_THREADS, "lookup")
        self._resolve = resolve or self._look_up
        self._tls = (tls or _trusting_the_system()) if target.is_tls else None
        self._timeout = timeout
        self._idle: list[Connection] = []

    async def exchange(self, request: bytes, timeout: float) -> Answer:
        """The head of the answer; TimeoutError when it has not come in time."""
        async with asyncio.timeout(timeout):
            connection, answer = await self._ask(request)
        try:
            may_keep = await connection.finish(answer)  # after the timeout: what was answered stays answered
        except BaseException:
            connection.abort()
            raise
        if may_keep:
            connection.idle_since = monotonic()
            self._idle.append(connection)
        else:
            connection.abort()
        return answer

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        await asyncio.gather(*(connection.close() for connection in idle))  # a peer that sleeps costs a second, once
        self._threads.close()

    async def _ask(self, request: bytes) -> tuple[Connection, Answer]:
        while True:
            connection = await self._kept() or await self._connect()
            try:
                return connection, await connection.exchange(request)
            except StaleConnection:
                connection.abort()  # only a kept one can be, so this ends with a new one
            except BaseException:
                connection.abort()
                raise

    async def _kept(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            try:
                if monotonic() - connection.idle_since < IDLE_SECONDS and await connection.is_quiet():
                    return connection
            except BaseException:
                connection.abort()
                raise
            connection.abort()
        return None

    async def _connect(self) -> Connection:
        problem: Exception = Unreachable(f"{self._target.host} has no address")
        for address in await self._checked_addresses():
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._connect_to(address)
            except (OSError, ValueError) as error:  # TimeoutError is an OSError; ValueError: what TLS cannot name
                problem = Unreachable(f"{self._target} cannot be reached: {_told(error)}")
        raise problem

    async def _checked_addresses(self) -> list[Address]:
        if self._target.address is not None:
            addresses = [self._target.address]
        else:
            try:
                addresses = [ip_address(text) for text in await self._resolve(self._target.host)]
            except (OSError, ValueError) as error:
                raise Unreachable(f"{self._target.host} cannot be resolved: {_told(error)}") from None
        if not self._allowed.has_name(self._target.host):
            for address in addresses:
                if why := self._allowed.refuses(address):
                    raise Unreachable(f"{self._target.host} leads to {address}, which is {why}; {PUBLIC_ONLY}")
        return addresses[:MOST_ADDRESSES]

    async def _connect_to(self, address: Address) -> Connection:
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        opened = socket.socket(family, socket.SOCK_STREAM)
        try:
            opened.setblocking(False)
            await asyncio.get_running_loop().sock_connect(opened, (str(address), self._target.port))
            reader, writer = await asyncio.open_connection(
                sock=opened,
                limit=MOST_HEAD_BYTES,
                ssl=self._tls,
                server_hostname=self._target.host if self._tls else None,
            )
        except BaseException:
            opened.close()
            raise
        return Connection(reader, writer)

    async def _look_up(self, host: str) -> Sequence[str]:
        def ask() -> list[str]:
            found = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(place[0]) for *_, place in found))

        return await self._threads.call(ask)


def _trusting_the_system() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _told(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or 'no reason given').replace('_', ' ').lower()}"
    if isinstance(error, TimeoutError):
        return "no connection in time"
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # asyncio's own text is about calls and tuples
    return str(error) or type(error).__name__
