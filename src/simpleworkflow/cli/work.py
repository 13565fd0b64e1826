"""`simpleworkflow worker MODULE:APP`: a worker as a process, with signals.

The first SIGTERM or SIGINT drains, a second one stops waiting for running code. When threads of user code are still
running at the end the process exits hard: their runs have been handed back, and nothing may hold up a deploy.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

import click

from ..app import App
from ..config import LOG_ERRORS, LOG_ERRORS_VARIABLE
from ..logs import Format, loading_for
from ..model.errors import StoreUnavailable
from ..runtime import tracing
from .common.exit_codes import UNCLEAN
from .common.load_app import load_app
from .common.options import SINK_VARIABLE, check_prefixes, check_seconds, check_url, import_option, log_level_option

log = logging.getLogger("simpleworkflow.cli")


@click.command()
@click.argument("target", metavar="MODULE:APP")
@import_option
@click.option("--url", callback=check_url, help="Another database than the App's own.")
@click.option("--name", help="This worker's name in leases, logs and listings.")
@click.option(
    "--prefix",
    "prefixes",
    multiple=True,
    callback=check_prefixes,
    help="Serve only types with this prefix, such as billing.*; repeatable.",
)
@click.option("--concurrency", type=click.IntRange(1, 10_000), help="Runs at a time (100).")
@click.option(
    "--lease",
    callback=check_seconds,
    help='How long this worker may be silent before its runs are taken over ("30s").',
)
@click.option("--drain", callback=check_seconds, help='How long running code may go on after a stop ("20s").')
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    help="Serve Prometheus metrics (/metrics) and a health check (/healthz) on this port; 0 takes a free one.",
)
@click.option("--metrics-host", help="The address to serve them on (127.0.0.1: this machine only).")
@click.option(
    "--sink",
    envvar=SINK_VARIABLE,
    show_envvar=True,
    help="Also take events of the outbox there: https://…, redis://…, stdout: or file:PATH.",
)
@click.option("--no-schedules", is_flag=True, help="Neither write down the App's schedules nor start slots of any.")
@click.option("--fail-unknown", is_flag=True, help="Also claim types without a handler here, and fail them.")
@log_level_option
@click.option(
    "--log-errors",
    type=click.Choice(LOG_ERRORS),
    help="How much of an error of your code is logged; the rest stands in the database only. "
    f"{LOG_ERRORS_VARIABLE} or traceback unless given.",
)
@click.option(
    "--log-format", default="text", show_default=True, type=click.Choice(["text", "json"]), help="json: one per line."
)
def worker(target: str, **options: Any) -> None:
    """Run a worker for the App that MODULE holds, until SIGTERM or Ctrl-C."""
    if options["metrics_host"] is not None and options["metrics_port"] is None:
        raise click.UsageError("--metrics-host says where metrics are served; say --metrics-port too")
    run_worker(target, **options)


def run_worker(
    target: str,
    *,
    imports: tuple[str, ...] = (),
    url: str | None,
    prefixes: tuple[str, ...],
    fail_unknown: bool,
    no_schedules: bool = False,
    log_level: str,
    log_format: Format = "text",
    **rest: Any,
) -> None:
    with loading_for(log_format, log_level):  # that code may set up logging itself
        app = load_app(target, imports, as_json=log_format == "json")
    if url is not None:
        app._client.use(url)
    options = {key: value for key, value in rest.items() if value is not None}
    if prefixes:
        options["prefixes"] = list(prefixes)
    if no_schedules:
        options["schedules"] = False
    serve(app, on_unknown="fail" if fail_unknown else "leave", **options)


def serve(app: App, **options: Any) -> None:
    """Work in the main thread until a signal says stop; exits the process when threads would hold it up."""
    asyncio.run(_serve(app, options))


async def _serve(app: App, options: dict[str, Any]) -> None:
    app._client.engine.ledger.watch()  # what the worker and its code meet is told once
    worker, stopping = app._make_worker(process_ends=True, **options), asyncio.Event()

    def stop() -> None:
        stopping.set()
        worker.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if not await _looked_at(app, stopping):
        return
    await worker.run()
    if worker.stays_behind is not None:
        # Here and not after asyncio.run: that would first wait for the very code that does not stop.
        log.warning(worker.stays_behind)
        _exit_hard()


async def _looked_at(app: App, stopping: asyncio.Event) -> bool:
    """Tables that do not fit end the command; a database that is not there yet is waited for. False: told to stop."""
    look, stop = asyncio.ensure_future(app.doctor.check()), asyncio.ensure_future(stopping.wait())
    await asyncio.wait({look, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not stop.cancel():
        look.cancel()
        return False
    with suppress(StoreUnavailable):
        look.result()
    return True


def _exit_hard() -> NoReturn:
    if tracing.on is not None:
        tracing.on.flush()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(UNCLEAN)
