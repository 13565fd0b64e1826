"""Database URLs: what users write, read once and checked.

    orders.db  sqlite:///orders.db        a file beside the program
    sqlite:////var/lib/orders.db          an absolute path
    :memory:  sqlite://                   memory, gone with the process
    postgresql://user@host/db             also postgres://; ?schema= (or the seed's ?search_path=), ?pgbouncer=true

Passwords never leave through `str()`: every message and log line prints the masked form.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from ..model.errors import InvalidURL

MEMORY = ":memory:"
_POSTGRES = {"postgres", "postgresql"}
_SQLITE = {"sqlite", "sqlite3"}
_SECRET = re.compile(r"((?:^|&)(?:ssl)?password=)[^&]*", re.IGNORECASE)
# These read texts of any length that strangers wrote, so there is one way to match at each place and no second try.
_LOGIN = re.compile(
    # Of a database, everything up to the last @: somebody may have forgotten to encode the slash in a password.
    r"((?:postgres|postgresql|mysql|mariadb|rediss?|amqps?|mongodb)(?:\+\w{1,30}){0,3}://[^\s:/@]*:)[^\s\"']{0,1000}@"
    r"|(?<=://)([^\s:/@]*:)[^\s/@]*@",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"""((?<!\w)\w*(?:password|passwd)["']?\s*[=:]\s*)(?:(["'])(?:\\.|(?!\2)[^\\\n])*\2|["']?[^\s&"',;]+)""",
    re.IGNORECASE,
)
_SWITCH = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)


@dataclass(frozen=True, slots=True)
class DatabaseURL:
    dialect: str
    target: str = field(repr=False)
    schema: str = "workflow"
    pgbouncer: bool = False

    def __str__(self) -> str:
        if self.dialect == "sqlite":
            return self.target
        extra = {"schema": self.schema} if self.schema != "workflow" else {}
        if self.pgbouncer:
            extra["pgbouncer"] = "true"
        shown = mask(self.target)
        return f"{shown}{'&' if '?' in shown else '?'}{urlencode(extra)}" if extra else shown


def mask(url: str) -> str:
    """The URL without its passwords, wherever it carries them."""
    parts = urlsplit(url)
    if parts.password is not None:
        login, _, host = parts.netloc.rpartition("@")
        parts = parts._replace(netloc=f"{login.split(':', 1)[0]}:***@{host}")
    return urlunsplit(parts._replace(query=_SECRET.sub(r"\1***", parts.query)))


def mask_text(text: str) -> str:
    """Any text without the passwords in it, of URLs and of key=value pairs; when in doubt, too much is hidden.

    The last line of defence, for texts that others have written: what a driver or a stranger's library says.
    """
    if "://" not in text and "pass" not in text.lower():
        return text
    text = _LOGIN.sub(lambda found: f"{found[1] or found[2]}***@", text)
    return _PAIR.sub(lambda found: f"{found[1]}{found[2] or ''}***{found[2] or ''}", text)


def parse_url(url: str, *, schema: str | None = None) -> DatabaseURL:
    if not url or not isinstance(url, str):
        raise InvalidURL(f"{url!r} is not a database URL; write a file name or postgresql://user@host/database")
    if "://" not in url:
        _refuse_near_misses(url)
        return DatabaseURL("sqlite", url if url == MEMORY else _file(url), schema=schema or "workflow")
    scheme = url.split("://", 1)[0].lower()
    if scheme in _SQLITE:
        return DatabaseURL("sqlite", _sqlite_path(url), schema=schema or "workflow")
    if scheme in _POSTGRES:
        return _postgres(url, schema)
    dialect, _, driver = scheme.partition("+")
    if driver and dialect in _SQLITE | _POSTGRES:
        raise InvalidURL(
            f"{scheme}:// names a driver, which simpleworkflow chooses itself; drop +{driver}: {dialect}://…"
        )
    raise InvalidURL(
        f"{scheme}:// is not a database that simpleworkflow knows; use a SQLite file (orders.db, sqlite:///orders.db) "
        "or postgresql://user@host/database"
    )


def _refuse_near_misses(text: str) -> None:
    """A mistyped URL must not become the name of a new SQLite file, nor be printed: it may hold a password."""
    if re.match(r"(postgres|postgresql|sqlite|sqlite3|mysql)(:|//)", text, re.IGNORECASE):
        raise InvalidURL(
            "that looks like a database URL, but :// is not where it belongs; write postgresql://user@host/database"
        )
    if re.match(r"\s*(host|user|password|dbname|port|hostaddr)\s*=", text, re.IGNORECASE):
        raise InvalidURL("that looks like a key=value connection string; write it as postgresql://user@host/database")
    if re.match(r"[a-z]:[\\/]", text, re.IGNORECASE):
        raise InvalidURL(f"{text} is a path of Windows, where simpleworkflow does not run; write one of this machine")
    if text != MEMORY and not set(text) & {".", "/"}:
        raise InvalidURL(
            f"{text!r} could be a file or the name of a database; write {text}.db (or ./{text}) for a SQLite file, "
            f"postgresql://user@host/{text} for PostgreSQL"
        )


def _file(path: str) -> str:
    """A path as the shell would read it: ~ is the home directory. Its spelling leads back to the same file."""
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise InvalidURL(f"{path}: that home directory cannot be found; write the path in full")
    shown = str(Path(expanded))
    return f"./{shown}" if shown.startswith("~") or not set(shown) & {".", "/"} else shown


def _sqlite_path(url: str) -> str:
    rest = url.split("://", 1)[1].split("?", 1)[0]
    if rest in {"", "/", MEMORY, "/" + MEMORY}:
        return MEMORY
    return _file(unquote(rest.removeprefix("/") if rest.startswith("/") else rest))


def _split(url: str) -> SplitResult:
    """The parts of a URL whose password is spelled so that it can be told from the rest; the URL is never printed."""
    try:
        parts = urlsplit(url)
        port_is_readable = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_readable = urlsplit(""), False
    is_torn = "@" in parts.path + parts.query + parts.fragment or parts.netloc.count("@") > 1
    if not port_is_readable or is_torn or parts.fragment:
        raise InvalidURL(
            "that PostgreSQL URL cannot be read; characters such as / ? # [ @ in a user name or password must be "
            "percent-encoded: %40 for @, or urllib.parse.quote(password, safe='') for all of them"
        )
    return parts


def _switched(key: str, value: str) -> bool:
    """A typing error must not pass for a no."""
    if (found := _SWITCH.get(value.lower())) is None:
        raise InvalidURL(f"?{key}={value} is neither yes nor no; write ?{key}=true or ?{key}=false")
    return found


def _postgres(url: str, schema: str | None) -> DatabaseURL:
    parts = _split(url)
    chosen, pgbouncer, kept = schema, False, []
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key in {"schema", "search_path"}:
            chosen = chosen or value.split(",")[0].strip()
        elif key == "pgbouncer":
            pgbouncer = _switched(key, value)
        else:
            kept.append((key, value))
    chosen = chosen or "workflow"
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,39}", chosen):
        raise InvalidURL(f"schema {chosen!r} must be lower-case letters, digits and _ (at most 40), such as workflow")
    target = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(kept, quote_via=quote), ""))
    return DatabaseURL("postgres", target, chosen, pgbouncer)
