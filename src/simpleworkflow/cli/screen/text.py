"""Text for a terminal: values on one line, instants, lengths of time, the colours of states.

Payloads, errors and names come from outside. What a terminal would obey is shown as an escape (`\\x1b`), and text is
never read as markup.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ...model.duration import human
from ...model.states import Status
from ..common.output import safe

if TYPE_CHECKING:
    from rich.console import Console

STYLES: dict[Status, str] = {
    Status.LEASED: "cyan",
    Status.PAUSED: "magenta",
    Status.SUCCEEDED: "green",
    Status.FAILED: "red",
    Status.TIMED_OUT: "red",
    Status.CANCELLED: "yellow",
}


def screen() -> Console:
    """The console for tables and bars. Without a terminal its width is fixed, so that output can be compared.

    A character that the encoding of the terminal lacks is escaped: it must not end a command.
    """
    from rich.console import Console

    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    return Console(width=None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", "120")), highlight=False)


def say(out: Console, line: Text | str) -> None:
    """One line as it is: not wrapped, not cropped, not read as markup."""
    text = line if isinstance(line, Text) else Text(line)
    text.rstrip()
    out.print(text, soft_wrap=True)


def first_line(text: str, most: int = 200) -> str:
    """The first line of a message, safe and not too long."""
    line = safe(text.strip().partition("\n")[0])
    return line if len(line) <= most else line[: most - 1] + "…"


def compact(value: Any) -> str:
    """A JSON value on one line."""
    return safe(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")))


def when(instant: datetime | None) -> str:
    """An instant as people write it, in UTC, to the second."""
    return "" if instant is None else instant.strftime("%Y-%m-%d %H:%M:%SZ")


def length(seconds: float) -> str:
    """A length of time, rounded: 4ms, 1.25s, 3m 20s."""
    if seconds < 0.001:
        return "0s" if seconds <= 0 else "<1ms"
    return human(round(seconds, 3) if seconds < 1 else round(seconds, 2) if seconds < 60 else round(seconds))


def status_text(status: Status, *, is_held: bool = False, is_deleted: bool = False) -> Text:
    """A hold says nothing any more once the run has finished."""
    text = Text(status, STYLES.get(status, ""))
    if is_held and not status.is_terminal:
        text.append(" held", "bold yellow")
    if is_deleted:
        text.append(" deleted", "dim")
    return text
