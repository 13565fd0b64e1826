"""`simpleworkflow doctor`: examines a database and the work in it.

It prints a line per finding, with a mark that can be seen without colours, and the fix below. Lines are wrapped only on
a terminal. Fixes never are, so that a command can be copied.
"""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from ..common.exit_codes import NOT_DONE
from ..common.options import import_option, json_option, url_option
from ..common.output import safe, say_json

if TYPE_CHECKING:
    from ...app import App
    from ...client.doctor.findings import Finding

MARKS = {"ok": ("✓", "green"), "note": ("·", "cyan"), "warning": ("!", "yellow"), "problem": ("✗", "bold red")}
PLAIN_MARKS = {"ok": "+", "note": "-", "warning": "!", "problem": "X"}
PLACEHOLDER = "MODULE:APP"
MARGIN = 22
NARROWEST = 40


@click.command()
@url_option
@click.option("--module", "target", metavar="MODULE:APP", help="Look with the settings and workflows of this App.")
@import_option
@click.option("--strict", is_flag=True, help="Warnings count as problems.")
@json_option
def doctor(url: str | None, target: str | None, imports: tuple[str, ...], strict: bool, as_json: bool) -> None:
    """Examine a database and the work in it; changes nothing.

    Exit code 0: no problem. 1: a problem was found (with --strict: or a warning). 2: called wrongly.
    """
    app = _app(url, target, imports)
    with _working(show=not as_json):
        findings = asyncio.run(_examine(app))
    if target is not None:
        findings = [_for_module(finding, app, target) for finding in findings]
    if as_json:
        for finding in findings:
            say_json(asdict(finding))
    else:
        show(findings)
    bad = {"problem", "warning"} if strict else {"problem"}
    if any(finding.level in bad for finding in findings):
        sys.exit(NOT_DONE)


def _app(url: str | None, target: str | None, imports: tuple[str, ...]) -> App:
    if target is None:
        from ...app import App

        return App(url)
    from ..common.load_app import load_app

    app = load_app(target, imports)
    if url is not None:
        app._client.use(url)
    return app


async def _examine(app: App) -> list[Finding]:
    try:
        return await app.doctor.examine()
    finally:
        await app.close()


def _for_module(finding: Finding, app: App, target: str) -> Finding:
    """Put the module into its fix, or say that a worker of this module would not help."""
    if finding.fix is None or PLACEHOLDER not in finding.fix:
        return finding
    if finding.subject is not None and not app._client.serves(finding.subject):
        text = f"{target} has no workflow {finding.subject} either; find the App that has it"
        return replace(finding, fix=f"{text}: {finding.fix}")
    return replace(finding, fix=finding.fix.replace(PLACEHOLDER, target))


def _working(*, show: bool) -> AbstractContextManager[Any]:
    """A spinner on a terminal, for a database that is slow to answer."""
    if not (show and sys.stderr.isatty()):
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("looking …")


def show(findings: Sequence[Finding]) -> None:
    from rich.text import Text

    from ..screen.text import say, screen

    out = screen()
    width = max(out.width - MARGIN, NARROWEST) if out.is_terminal else None
    for finding in findings:
        mark, style = MARKS[finding.level]
        first, *rest = _wrapped(safe(finding.seen), width)
        head = Text.assemble((_printable(mark, finding.level), style), f" {finding.check:<{MARGIN - 4}}  {first}")
        say(out, head)
        for line in rest:
            say(out, Text(" " * MARGIN + line))
        if finding.fix is not None and finding.level != "ok":
            say(out, Text(" " * MARGIN) + Text("fix: ", "bold") + Text(safe(finding.fix)))
    say(out, Text(_summary(findings), "bold"))


def _wrapped(text: str, width: int | None) -> list[str]:
    return (textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) if width else [text]) or [""]


def _printable(mark: str, level: str) -> str:
    try:
        mark.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN_MARKS[level]
    return mark


def _summary(findings: Sequence[Finding]) -> str:
    counts = Counter(str(finding.level) for finding in findings)
    words = [
        f"{counts[level]} {level}{'' if counts[level] == 1 else 's'}"
        for level in ("problem", "warning", "note")
        if counts[level]
    ]
    return ", ".join(words) if words else "all is well"
