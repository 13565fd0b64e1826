"""`simpleworkflow explain RUN`: where a run stands and why, as one sentence with details.

The children that the run waits for follow, indented, each with its own sentence. Everything is read in one snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..common.database import opened
from ..common.options import json_option, url_option
from ..common.output import say_json
from .lookup import key_option, run_id_of

if TYPE_CHECKING:
    from rich.console import Console

    from ...model.explanation import Explanation

INDENT = "    "


@click.command()
@click.argument("run")
@url_option
@key_option
@json_option
def explain(run: str, url: str | None, as_key: bool, as_json: bool) -> None:
    """Say where a run stands and why; RUN is its id, the beginning of it, or its idempotency key."""
    with opened(url) as app:
        explanation = app.sync.handle(run_id_of(app, run, as_key)).explanation()
    if as_json:
        say_json(as_data(explanation))
        return
    from ..screen.text import screen

    _print(explanation, screen(), "")


def as_data(explanation: Explanation) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        "run_id": explanation.run_id,
        "type": explanation.type,
        "status": explanation.status,
        "reason": explanation.reason,
        "sentence": explanation.sentence,
        "at": explanation.at,
        "details": [{"label": detail.label, "value": detail.value} for detail in explanation.details],
        "children": [as_data(child) for child in explanation.children],
    }


def _print(explanation: Explanation, out: Console, indent: str) -> None:
    from rich.text import Text

    from ..common.output import safe
    from ..screen.text import STYLES, say

    say(out, Text(indent) + Text(safe(explanation.sentence), f"bold {STYLES.get(explanation.status, '')}".strip()))
    width = max((len(detail.label) for detail in explanation.details), default=0)
    for label, value in explanation.details:
        say(out, Text(f"{indent}  ") + Text(f"{label:<{width}}", "dim") + Text(f"  {safe(value)}"))
    for child in explanation.children:
        say(out, "")
        _print(child, out, indent + INDENT)
