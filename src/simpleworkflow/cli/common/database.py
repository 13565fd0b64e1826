"""The database of a command: which one is meant, and its App, opened and closed again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...config import URL_VARIABLE
from ...model.errors import InvalidURL
from .exit_codes import CALLED_WRONGLY
from .output import fail

if TYPE_CHECKING:
    from ...app import App
    from ...store.url import DatabaseURL


@contextmanager
def opened(url: str | None) -> Iterator[App]:
    """The App, closed afterwards: on SQLite the last connection tidies the write-ahead log."""
    app = open_app(url)
    try:
        yield app
    finally:
        app.sync.close()


@contextmanager
def opened_or_new(url: str | None) -> Iterator[App]:
    """The App of a database that may not exist yet, closed afterwards."""
    from ...app import App

    place_of(url)
    app = App(url)
    try:
        yield app
    finally:
        app.sync.close()


def place_of(url: str | None) -> DatabaseURL:
    """The database that a command uses. `--url` was checked before, so an invalid URL comes from the environment."""
    from ...config import default_url
    from ...store.url import parse_url

    try:
        return parse_url(url or default_url())
    except InvalidURL as error:
        fail(f"{URL_VARIABLE}: {error}", CALLED_WRONGLY)


def open_app(url: str | None) -> App:
    """The App of a command that reads or changes runs; it has no workflows.

    A SQLite file that does not exist or has other tables is refused: here it is a mistake, and no wish for new tables.
    """
    from ...app import App
    from ...store.drivers.sqlite_look import has_our_tables
    from ...store.url import MEMORY

    place = place_of(url)
    if place.target == MEMORY:
        fail("a database in memory belongs to the process that made it; name a file: --url work.db", CALLED_WRONGLY)
    if place.dialect == "sqlite":
        instead = f"name another one with --url or {URL_VARIABLE}, or make it one"
        if not os.path.exists(place.target):
            fail(f"there is no database at {place.target}; {instead}: simpleworkflow migrate up")
        if not has_our_tables(place.target):
            fail(f"{place.target} has no tables of simpleworkflow; {instead}: simpleworkflow migrate up")
    return App(url)
