"""Options that several commands have, and checks of what was written after them.

Nothing heavy is imported here: `--help` pays for every import.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ...config import URL_VARIABLE
from ...model.duration import EXAMPLES, seconds
from ...model.errors import InvalidDuration, InvalidName, InvalidURL
from ...model.names import check_key, check_type, span_of_prefix

F = TypeVar("F", bound=Callable[..., Any])

LENGTHS = 'write 30s, 5m, 1h30m or "3 days"'
SINK_VARIABLE = "SIMPLEWORKFLOW_SINK"
"""Instead of --sink, for a URL that holds a secret."""


def check_url(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    from ...store.url import parse_url

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
    """As check_duration; a plain number means seconds, where it cannot be mistaken for days."""
    is_plain = value is not None and re.fullmatch(r"\d+(\.\d+)?", value.strip()) is not None
    return check_duration(context, parameter, f"{value}s" if is_plain else value)


def check_prefixes(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for prefix in value:
        try:
            span_of_prefix(prefix)
        except InvalidName as error:
            raise click.BadParameter(str(error)) from None
    return value


def check_prefix(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    check_prefixes(ctx, param, () if value is None else (value,))
    return value


def check_name(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    return _checked(check_type, value)


def check_one_key(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    return _checked(check_key, value)


def check_signal(_: click.Context, __: click.Parameter, value: str) -> str | None:
    from ...runtime.branches import check_name as check_step_name

    return _checked(lambda name: check_step_name(name, "signal"), value)


def _checked(check: Callable[[str], str], value: str | None) -> str | None:
    try:
        return None if value is None else check(value)
    except InvalidName as error:
        raise click.BadParameter(str(error)) from None


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
