"""`simpleworkflow worker MODULE:APP`: the command and its options. The worker itself runs in `serve.py`."""

from __future__ import annotations

from typing import Any

import click

from ...config import LOG_ERRORS, LOG_ERRORS_VARIABLE
from ...logs import Format, loading_for
from ..common.load_app import load_app
from ..common.options import SINK_VARIABLE, check_prefixes, check_seconds, check_url, import_option, log_level_option
from .serve import serve


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
    with loading_for(log_format, log_level):  # the imported code may set up logging itself
        app = load_app(target, imports, as_json=log_format == "json")
    if url is not None:
        app._client.use(url)
    options = {key: value for key, value in rest.items() if value is not None}
    if prefixes:
        options["prefixes"] = list(prefixes)
    if no_schedules:
        options["schedules"] = False
    serve(app, on_unknown="fail" if fail_unknown else "leave", **options)
