"""A TCP proxy that can go deaf: what a network does when it breaks without a word.

`freeze` stops forwarding in both directions and keeps every socket open, so that neither side learns anything;
`refuse` closes everything and the door. Both end with their opposite.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    def __init__(self, target: str, tls: ssl.SSLContext | None = None) -> None:
        """With `tls` the proxy speaks it to those who come; the target is spoken to without."""
        self._parts = urlsplit(target)
        self._tls = tls
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        login = f"{self._parts.netloc.rpartition('@')[0]}@" if "@" in self._parts.netloc else ""
        return urlunsplit(self._parts._replace(netloc=f"{login}127.0.0.1:{self._port}"))

    def lead_to(self, target: str) -> None:
        """From the next connection on."""
        self._parts = urlsplit(target)

    def freeze(self) -> None:
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    async def accept(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._flowing.wait()
            there = await asyncio.open_connection(self._parts.hostname, self._parts.port)
            await asyncio.gather(self._pump(reader, there[1]), self._pump(there[0], writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self._flowing.wait()
                sink.write(data)
                await sink.drain()
        finally:
            sink.close()


class Line:
    """A proxy on a thread of its own, for a test that is itself busy with the servers behind it."""

    def __init__(self, target: str) -> None:
        self._proxy = Proxy(target)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def url(self) -> str:
        return self._proxy.url

    def lead_to(self, target: str) -> None:
        """From the next connection on."""
        self._loop.call_soon_threadsafe(self._proxy.lead_to, target)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._proxy.accept(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.refuse(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
