"""`simpleworkflow outbox status`: how many events wait, how late they are, and which dispatchers serve the lanes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from ...model.outbox import OutboxStatus
from ..common.database import opened
from ..common.options import json_option, url_option
from ..common.output import safe, say_json


@click.command()
@url_option
@json_option
def status(url: str | None, as_json: bool) -> None:
    """Show how many events wait, how late they are, which are dead, and who serves which lanes."""
    with opened(url) as app:
        found = app.sync.outbox.status()
    if as_json:
        say_json(_status_json(found))
        return
    for line in _status_lines(found):
        click.echo(line)


def _status_json(found: OutboxStatus) -> dict[str, Any]:
    return {
        "waiting": found.waiting,
        "retrying": found.retrying,
        "held_back": found.behind,
        "dead": found.dead,
        "lag_seconds": round(found.lag, 3),
        "counted_up_to": found.most,
        "dispatchers": list(found.dispatchers),
        "lanes": [
            {"lane": lane.lane, "owner": lane.owner if lane.is_held else None, "epoch": lane.epoch}
            for lane in found.lanes
        ],
    }


def _status_lines(found: OutboxStatus) -> list[str]:
    from ..screen.text import length

    def some(count: int) -> str:
        return f"{count:,}{' or more' if count >= found.most else ''}"

    oldest = f", the oldest for {length(found.lag)}" if found.lag else ""
    waiting, retrying = (oldest, "") if found.waiting else ("", oldest)
    lines = [
        f"waiting    {some(found.waiting)}{waiting}",
        f"retrying   {some(found.retrying)}{retrying}",
        f"held back  {some(found.behind)} behind a retried or dead event of their own run",
        f"dead       {some(found.dead)}" + ("; see: simpleworkflow outbox list" if found.dead else ""),
    ]
    owned = Counter(lane.owner for lane in found.lanes if lane.is_held and lane.owner is not None)
    for owner in sorted({*owned, *found.dispatchers}):
        lanes = "".join(lane.lane for lane in found.lanes if lane.owner == owner and lane.is_held)
        lines.append(f"dispatcher {safe(owner)}  serves {owned[owner]} of {len(found.lanes)} lanes {lanes}".rstrip())
    if not owned:
        lines.append("no dispatcher is alive: simpleworkflow outbox dispatch --sink …, or worker --sink …")
    return lines
