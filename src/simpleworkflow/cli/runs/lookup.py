"""Finds the run that an argument means: a whole id, the beginning of one (8 digits or more), or an idempotency key.

A whole id always means its own run, also when it is the key of another one. The beginning of an id is a range on the
primary key, so it is found fast. Runs that were created within about a minute share their first eight digits; an
ambiguous beginning lists the candidates. A word that is the beginning of one run's id and the key of another is
refused. Everything else is looked up as a key.

A word that is neither is a mistake of the caller (exit code 2). An id or a `--key` that no run has is not found (exit
code 1).
"""

from __future__ import annotations

from collections.abc import Callable
from string import hexdigits
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from ...model.errors import InvalidName, RunNotFound
from ..common.exit_codes import CALLED_WRONGLY
from ..common.output import fail

if TYPE_CHECKING:
    from ...app import App
    from ...model.explanation import Found

F = TypeVar("F", bound=Callable[..., Any])

FEWEST_DIGITS = 8
ALL_DIGITS = 32
MOST_LISTED = 10

key_option: Callable[[F], F] = click.option(
    "--key",
    "as_key",
    is_flag=True,
    help="RUN is an idempotency key. Otherwise: an id, its beginning (8 digits or more), or a key.",
)


def run_id_of(app: App, text: str, as_key: bool = False) -> UUID:
    """The id of the run that is meant; ends the command when none or several are."""
    if as_key:
        return app.sync.get(key=text).id
    digits = text.strip().replace("-", "")
    is_id = FEWEST_DIGITS <= len(digits) <= ALL_DIGITS and set(digits) <= set(hexdigits)
    found = app.sync.activity.find(digits, limit=MOST_LISTED + 1) if is_id else []
    if found and len(digits) == ALL_DIGITS:
        return found[0].id
    named = _with_key(app, text)
    if named is not None and all(run.id == named for run in found):
        return named
    if not is_id:
        shown = ascii(text if len(text) <= 60 else text[:60] + "…")
        wanted = f"give the whole id or at least its first {FEWEST_DIGITS} digits (0-9, a-f)"
        fail(f"{shown} is not the id of a run; {wanted}. No run has it as its key either", CALLED_WRONGLY)
    return _with_id_prefix(digits, found, named, text)


def _with_id_prefix(digits: str, found: list[Found], named: UUID | None, text: str) -> UUID:
    if len(digits) == ALL_DIGITS:
        return UUID(digits)  # the caller finds out whether there is such a run
    shown = "".join(f"\n  {run.id}  {run.type}  {run.status}" for run in found[:MOST_LISTED])
    more = "\n  and more" if len(found) > MOST_LISTED else ""
    if named is not None:
        message = f"{text} is the key of run {named}, and other runs have ids that begin with it"
        fail(f"{message}; add --key for the first, or give the whole id{shown}{more}")
    if not found:
        fail(f"there is no run whose id begins with {digits.lower()}, and none with the key {text}")
    if len(found) > 1:
        fail(f"several runs have ids that begin with {digits.lower()}; which one?{shown}{more}")
    return found[0].id


def _with_key(app: App, text: str) -> UUID | None:
    try:
        return app.sync.get(key=text).id
    except (RunNotFound, InvalidName):
        return None
