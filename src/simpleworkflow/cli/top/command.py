"""`simpleworkflow top`: the command."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from ..common.database import opened, place_of
from ..common.instants import Interval
from ..common.interrupts import run_in_a_loop, stopped_by_sigterm
from ..common.options import json_option, url_option
from ..common.output import say_json
from .snapshots import Looker, Snapshot

if TYPE_CHECKING:
    from ...app import App


@click.command()
@url_option
@click.option("--interval", default="2s", show_default=True, type=Interval(0.1), help="Between looks.")
@click.option("--once", is_flag=True, help="One look, one interval long, then stop; without a terminal always so.")
@click.option("--limit", default=40, show_default=True, type=click.IntRange(1), help="Types to show.")
@json_option
def top(url: str | None, interval: float, once: bool, limit: int, as_json: bool) -> None:
    """Show counts by type and status, rates, lateness and workers, live."""
    from ..screen.text import screen
    from .screen import print_snapshot, snapshot_json, watch_live, watch_plainly

    out = screen()
    with opened(url) as app:
        try:
            with stopped_by_sigterm():
                if not as_json and not once and out.is_terminal:
                    watch = watch_plainly if out.is_dumb_terminal else watch_live
                    run_in_a_loop(lambda: watch(Looker(app), out, str(place_of(url)), interval, limit))
                    return
                snapshot = run_in_a_loop(lambda: _look_once(app, interval))
        except KeyboardInterrupt:
            return
    if as_json:
        say_json(snapshot_json(snapshot))
    else:
        print_snapshot(snapshot, out, limit)


async def _look_once(app: App, interval: float) -> Snapshot:
    looker = Looker(app)
    await looker.start()
    await looker.count()
    await asyncio.sleep(interval)
    return await looker.look()
