"""One HTTP/1.1 exchange on an open connection, with limits on everything that the other side can send.

Our own hundred lines instead of a library, because a webhook needs little (POST, a length, an answer's status) and
needs it exactly: the connection goes to the address that was checked, redirects and proxies do not exist, and nobody
can make us read for ever (docs/decisions/0002-dependencies.md).

The answer is its status and headers; from then on the event counts. The body is of no interest and is never shown:
a person who can choose a URL could read our network with it. It is read up to a limit only so that the connection can
be used again, and a body that is long, slow or strange just costs the connection.

So does anything that comes unasked, such as the 408 that a balancer sends before it closes an idle connection, or a
body where none belongs: it would be taken for the answer to the next event, which nobody has read yet. Lines are taken
apart with plain searches: a pattern that may try again and again is a way to stop the whole worker with one header.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

MOST_HEAD_BYTES = 32 * 1024
MOST_BODY_BYTES = 64 * 1024
BODY_SECONDS = 1.0
MOST_INTERIM = 5
"""Answers such as 103 Early Hints that may come before the one that counts."""

_STATUS_LINE = re.compile(r"HTTP/1\.(?P<minor>[01]) (?P<status>[1-9][0-9]{2})(?: .*)?")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LENGTH = re.compile(r"[0-9]{1,9}")
_NO_BODY = (204, 304)
_CHUNK = re.compile(rb"(?P<size>[0-9a-fA-F]{1,8})[ \t]*(?:;.*)?\r\n", re.DOTALL)


class StaleConnection(Exception):
    """The other side had closed a kept connection before the request came; nothing was answered."""


class BrokenAnswer(Exception):
    """What came back is no answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    """Names in lower case; of repeated ones, the values in a row."""
    keeps_alive: bool


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._is_used = False
        self.idle_since = 0.0

    async def is_quiet(self) -> bool:
        """Still open, and nothing has come that was not asked for."""
        try:
            async with asyncio.timeout(0):
                await self._reader.read(1)  # bytes, or the end: both are too much
        except TimeoutError:
            return not self._writer.is_closing()
        except OSError:
            pass
        return False

    async def exchange(self, request: bytes) -> Answer:
        """Send the request and read the head of its answer; the body is still to come."""
        was_used, self._is_used = self._is_used, True
        try:
            self._writer.write(request)  # not drained: an answer may come before all of it was read
            for _ in range(MOST_INTERIM):
                answer = _read_head(await self._reader.readuntil(b"\r\n\r\n"))
                if answer.status >= 200 or answer.status == 101:
                    return answer
        except asyncio.LimitOverrunError:
            raise BrokenAnswer(f"headers of more than {MOST_HEAD_BYTES // 1024} KiB") from None
        except (asyncio.IncompleteReadError, OSError) as error:
            if was_used and not getattr(error, "partial", b""):
                raise StaleConnection from None
            raise BrokenAnswer("the connection ended before an answer") from None
        raise BrokenAnswer("interim answers without an end")

    async def finish(self, answer: Answer) -> bool:
        """Read the rest of the answer; whether another request may follow on this connection."""
        is_sent = self._writer.transport.get_write_buffer_size() == 0  # else the answer came before they had it all
        if not answer.keeps_alive or answer.status < 200 or not is_sent:
            return False
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self._skip_body(answer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return False

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                await self._writer.wait_closed()
        except (TimeoutError, OSError):
            self.abort()

    async def _skip_body(self, answer: Answer) -> bool:
        coding, length = answer.headers.get("transfer-encoding"), answer.headers.get("content-length")
        if answer.status in _NO_BODY:
            return coding is None and length in (None, "0")
        if coding is not None:
            return coding.lower() == "chunked" and length is None and await self._skip_chunks()
        if length is None or not _LENGTH.fullmatch(length) or int(length) > MOST_BODY_BYTES:
            return False
        await self._reader.readexactly(int(length))
        return True

    async def _skip_chunks(self) -> bool:
        left = MOST_BODY_BYTES
        while True:
            chunk = _CHUNK.fullmatch(await self._reader.readuntil(b"\r\n"))
            if chunk is None or (size := int(chunk["size"], 16)) > left:
                return False
            if size == 0:
                return await self._reader.readuntil(b"\r\n") == b"\r\n"  # trailers cost the connection
            if not (await self._reader.readexactly(size + 2)).endswith(b"\r\n"):
                return False
            left -= size


def _read_head(head: bytes) -> Answer:
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    status_line = _STATUS_LINE.fullmatch(first)
    if status_line is None:
        raise BrokenAnswer("something that is not HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        written, colon, value = line.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(written) or "\n" in value or "\r" in value:
            raise BrokenAnswer("a header that cannot be read")
        name, value = written.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    closes = "close" in headers.get("connection", "").lower()
    return Answer(int(status_line["status"]), headers, status_line["minor"] == "1" and not closes)
