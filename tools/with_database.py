"""Run a `simpleworkflow` command on the database that DB_HOST, DB_PORT, DB_USER, DB_PASSWORD, DB_NAME and DB_SSLMODE
name, as `make migrate-up` does.

The variables come from the environment, where make puts its own, and from the file `.env` for those that are not set
there. When one of them is given, the others have their defaults; when none is, SIMPLEWORKFLOW_URL counts, or the
command's own default.

Two dangers. A password may hold any character: it is percent-encoded here, once, and `.env` is read here and not by
make, to which `#` and `$` mean something. And a command line can be read by everybody on the machine: the address goes
to the command by its environment, and is never printed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

URL = "SIMPLEWORKFLOW_URL"
DEFAULTS = {
    "DB_HOST": "localhost",
    "DB_PORT": "5432",
    "DB_USER": "postgres",
    "DB_PASSWORD": "postgres",
    "DB_NAME": "workflow",
    "DB_SSLMODE": "disable",
}
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*")


class Mistake(Exception):
    """What is wrong with the variables, in a sentence that holds no secret."""


def read_env(text: str, where: str = ".env") -> dict[str, str]:
    """NAME=value lines. 'single' quotes keep everything, "double" ones know \\" \\\\ and \\$; ` #` begins a comment."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        value = None if match is None else _value(match[2])
        if match is None or value is None:
            raise Mistake(
                f"{where}, line {number}, cannot be read; write NAME=value, or NAME='value' with blanks in it"
            )
        found[match[1]] = value
    return found


def _value(written: str) -> str | None:
    if single := re.fullmatch(r"'([^']*)'(?:\s+#.*)?", written):
        return single[1]
    if double := re.fullmatch(r'"((?:[^"\\]|\\.)*)"(?:\s+#.*)?', written):
        return re.sub(r'\\(["\\$])', r"\1", double[1])
    if written[:1] in {"'", '"'}:
        return None
    return re.sub(r"(^|\s+)#.*$", "", written)


def url_of(variables: Mapping[str, str]) -> str | None:
    """The address that the DB_ variables make; None when none of them is given."""
    if not any(variables.get(name) for name in DEFAULTS):
        return None
    given = {name: variables.get(name, default) for name, default in DEFAULTS.items()}
    for name in ("DB_HOST", "DB_PORT", "DB_USER", "DB_NAME", "DB_SSLMODE"):
        given[name] = given[name] or DEFAULTS[name]
    if not re.fullmatch(r"[0-9]{1,5}", given["DB_PORT"]):
        raise Mistake("DB_PORT must be a number, such as 5432")
    if given["DB_SSLMODE"] not in SSL_MODES:
        raise Mistake(f"DB_SSLMODE must be one of {', '.join(SSL_MODES)}")
    login = quote(given["DB_USER"], safe="")
    if given["DB_PASSWORD"]:
        login += ":" + quote(given["DB_PASSWORD"], safe="")
    return f"postgresql://{login}@{_address(given)}"


def _address(given: Mapping[str, str]) -> str:
    host, options = given["DB_HOST"], {"sslmode": given["DB_SSLMODE"]}
    if host.startswith("/"):  # the folder of a socket
        options |= {"host": host, "port": given["DB_PORT"]}
        place = ""
    else:
        if not re.fullmatch(r"[\w.:-]+", host):
            raise Mistake("DB_HOST must be the name or address of a host, or the folder of a socket")
        place = (f"[{host}]" if ":" in host else host) + ":" + given["DB_PORT"]
    return f"{place}/{quote(given['DB_NAME'], safe='')}?{urlencode(options)}"


def environment(own: Mapping[str, str], file: Path) -> dict[str, str]:
    """What the command is started with."""
    try:
        variables = {**read_env(file.read_text(encoding="utf-8-sig"), str(file)), **own}
    except FileNotFoundError:
        variables = dict(own)
    except (OSError, UnicodeDecodeError) as error:
        raise Mistake(f"{file} cannot be read: {error}") from None
    url = url_of(variables) or variables.get(URL)
    kept = {name: value for name, value in own.items() if name not in DEFAULTS}
    return kept if url is None else {**kept, URL: url}


def main() -> None:
    try:
        variables = environment(os.environ, Path(".env"))
    except Mistake as mistake:
        sys.exit(f"error: {mistake}")
    os.execve(sys.executable, [sys.executable, "-m", "simpleworkflow", *sys.argv[1:]], variables)


if __name__ == "__main__":
    main()
