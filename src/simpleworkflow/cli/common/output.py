"""Messages of the commands: one sentence on standard error for a mistake, one JSON value per line for programs.

Nothing heavy is imported here: `--help` pays for every import.
"""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

import click

from .exit_codes import NOT_DONE


def fail(message: str, code: int = NOT_DONE) -> NoReturn:
    click.secho("error: ", fg="red", nl=False, err=True)
    click.echo("\n".join(map(safe, message.split("\n"))), err=True)
    sys.exit(code)


def safe(text: str) -> str:
    """The text with everything that a terminal might obey, or that would start a new line, as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def counted(count: int, thing: str) -> str:
    """1 run, 2 runs."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def say_json(value: object) -> None:
    """Print one line of JSON. Instants become ISO 8601, ids become text; what a terminal might obey becomes an escape,
    which is the same JSON."""
    line = json.dumps(value, default=_plain, ensure_ascii=False)
    click.echo(line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line))


def _plain(value: Any) -> Any:
    from datetime import datetime

    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)
