"""`simpleworkflow trigger TYPE [PAYLOAD]`: start a run from a shell.

Only the id goes to standard output, so that `id=$(simpleworkflow trigger …)` works. With --wait the result goes there,
and the id to standard error: it is needed when the wait is given up.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from ...model.duration import seconds
from ...model.errors import InvalidDuration, ResultTimeout, StoreError
from ...model.retry import MAX_ATTEMPTS
from ...model.states import Status
from ..common.database import opened
from ..common.exit_codes import NOT_DONE
from ..common.instants import ExactInstant, now
from ..common.options import check_duration, check_name, check_one_key, check_seconds, json_option, url_option
from ..common.output import fail, say_json
from ..common.payloads import read_payload

if TYPE_CHECKING:
    from ...app import App
    from ...model.records import Run


def check_start_by(ctx: click.Context, param: click.Parameter, value: str | None) -> str | datetime | None:
    if value is None:
        return None
    try:
        seconds(value)
        return value
    except InvalidDuration:
        return ExactInstant().convert(value, param, ctx)


@click.command()
@click.argument("type", metavar="TYPE", callback=check_name)
@click.argument("payload", required=False, metavar="[PAYLOAD|-|@FILE]")
@url_option
@click.option(
    "--key",
    "--idempotency-key",
    "key",
    callback=check_one_key,
    help="Idempotency key: one run per key, however often this is asked.",
)
@click.option("--priority", type=click.IntRange(0, 999), help="Lower runs first (100).")
@click.option("--delay", callback=check_duration, help="Not before so long from now.")
@click.option("--at", type=ExactInstant(), help="Not before this instant, such as 2030-01-31T12:00Z.")
@click.option("--id", "run_id", type=click.UUID, help="The run's id, chosen by you.")
@click.option(
    "--start-by", callback=check_start_by, help="Give up if no worker has started it by then: so long after it is due."
)
@click.option("--max-attempts", type=click.IntRange(1, MAX_ATTEMPTS), help="Executions before it ends failed.")
@click.option(
    "--require", type=click.Choice(["definition", "worker"]), help="Refuse when nobody ever served it, or nobody does."
)
@click.option("--wait", is_flag=True, help="Wait for the end and print the result; exit code 1 unless it succeeded.")
@click.option("--wait-timeout", callback=check_seconds, help="How long to wait; the run goes on. Implies --wait.")
@json_option
def trigger(type: str, payload: str | None, url: str | None, wait: bool, as_json: bool, **options: Any) -> None:
    """Start a run of TYPE.

    PAYLOAD is JSON, - for standard input, or @FILE; omitted means null.
    """
    if options["delay"] is not None and options["at"] is not None:
        raise click.UsageError("give --delay or --at, not both")
    wait_limit = options.pop("wait_timeout")
    given = _trigger_options(**options)
    value = read_payload(payload)
    with opened(url) as app:
        handle = app.sync.trigger(type, value, **given)
        _warn_of_typo(app, type)
        if not (wait or wait_limit is not None):
            try:
                _tell_id(handle.id, handle.is_new, as_json)
            except OSError:  # standard output cannot be written, but the run exists
                click.echo(f"created run {handle.id}", err=True)
                raise
            return
        try:
            click.echo(f"run {handle.id}", err=True)
            run = app.sync.handle(handle.id).wait(timeout=wait_limit)
        except ResultTimeout as error:
            fail(f"not finished after {wait_limit}; {error}")
        except KeyboardInterrupt:
            fail(f"stopped waiting; the run goes on: {handle.id}")
    _tell_end(run, as_json)


def _trigger_options(
    *,
    key: str | None,
    priority: int | None,
    delay: str | None,
    at: datetime | None,
    run_id: UUID | None,
    start_by: str | datetime | None,
    max_attempts: int | None,
    require: Any,
) -> Any:
    return {
        "idempotency_key": key,
        "priority": priority,
        "delay": delay,
        "run_at": at,
        "id": run_id,
        "start_within": _start_within(start_by, delay, at),
        "max_attempts": max_attempts,
        "require": require,
    }


def _start_within(start_by: str | datetime | None, delay: str | None, at: datetime | None) -> str | timedelta | None:
    """An instant as a length of time after the run is due, as the store wants it."""
    if not isinstance(start_by, datetime):
        return start_by
    due = at or now() + timedelta(seconds=seconds(delay) if delay else 0)
    if start_by <= due:
        raise click.UsageError(f"--start-by {start_by.isoformat()} is not after the run is due")
    return start_by - due


def _warn_of_typo(app: App, type: str) -> None:
    """Only a warning: workers of that type may come later."""
    from ...client.checks import similar_name
    from ...store.operations.workers import known_names

    async def asked() -> list[str]:
        return await app._client.run(known_names())

    try:
        known = app._client.engine.block(asked())
    except StoreError:
        return  # the run exists; the warning is left out
    if type not in known and (meant := similar_name(type, known)) is not None:
        click.echo(f"warning: nobody has ever served {type}; did you mean {meant!r}?", err=True)


def _tell_id(run_id: UUID, is_new: bool | None, as_json: bool) -> None:
    if as_json:
        say_json({"id": run_id, "is_new": is_new})
        return
    click.echo(str(run_id))
    if is_new is False:
        click.echo("that run was there already; nothing new was created", err=True)


def _tell_end(run: Run, as_json: bool) -> None:
    if as_json:
        say_json({"id": run.id, "status": run.status, "result": run.result, "error": run.error})
    elif run.status is Status.SUCCEEDED:
        say_json(run.result)
    if run.status is Status.SUCCEEDED:
        return
    if as_json:
        sys.exit(NOT_DONE)
    fail(f"run {run.id} ({run.type}) {run.status}: {run.last_error or 'no reason was given'}")
