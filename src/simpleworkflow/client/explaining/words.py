"""How explanations speak of instants, people's texts, waits and workers.

Errors, reasons and names come from users and may hold anything: line breaks, escape sequences, pages of text. An
explanation is one sentence that goes to terminals and logs, so whatever is not printable is written out, and what is
very long is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from ...model import payload
from ...model.errors import SimpleWorkflowError
from ...model.explanation import Facts
from ...model.names import EVERYTHING, Span, span_of_type
from ...model.outbox import Delivery, OutboxEvent
from ...model.records import BEAT, Step, WorkerInfo
from ...model.states import StepKind
from ...store.operations.explain import MOST_COUNTED

LONGEST_TEXT = 2000
MOST_NAMED = 5
QUIET = timedelta(seconds=2 * BEAT)


def when(instant: datetime | None) -> str:
    return "an unknown time" if instant is None else instant.strftime("%Y-%m-%d %H:%M:%S UTC")


def line(text: str) -> str:
    """A text of somebody else's, fit for one line of a terminal."""
    shown = text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"
    if shown.isprintable():
        return shown
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in shown)


def times(count: int, one: str, many: str) -> str:
    shown = f"at least {MOST_COUNTED}" if count >= MOST_COUNTED else str(count)
    return f"{shown} {one if count == 1 else many}"


def some(names: Iterable[str], most: int = MOST_NAMED) -> str:
    """A list that does not grow without end."""
    known = list(names)
    rest = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + rest


def tried(run: Facts) -> str:
    """What the run has been through since it was created or revived; nothing to say when that was nothing."""
    told = [times(run.attempt, "failed attempt", "failed attempts")] if run.attempt else []
    told += [times(run.crashes, "crash", "crashes")] if run.crashes else []
    return " and ".join(told)


def attempt(run: Facts) -> str:
    """Which execution this is, or would be, counted from one."""
    number = run.attempt + run.crashes + 1
    # A run that was resumed after its last attempt has more than it was given.
    of = f" of {run.max_attempts}" if run.max_attempts is not None and number <= run.max_attempts else ""
    return f"attempt {number}{of}"


def name_of(step_id: str) -> str:
    """What people called it: the place without its branch, its count and its key."""
    return line(step_id.partition("#")[0].rpartition("/")[2])


def piece(step: Step) -> str:
    """A recorded piece of a run, in a word or two."""
    name = name_of(step.step_id)
    if name.startswith("@"):  # a piece that people did not name
        return name.removeprefix("@")
    return f"signal {name!r}" if step.kind is StepKind.SIGNAL else f"{step.kind} {name}"


def step_error(wait: Step) -> str:
    """The message of a failed attempt; what is on record may be anybody's JSON."""
    try:
        told = payload.decode(wait.error_json or "null")
    except SimpleWorkflowError:
        return ""
    return line(str(told.get("message", ""))) if isinstance(told, dict) else ""


def is_quiet(seen_at: datetime, now: datetime) -> bool:
    """It should have said something since: perhaps it is dead."""
    return now - seen_at > QUIET


def heard_of(worker: WorkerInfo, now: datetime) -> str:
    """Its name, and how long ago it was seen when that is too long."""
    ago = f" (last seen {round((now - worker.seen_at).total_seconds())} s ago)" if is_quiet(worker.seen_at, now) else ""
    return f"{line(worker.name)}{ago}"


def workers_alive(workers: Sequence[WorkerInfo]) -> str:
    """Who is alive and what they serve."""
    return some(f"{line(worker.name)} serves {prefixes(worker.spans)}" for worker in workers) or "none at all"


def prefixes(spans: Sequence[Span]) -> str:
    return some(_prefix(span) for span in spans) or "nothing"


def _prefix(span: Span) -> str:
    if span == EVERYTHING:
        return "*"
    if span == span_of_type(span.low):
        return span.low
    if span.low and span.high == span.low[:-1] + chr(ord(span.low[-1]) + 1):
        return f"{span.low}*"
    return f"{line(span.low)} to {line(span.high)}"


def outbox_line(event: OutboxEvent) -> str:
    """The first event of a run that has not gone out, and what it waits for."""
    what = f"event {event.sequence} ({line(event.type)})"
    why = f": {line(event.last_error)}" if event.last_error else ""
    if event.status is Delivery.DEAD:
        return f"{what} was given up after {times(event.attempt, 'attempt', 'attempts')} and holds back later ones{why}"
    if event.status is Delivery.RETRYING:
        return f"{what} was refused {times(event.attempt, 'time', 'times')}, next try at {when(event.due_at)}{why}"
    return f"{what} waits to be delivered since {when(event.created_at)}"
