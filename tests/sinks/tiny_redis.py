"""A stand-in for Redis where no real one can be had: RESP2, a password, strings and streams, nothing else.

Run as `python tiny_redis.py PORT PASSWORD`. It knows what the sink sends and what the tests look at, and answers errors
in Redis's own words. MAXLEN with `~` trims exactly, which Redis is free to do as well.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

Reply = bytes


class TinyRedis:
    def __init__(self, password: str) -> None:
        self._password = password.encode()
        self._streams: dict[bytes, list[tuple[bytes, list[bytes]]]] = {}
        self._strings: dict[bytes, bytes] = {}
        self._serial = itertools.count(1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_known = False
        try:
            while True:
                name, *arguments = await _read_command(reader)
                name = name.upper()
                if name == b"AUTH":
                    is_known = arguments[-1] == self._password
                    reply = b"+OK\r\n" if is_known else b"-WRONGPASS invalid username-password pair\r\n"
                elif not is_known:
                    reply = b"-NOAUTH Authentication required.\r\n"
                else:
                    reply = self._answer(name, arguments)
                writer.write(reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    def _answer(self, name: bytes, arguments: list[bytes]) -> Reply:
        if name == b"PING":
            return b"+PONG\r\n"
        if name in (b"SELECT", b"CLIENT"):
            return b"+OK\r\n"
        if name == b"FLUSHALL":
            self._streams.clear()
            self._strings.clear()
            return b"+OK\r\n"
        if name == b"SET":
            self._strings[arguments[0]] = arguments[1]
            return b"+OK\r\n"
        if name == b"DEL":
            gone = [self._strings.pop(key, None) or self._streams.pop(key, None) for key in arguments]
            return b":%d\r\n" % sum(one is not None for one in gone)
        if name in (b"XADD", b"XRANGE", b"XLEN") and arguments[0] in self._strings:
            return b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
        if name == b"XADD":
            return self._add(arguments)
        if name == b"XLEN":
            return b":%d\r\n" % len(self._streams.get(arguments[0], []))
        if name == b"XRANGE":
            entries = self._streams.get(arguments[0], [])
            return _array([_array([_bulk(id), _array([_bulk(part) for part in parts])]) for id, parts in entries])
        return b"-ERR unknown command\r\n"

    def _add(self, arguments: list[bytes]) -> Reply:
        key, *rest = arguments
        limit = None
        if rest[0].upper() == b"MAXLEN":
            number = rest[2] if rest[1] in (b"~", b"=") else rest[1]
            limit, rest = int(number), rest[rest.index(number) + 1 :]
        if rest[0] != b"*":
            return b"-ERR only ids of the server's making\r\n"
        id = b"%d-0" % next(self._serial)
        stream = self._streams.setdefault(key, [])
        stream.append((id, rest[1:]))
        if limit is not None:
            del stream[: max(0, len(stream) - limit)]
        return _bulk(id)


async def _read_command(reader: asyncio.StreamReader) -> list[bytes]:
    count = int((await reader.readuntil(b"\r\n"))[1:])
    parts = []
    for _ in range(count):
        length = int((await reader.readuntil(b"\r\n"))[1:])
        parts.append((await reader.readexactly(length + 2))[:-2])
    return parts


def _bulk(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


def _array(items: list[bytes]) -> bytes:
    return b"*%d\r\n%b" % (len(items), b"".join(items))


async def main(port: int, password: str) -> None:
    server = await asyncio.start_server(TinyRedis(password).serve, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
