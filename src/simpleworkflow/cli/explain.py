"""`simpleworkflow explain RUN`: where a run stands and why, in one sentence and then in detail.

The children that it waits for follow, indented, each with its own sentence and details: at the leaves of that tree
stands what everybody above waits for. All of it was read in one snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .common.database import opened
from .common.options import json_option, url_option
from .common.output import say_json
from .which import key_option, run_id_of

if TYPE_CHECKING:
    from rich.console import Console

    from ..model.explanation import Explanation

INDENT = "    "


@click.command()
@click.argument("run")
@url_option
@key_option
@json_option
def explain(run: str, url: str | None, as_key: bool, as_json: bool) -> None:
    """Say where a run stands and why; RUN is its id, the beginning of it, or its idempotency key."""
    with opened(url) as app:
        told = app.sync.handle(run_id_of(app, run, as_key)).explanation()
    if as_json:
        say_json(as_data(told))
        return
    from .screen.text import screen

    _print(told, screen(), "")


def as_data(told: Explanation) -> dict[str, Any]:
    """For programs: the same, with nothing left out."""
    return {
        "run_id": told.run_id,
        "type": told.type,
        "status": told.status,
        "reason": told.reason,
        "sentence": told.sentence,
        "at": told.at,
        "details": [{"label": detail.label, "value": detail.value} for detail in told.details],
        "children": [as_data(child) for child in told.children],
    }


def _print(told: Explanation, out: Console, indent: str) -> None:
    from rich.text import Text

    from .common.output import safe
    from .screen.text import STYLES, say

    say(out, Text(indent) + Text(safe(told.sentence), f"bold {STYLES.get(told.status, '')}".strip()))
    width = max((len(detail.label) for detail in told.details), default=0)
    for label, value in told.details:
        say(out, Text(f"{indent}  ") + Text(f"{label:<{width}}", "dim") + Text(f"  {safe(value)}"))
    for child in told.children:
        say(out, "")
        _print(child, out, indent + INDENT)
