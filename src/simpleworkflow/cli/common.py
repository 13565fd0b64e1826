"""What every command shares: the words of its options, how it prints, how it fails.

A command prints to people (rich tables, colours on a terminal only) or to programs (`--json`: one JSON value per line,
nothing else on standard output). Mistakes end in one sentence on standard error and an exit code of `main.py`.
Nothing heavy is imported here: `--help` pays for every import.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from ..config import URL_VARIABLE
from ..model.duration import EXAMPLES, seconds
from ..model.errors import InvalidDuration, InvalidName, InvalidURL
from ..model.names import span_of_prefix

if TYPE_CHECKING:
    from rich.console import Console

    from ..app import App
    from ..store.url import DatabaseURL

F = TypeVar("F", bound=Callable[..., Any])

NOT_DONE = 1
CALLED_WRONGLY = 2
UNCLEAN = 3
LENGTHS = 'write 30s, 5m, 1h30m or "3 days"'
SINK_VARIABLE = "SIMPLEWORKFLOW_SINK"
"""Instead of --sink, for a line that holds a secret."""


class Group(click.Group):
    """A group whose help shows what each command does as a whole sentence, instead of cutting it off."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        lines = [(name, command.get_short_help_str(300)) for name, command in found.items() if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(lines)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            shown = f"{ctx.command_path} {args[0]}".removeprefix(f"{ctx.find_root().command_path} ")
            meant = self.meant_by(ctx, args[0])
            ctx.fail(f"there is no command {shown!r}{f'; did you mean {meant}?' if meant else ''}")
        return super().resolve_command(ctx, args)

    def meant_by(self, ctx: click.Context, word: str) -> str:
        """Commands of this group that are spelled alike, else what the word means outside of it."""
        from difflib import get_close_matches

        root = ctx.find_root()
        outside = root.command if isinstance(root.command, Group) else self
        if outside is not self and outside.get_command(root, word) is not None:
            return pointer(root, [word])
        near = get_close_matches(word, self.list_commands(ctx), 2)
        return pointer(ctx, near) if near or outside is self else outside.meant_by(root, word)


def pointer(ctx: click.Context, words: Iterable[str]) -> str:
    return " or ".join(f"`{ctx.command_path} {word}`" for word in words)


def counted(count: int, thing: str) -> str:
    """1 run, 2 runs."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def fail(message: str, code: int = NOT_DONE) -> NoReturn:
    click.secho("error: ", fg="red", nl=False, err=True)
    click.echo("\n".join(map(safe, message.split("\n"))), err=True)
    sys.exit(code)


def safe(text: str) -> str:
    """The text with everything that a terminal might obey, or that would start a new line, as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def check_url(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    from ..store.url import parse_url

    if value is not None:
        try:
            parse_url(value)
        except InvalidURL as error:
            raise click.BadParameter(str(error)) from None
    return value


def check_duration(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            seconds(value, what="duration")
        except InvalidDuration as error:
            raise click.BadParameter(str(error).replace(EXAMPLES, LENGTHS)) from None
    return value


def check_seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """As check_duration; a plain number is seconds, for lengths that nobody takes for days."""
    is_plain = value is not None and re.fullmatch(r"\d+(\.\d+)?", value.strip()) is not None
    return check_duration(context, parameter, f"{value}s" if is_plain else value)


def check_prefixes(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for prefix in value:
        try:
            span_of_prefix(prefix)
        except InvalidName as error:
            raise click.BadParameter(str(error)) from None
    return value


def url_option(command: F) -> F:
    return click.option(
        "--url",
        callback=check_url,
        help=f"The database: a SQLite file or postgresql://…; {URL_VARIABLE} or simpleworkflow.db unless given.",
    )(command)


def log_level_option(command: F) -> F:
    levels = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)
    return click.option("--log-level", default="INFO", show_default=True, type=levels)(command)


def import_option(command: F) -> F:
    return click.option(
        "--import",
        "imports",
        multiple=True,
        metavar="MODULE",
        help="Also load this module, whose workflows belong to the App; repeatable.",
    )(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one value per line.")(command)


def place_of(url: str | None) -> DatabaseURL:
    """The database that is meant. `--url` has been checked before, so what is wrong here stands in the environment."""
    from ..config import default_url
    from ..store.url import parse_url

    try:
        return parse_url(url or default_url())
    except InvalidURL as error:
        fail(f"{URL_VARIABLE}: {error}", CALLED_WRONGLY)


def open_app(url: str | None) -> App:
    """The App of a command that looks or changes, without any workflows of its own.

    A SQLite file that does not exist, or that belongs to another program, is a mistake here, not a wish for tables.
    """
    from ..app import App
    from ..store.drivers.sqlite_look import has_our_tables
    from ..store.url import MEMORY

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


def say_json(value: object) -> None:
    """One line that a program can read. Instants become ISO 8601, ids become text; what a terminal might obey becomes
    an escape, which is the same JSON."""
    line = json.dumps(value, default=_plain, ensure_ascii=False)
    click.echo(line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line))


def _plain(value: Any) -> Any:
    from datetime import datetime

    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def console() -> Console:
    """For tables and bars; without a terminal it prints plain text of a fixed width, so that output can be compared."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", "120")), highlight=False)
