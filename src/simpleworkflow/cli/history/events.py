"""`simpleworkflow events --since 10m [--follow]`: the audit trail of all runs, oldest first.

Events are read by id, a page at a time, so millions of them start at once and stay cheap. `--follow` reads the last
seconds again at each look: PostgreSQL commits transactions in any order, and an event with a lower id that commits
later would be missed otherwise. It is then printed after its neighbours.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ...clock import monotonic
from ...model.records import EventLine
from ...model.states import EventType
from ..common.database import opened
from ..common.instants import Instant, Interval
from ..common.interrupts import run_in_a_loop, stopped_by_sigterm
from ..common.options import check_prefix, json_option, url_option
from ..common.output import say_json
from .command import event_json

if TYPE_CHECKING:
    from ...app import App

PAGE = 1_000
LOOK_BACK = 10.0
"""Seconds by which an event may commit late; no transaction of ours takes longer on a healthy database."""
MOST_BACK = 5_000
"""Events that are read again at most; on a busier database fewer seconds are."""


@click.command()
@url_option
@click.option("--since", default="10m", show_default=True, type=Instant(), help="How far back, or an instant.")
@click.option("--type", "prefix", callback=check_prefix, help="Only runs of this type, or below a prefix: billing.*")
@click.option(
    "--event",
    multiple=True,
    type=click.Choice([kind.value for kind in EventType]),
    help="Only events of this kind; repeatable.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--interval", default="1s", show_default=True, type=Interval(0.05), help="Between looks.")
@json_option
def events(
    url: str | None,
    since: datetime,
    prefix: str | None,
    event: tuple[str, ...],
    follow: bool,
    interval: float,
    as_json: bool,
) -> None:
    """Print the audit trail of all runs."""
    with opened(url) as app:
        feed = Feed(app, since, prefix, event)
        try:
            with stopped_by_sigterm():
                run_in_a_loop(lambda: _print(feed, interval if follow else None, as_json))
        except KeyboardInterrupt:
            pass  # ends --follow


async def _print(feed: Feed, interval: float | None, as_json: bool) -> None:
    from ..screen.text import screen

    out = screen()
    while True:
        while (lines := await feed.page()) is not None:
            for line in lines:
                if as_json:
                    say_json({**event_json(line), "run_type": line.run_type})
                else:
                    _say_line(line, out)
        if interval is None:
            return
        await asyncio.sleep(interval)
        feed.look_again()


def _say_line(line: EventLine, out: Any) -> None:
    from rich.text import Text

    from ..common.output import safe
    from ..screen.text import STYLES, compact, first_line, say

    instant = f"{line.created_at:%Y-%m-%d %H:%M:%S}.{line.created_at.microsecond // 1000:03}Z"
    text = Text(f"{instant}  {line.run_id}  ", "dim")
    text.append(f"{line.type:<12}  ", f"not dim {_style(line.type, STYLES)}")
    text.append(safe(line.run_type or "(gone)"), "not dim")
    text.append("" if line.data is None else f"  {first_line(compact(line.data), 400)}", "dim")
    say(out, text)


def _style(type: EventType, styles: Any) -> str:
    return str(styles.get(type.value, "default"))


class Feed:
    """Reads the audit trail without missing or repeating an event."""

    def __init__(self, app: App, since: datetime, prefix: str | None, kinds: tuple[str, ...]) -> None:
        self._app = app
        self._since = since
        self._prefix = prefix
        self._kinds = kinds
        self._place = 0
        self._ended = False
        self._settled = 0
        self._windows: OrderedDict[int, float] = OrderedDict()
        """Id where each recent look ended -> when it was."""
        self._returned: OrderedDict[int, None] = OrderedDict()
        """Ids that were returned and may be read again."""

    async def page(self) -> list[EventLine] | None:
        """The next lines; None when there are no more for now."""
        if self._ended:
            return None
        page = await self._app.activity.events(
            self._since, after=self._place, limit=PAGE, prefix=self._prefix, events=self._kinds or None
        )
        self._place, self._ended = page.last, page.is_last
        new = [line for line in page.lines if line.id not in self._returned]
        self._returned.update(dict.fromkeys(line.id for line in page.lines))
        while len(self._returned) > MOST_BACK + PAGE:
            self._returned.popitem(last=False)
        self._windows.setdefault(page.last, monotonic())
        return new

    def look_again(self) -> None:
        """Go back to the last id before which every event must have committed."""
        horizon = monotonic() - LOOK_BACK
        while self._windows and next(iter(self._windows.values())) < horizon:
            self._settled = self._windows.popitem(last=False)[0]
        self._settled = max(self._settled, self._place - MOST_BACK)
        while self._returned and next(iter(self._returned)) <= self._settled:
            self._returned.popitem(last=False)
        self._place, self._ended = self._settled, False
