"""Database URLs: what users write, read once and checked.

    orders.db  sqlite:///orders.db        a file beside the program
    sqlite:////var/lib/orders.db          an absolute path
    :memory:  sqlite://                   memory, gone with the process
    postgresql://user@host/db             also postgres://; ?schema= (or the seed's ?search_path=), ?pgbouncer=true

Passwords never leave through `str()`: every message and log line prints the masked form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from ..model.errors import InvalidURL

MEMORY = ":memory:"
_POSTGRES = {"postgres", "postgresql"}
_SQLITE = {"sqlite", "sqlite3"}
_SECRET = re.compile(r"((?:^|&)(?:ssl)?password=)[^&]*", re.IGNORECASE)
_TRUE = {"1", "true", "yes", "on"}


@dataclass(frozen=True, slots=True)
class DatabaseURL:
    dialect: str
    target: str = field(repr=False)
    schema: str = "workflow"
    pgbouncer: bool = False

    def __str__(self) -> str:
        return self.target if self.dialect == "sqlite" else mask(self.target)


def mask(url: str) -> str:
    """The URL without its passwords, wherever it carries them."""
    parts = urlsplit(url)
    if parts.password is not None:
        login, _, host = parts.netloc.rpartition("@")
        parts = parts._replace(netloc=f"{login.split(':', 1)[0]}:***@{host}")
    return urlunsplit(parts._replace(query=_SECRET.sub(r"\1***", parts.query)))


def parse_url(url: str, *, schema: str | None = None) -> DatabaseURL:
    if not url or not isinstance(url, str):
        raise InvalidURL(f"{url!r} is not a database URL; write a file name or postgresql://user@host/database")
    if "://" not in url:
        return DatabaseURL("sqlite", url if url == MEMORY else str(Path(url)), schema=schema or "workflow")
    scheme = url.split("://", 1)[0].lower()
    if scheme in _SQLITE:
        return DatabaseURL("sqlite", _sqlite_path(url), schema=schema or "workflow")
    if scheme in _POSTGRES:
        return _postgres(url, schema)
    raise InvalidURL(
        f"{scheme}:// is not a database that simpleworkflow knows; use a SQLite file (orders.db, sqlite:///orders.db) "
        "or postgresql://user@host/database"
    )


def _sqlite_path(url: str) -> str:
    rest = url.split("://", 1)[1].split("?", 1)[0]
    if rest in {"", "/", MEMORY, "/" + MEMORY}:
        return MEMORY
    return unquote(rest.removeprefix("/") if rest.startswith("/") else rest)


def _postgres(url: str, schema: str | None) -> DatabaseURL:
    parts = urlsplit(url)
    chosen, pgbouncer, kept = schema, False, []
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key in {"schema", "search_path"}:
            chosen = chosen or value.split(",")[0].strip()
        elif key == "pgbouncer":
            pgbouncer = value.lower() in _TRUE
        else:
            kept.append((key, value))
    chosen = chosen or "workflow"
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", chosen):
        raise InvalidURL(f"schema {chosen!r} must be lower-case letters, digits and _ (at most 63), such as workflow")
    target = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(kept, quote_via=quote), ""))
    return DatabaseURL("postgres", target, chosen, pgbouncer)
