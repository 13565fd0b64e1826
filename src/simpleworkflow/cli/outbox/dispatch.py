"""`simpleworkflow outbox dispatch --sink URL`: takes events to a sink until SIGTERM or Ctrl-C.

The first signal lets the batch under way be finished and marked, and gives the lanes back. A second one ends at once:
the next dispatcher publishes again what was not marked.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING

import click

from ...logs import configure
from ...model.outbox import LANES, Delivery
from ..common.database import open_app
from ..common.options import SINK_VARIABLE, check_duration, log_level_option, url_option
from ..common.output import fail

if TYPE_CHECKING:
    from ...app import App
    from ...worker.relay import Relay

log = logging.getLogger("simpleworkflow.cli")


def check_keep(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return value if value == "forever" else check_duration(ctx, param, value)


@click.command()
@url_option
@click.option(
    "--sink",
    required=True,
    envvar=SINK_VARIABLE,
    show_envvar=True,
    help="Where events go: https://…, redis://…?stream=…, stdout: or file:events.jsonl.",
)
@click.option("--once", is_flag=True, help="Publish what is due now, then end.")
@click.option("--source", help="The CloudEvents source; /simpleworkflow/SCHEMA unless given.")
@click.option(
    "--keep",
    default="7 days",
    show_default=True,
    callback=check_keep,
    help='How long published events stay in the table, or "forever".',
)
@log_level_option
def dispatch(url: str | None, sink: str, once: bool, source: str | None, keep: str, log_level: str) -> None:
    """Take events to a sink until SIGTERM or Ctrl-C; any number of these, and workers with --sink, share the work."""
    configure("text", "WARNING" if once else log_level)
    app = open_app(url)
    try:
        app.sync.doctor.check()
        asyncio.run(_publish_once(app, sink, source, keep) if once else _publish(app, sink, source, keep))
    finally:
        app.sync.close()


async def _publish(app: App, sink: str, source: str | None, keep: str) -> None:
    relay = app._make_relay(sink, source=source, keep=keep)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    work = asyncio.ensure_future(relay.serve(stopping))

    def stop() -> None:
        if stopping.is_set():
            work.cancel()
        else:
            log.info("the relay stops when the batch under way is finished and marked; once more ends it at once")
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    log.info("the relay is ready")
    try:
        await work
    except asyncio.CancelledError:
        fail("stopped at once; what was not marked is published again by the next dispatcher")
    log.info("the relay has stopped: %s", _summary(relay))


async def _publish_once(app: App, sink: str, source: str | None, keep: str) -> None:
    relay = app._make_relay(sink, source=source, keep=keep)
    lanes = await relay.run_once()
    click.echo(_summary(relay), err=True)
    if lanes < len(LANES):
        click.echo(f"{len(LANES) - lanes} of {len(LANES)} lanes are served by other dispatchers", err=True)


def _summary(relay: Relay) -> str:
    counts = relay.counts
    parts = [f"{counts[Delivery.PUBLISHED]:,} published"]
    parts += [f"{counts[one]:,} {one}" for one in (Delivery.RETRYING, Delivery.DEAD) if counts[one]]
    return ", ".join(parts)
