"""Events as lines of JSON (structured mode): on standard output, or appended to a file.

For log shippers, for a look at what goes out, and for programs that follow a file. Taken means that the lines are
written, and for a file that the disk has them (`fsync=False` leaves that to the system).

What can go wrong with a file: it is rotated while we hold it open, so before every write the path is compared with what
is open, and opened anew when it is another file; a full disk or a kill leaves half a line, ours or another writer's, so
a file that does not end with a line end gets one before anything is appended, and the torn line stays alone. A batch is
one write, under a lock, so that several writers do not mix their lines. If it fails, none of it counts as taken, and
what did get through comes twice.

Standard output may be a pipe whose reader is asleep: it is written past Python's buffer, which would keep the program
from ending. When the reader has ended (`| head`), nobody will ever take these events here, and the relay is told so.
On a terminal, characters that it might obey are written as JSON escapes.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from ..model.errors import InvalidURL
from .envelope import structured
from .protocol import CloudEvent, Refusal, SinkGone
from .threads import SinkThreads

_FLAGS = os.O_APPEND | os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
_MODE = 0o640
"""Events tell of the business: not for everybody on the host."""
_LINE_ENDS = re.compile(r"[\r\n]")
_OBEYED = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
CLOSE_SECONDS = 1.0


def line_of(event: CloudEvent) -> str:
    """The event on one line. Line ends can only stand between JSON's tokens, never inside a string."""
    return _LINE_ENDS.sub(" ", structured(event)) + "\n"


class LinesSink:
    """One event per line, to `path` or, without one, to standard output."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, fsync: bool = True) -> None:
        self._file = None if path is None else _AppendedFile(Path(path), fsync)
        # One thread: a write that hangs is not overtaken by the next one, even when the relay has given up on it.
        self._thread = SinkThreads(1, "lines")

    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        text = "".join(map(line_of, events))
        refusal = await self._thread.call(lambda: self._write(text))
        return [refusal] * len(events)

    async def close(self) -> None:
        if self._file is not None:
            with suppress(TimeoutError):  # a write that hangs; the file is closed with the process
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._thread.call(self._file.close)
        self._thread.close()

    def _write(self, text: str) -> Refusal | None:
        try:
            if self._file is not None:
                self._file.append(text.encode())
            elif sys.stdout is None:  # closed before we were started
                raise SinkGone("there is no standard output; what was not taken waits for the next one")
            else:
                _print(sys.stdout, text)
        except BrokenPipeError:
            raise SinkGone("nobody reads standard output any more; what was not taken waits for the next one") from None
        except (OSError, ValueError) as error:  # ValueError: standard output has been closed
            place = self._file.path if self._file else "standard output"
            told = error.strerror if isinstance(error, OSError) else None
            return Refusal(f"{place} cannot be written: {told or error}")
        return None


def _print(stream: TextIO, text: str) -> None:
    if stream.isatty():
        text = _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    raw = getattr(stream, "buffer", None)  # JSON is UTF-8, whatever the terminal's language
    stream.flush()
    if isinstance(raw, io.BufferedWriter):
        _write_all(raw.fileno(), text.encode())
    elif raw is not None:
        raw.write(text.encode())
        raw.flush()
    else:
        stream.write(text)
        stream.flush()


def _write_all(opened: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(opened, rest) :]


class _AppendedFile:
    def __init__(self, path: Path, fsync: bool) -> None:
        if path.is_dir():
            raise InvalidURL(f"{path} is a folder; name a file in it for the events")
        if not path.parent.is_dir():
            raise InvalidURL(f"{path} cannot be made: there is no folder {path.parent}")
        self.path = path
        self._fsync = fsync
        self._opened: int | None = None

    def append(self, data: bytes) -> None:
        try:
            opened = self._current()
            with _locked(opened):
                _write_all(opened, data if _ends_with_a_line(opened) else b"\n" + data)
            if self._fsync:
                _fsync(opened)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._opened is not None:
            os.close(self._opened)
            self._opened = None

    def _current(self) -> int:
        """What the path names now, opened for appending."""
        if self._opened is not None and not self._is_still_there(self._opened):
            self.close()
        if self._opened is None:
            self._opened = os.open(self.path, _FLAGS, _MODE)
            if self._fsync and not os.fstat(self._opened).st_size:
                _fsync_folder(self.path.parent)
        return self._opened

    def _is_still_there(self, opened: int) -> bool:
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(opened))


@contextmanager
def _locked(opened: int) -> Iterator[None]:
    """Nobody else of us writes meanwhile; where there are no locks, one write at a time has to do."""
    with suppress(OSError):
        fcntl.flock(opened, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_UN)


def _ends_with_a_line(opened: int) -> bool:
    size = os.fstat(opened).st_size
    return not size or os.pread(opened, 1, size - 1) == b"\n"


def _fsync_folder(folder: Path) -> None:
    """A new file is only there after a power cut if its folder was written as well."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return  # files may be made in it although it may not be read
    try:
        _fsync(opened)
    finally:
        os.close(opened)


def _fsync(opened: int) -> None:
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # pipes, devices and some file systems have no such thing
            raise
