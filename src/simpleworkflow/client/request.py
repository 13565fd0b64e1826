"""From what a caller wrote to what the ledger stores: every option checked, every refusal a sentence.

Nothing here touches a database, so nothing that is refused here has been created. None means "not given" for every
option, so that callers can pass their own optional arguments on.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict
from uuid import UUID

from ..clock import new_id
from ..model import payload
from ..model.duration import Duration, seconds
from ..model.errors import InvalidFilter, InvalidInput, PayloadError, RunNotFound
from ..model.names import check_key
from ..model.records import DEFAULT_PRIORITY, NewRun
from ..model.retry import MAX_ATTEMPTS
from ..model.states import Status
from ..runtime.registry import Registry, Workflow
from ..runtime.step import refuse_function

RunId = UUID | str

MAX_PRIORITY = 999
MAX_REASON = 10_000


class TriggerOptions(TypedDict, total=False):
    """How a run is to be created; every one of them optional."""

    id: UUID | str | None
    """Chosen by you: asking again after a lost answer creates nothing twice."""
    idempotency_key: str | None
    """One run per key: a second trigger with the same key and payload gets the first run's handle. It is the business
    key by which every other call finds the run: app.handle(key=…)."""
    priority: int | None
    """0 to 999; lower runs first; 100 unless told."""
    run_at: datetime | None
    """Not before this instant (with a time zone)."""
    delay: Duration | None
    """Not before so long from now."""
    max_attempts: int | None
    """Executions before it ends failed; the workflow's own policy unless told."""
    start_within: Duration | None
    """Ends timed_out when no worker has started it so long after it was due."""
    require: Literal["definition", "worker"] | None
    """Fail at once when nobody has ever served this type, or nobody does now."""
    connection: Any
    """Your own open connection: the run exists if and only if your transaction commits."""


def target_of(workflow: Workflow[Any, Any] | str, registry: Registry) -> Workflow[Any, Any]:
    """By name it has the types that it has here, if it is known here."""
    if isinstance(workflow, Workflow):
        return workflow
    if isinstance(workflow, str):
        return registry.by_name(workflow)
    refuse_function(workflow, is_inside=False)
    raise InvalidInput(
        f"trigger takes a workflow (decorated with @app.workflow, or app.declare) or its name, not {workflow!r}"
    )


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse what no run can have, whatever its input."""
    if not options:
        return
    unknown = options.keys() - TriggerOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"trigger has no option {', '.join(sorted(unknown))}")
    if options.get("require") not in {None, "definition", "worker"}:
        raise InvalidInput(f"require={options['require']!r} is neither 'definition' nor 'worker'")
    if options.get("run_at") is not None and options.get("delay") is not None:
        raise InvalidInput("give run_at= or delay=, not both")
    if options.get("connection") is not None and options.get("require") is not None:
        raise InvalidInput("require= looks at the database outside your transaction; it cannot go with connection=")


def new_run(target: Workflow[Any, Any], input: Any, options: TriggerOptions, *, limit: int) -> NewRun:
    """One run to create; `options` have been through check_options."""
    if not options:
        return NewRun(new_id(), target.name, target.encode_input(input, limit=limit), has_new_id=True)
    run_id, run_at, key = options.get("id"), options.get("run_at"), options.get("idempotency_key")
    priority, attempts = options.get("priority"), options.get("max_attempts")
    return NewRun(
        id=new_id() if run_id is None else _chosen_id(run_id),
        type=target.name,
        payload=target.encode_input(input, limit=limit),
        priority=DEFAULT_PRIORITY if priority is None else _whole("priority", priority, 0, MAX_PRIORITY),
        run_at=None if run_at is None else aware("run_at", run_at, InvalidInput),
        delay=_duration("delay", options.get("delay")) or 0.0,
        idempotency_key=None if key is None else check_key(key),
        max_attempts=None if attempts is None else _whole("max_attempts", attempts, 1, MAX_ATTEMPTS),
        start_within=_duration("start_within", options.get("start_within")),
        has_new_id=run_id is None,
    )


def _chosen_id(value: RunId) -> UUID:
    try:
        return run_uuid(value)
    except RunNotFound:
        raise InvalidInput(f"id={value!r} is not a UUID; leave it out to have one made") from None


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return value


def _duration(name: str, value: Duration | None) -> float | None:
    return None if value is None else seconds(value, what=name)


def run_uuid(value: RunId) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(str(value))
    except ValueError:
        raise RunNotFound(f"{value!r} is not a run id; ids are UUIDs, and a business key goes into key=") from None


def aware(name: str, instant: Any, refusal: type[InvalidInput] | type[InvalidFilter]) -> datetime:
    """An instant that means the same everywhere."""
    if not isinstance(instant, datetime):
        raise refusal(f"{name} must be a datetime with a time zone, not {instant!r}")
    if instant.tzinfo is None:
        raise refusal(f"{name}={instant!r} has no time zone; write datetime(..., tzinfo=UTC)")
    try:
        return instant.astimezone(UTC)
    except (OverflowError, ValueError):
        raise refusal(f"{name}={instant} lies outside of the years 1 to 9999 in UTC") from None


def statuses(status: Any) -> list[Status]:
    """One status or several; Status is text, so a single one is not taken for a list of letters."""
    wanted = [] if status is None else [status] if isinstance(status, str) else list(status)
    try:
        return [Status(one) for one in wanted]
    except ValueError as error:
        raise InvalidFilter(f"{error}; a status is one of {', '.join(Status)}") from None


def reason_text(reason: Any) -> str | None:
    """An operator's words, as the audit trail can keep them."""
    if reason is None:
        return None
    if not isinstance(reason, str):
        raise InvalidInput(f"reason must be text, not {type(reason).__name__}")
    try:
        payload.encode(reason, limit=MAX_REASON, what="reason")
    except PayloadError as error:
        raise InvalidInput(str(error)) from None
    return reason
