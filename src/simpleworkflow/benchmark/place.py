"""The place of the benchmark: a schema or a file of its own beside the real tables, removed afterwards.

On PostgreSQL it is a schema with a random name in the named database. On SQLite it is a file with a random name in the
folder of the named file, so that it is on the same disk. It is removed on errors and on Ctrl-C as well; a second Ctrl-C
waits until that is done. The store refuses to drop a schema without the benchmark's prefix. A place that could not be
removed is named in the error.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..app import App
from ..model.errors import InvalidURL, SimpleWorkflowError, StoreError, StoreUnavailable
from ..store import open_ledger
from ..store.operations.benchmark import SCHEMA_PREFIX, drop_schema
from ..store.url import MEMORY, DatabaseURL, parse_url

SUFFIXES = ("", "-wal", "-shm", "-journal")
"""The file of a SQLite database, and the files that SQLite keeps beside it."""


class Leftover(SimpleWorkflowError):
    """The benchmark could not remove its place."""


@dataclass(frozen=True, slots=True)
class Place:
    """A database of the benchmark's own."""

    app: App
    url: DatabaseURL
    """As the operator named it."""
    name: str
    """What would be left behind: a schema, or a file."""

    @property
    def is_postgres(self) -> bool:
        return self.url.dialect == "postgres"

    @property
    def kind(self) -> str:
        return "schema" if self.is_postgres else "file"

    def create(self) -> None:
        """Reach the database and make the tables; all of them or none."""
        try:
            self.app.sync.migrate()
        except StoreUnavailable:
            raise
        except StoreError as error:
            needs = "the right to create a schema in that database" if self.is_postgres else "to write in its folder"
            raise StoreError(
                f"cannot make the {self.kind} {self.name}: {error}; the benchmark needs {needs}"
            ) from error

    def remove(self, after: BaseException | None) -> None:
        """`after`: what went wrong before, and is not to be forgotten over this."""
        try:
            if self.is_postgres:
                asyncio.run(_drop(self.url, self.name))
            self.app.sync.close()
            if not self.is_postgres and self.url.target != MEMORY:
                for file in (Path(self.name + suffix) for suffix in SUFFIXES):
                    if file.exists():  # where nothing may be written, not even what is not there can be removed
                        file.unlink()
        except (SimpleWorkflowError, OSError) as error:
            before = "" if after is None else f"{str(after) or 'interrupted'}; and "
            message = f"{before}the {self.kind} {self.name} could not be removed; please do that ({error})"
            raise Leftover(message) from error


async def _drop(url: DatabaseURL, schema: str) -> None:
    """On the tables as they are: an interruption may have come before there were any."""
    ledger = open_ledger(url, schema=schema)
    try:
        await ledger.look(drop_schema(schema))
    finally:
        await ledger.close()


def choose(url: str) -> Place:
    """A place with a new random name; nothing is created yet."""
    parsed, token = parse_url(url), secrets.token_hex(6)
    if parsed.dialect == "postgres":
        schema = f"{SCHEMA_PREFIX}{token}"
        return Place(App(url, schema=schema), parsed, schema)
    if parsed.target == MEMORY:
        return Place(App(url), parsed, MEMORY)
    file = Path(parsed.target)
    if file.is_dir():
        raise InvalidURL(f"{file} is a folder; name a file in it")
    beside = str(file.with_name(f"{file.name}.bench-{token}"))
    return Place(App(beside), parsed, beside)


@contextmanager
def place_at(url: str, *, keep: bool) -> Iterator[Place]:
    place = choose(url)
    is_made, is_ready = True, False  # an interruption may come after the commit
    trouble: BaseException | None = None
    try:
        try:
            place.create()
        except SimpleWorkflowError:
            is_made = not place.is_postgres  # a schema is made whole or not at all; a file may be there, empty
            raise
        is_ready = True
        yield place
    except BaseException as error:
        trouble = error
        raise
    finally:
        with _undisturbed():
            if is_made and not (keep and is_ready):
                place.remove(after=trouble)
            else:
                place.app.sync.close()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore signals meanwhile: a second Ctrl-C must not leave tables behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
