"""A real HTTP server that a test scripts: what came in is kept, and each answer can be bytes of any kind.

Everything a hostile or broken receiver may do is a `Behaviour`: a function that gets the connection after a request
was read. Connections are counted, so that a test can tell whether one was opened at all, or used twice.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

Behaviour = Callable[["Received", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Received:
    line: str
    headers: dict[str, str]
    body: bytes


def answer(status: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


OK = answer("200 OK")


class Receiver:
    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.host, self.port = host, port
        self.received: list[Received] = []
        self.connections = 0
        self.next: deque[bytes | Behaviour] = deque()
        """What the next requests get; after that `always`."""
        self.always: bytes | Behaviour = OK
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, path: str = "/hook", host: str | None = None) -> str:
        return f"{'https' if self._tls else 'http'}://{host or self.host}:{self.port}{path}"

    def drop(self) -> None:
        """Reset every connection, as a killed process does."""
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                received = await _read_request(reader)
                self.received.append(received)
                behaviour = self.next.popleft() if self.next else self.always
                if isinstance(behaviour, bytes):
                    writer.write(behaviour)
                    await writer.drain()
                else:
                    await behaviour(received, writer)
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(writer)
            self._tasks.discard(task)
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Received:
    line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    pairs = [one.split(": ", 1) for one in lines]
    assert len({name for name, _ in pairs}) == len(pairs), f"a header came twice: {lines}"
    headers = dict(pairs)
    return Received(line, headers, await reader.readexactly(int(headers["content-length"])))
