"""The memo of runs: load what is recorded, flush what is new, deliver signals.

`flush` is one transaction of a few statements in a fixed order: lock the runs (and, for endings, their parents) in id
order and learn which leases still hold; children; the outbox; records; signals; endings; pauses; events. Each entry
gets its own outcome. Nothing of an entry whose lease is lost is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Any, cast
from uuid import UUID

from ...clock import to_us
from ...model import payload as json
from ...model.errors import AlreadyFinished, IdempotencyConflict, RunNotFound, SimpleWorkflowError
from ...model.moves import Ending, Outcome, Pause, Record, Result
from ...model.records import Happening, History, Renewal, Signal, Step
from ...model.states import EventType, Status, StepKind, StepStatus
from ...model.step_places import unmarked
from ..protocol import Operation, Row, Steps, query, reading, statements, transaction
from . import leases
from .runs import create_rows

Entry = Record | Pause | Ending

MOST_AWAITED = 20
"""Waits that the trail names for one pause; a fan-out of thousands is counted."""


@reading
def load(run_ids: Sequence[UUID]) -> Steps[dict[UUID, History]]:
    """The histories of these runs. Read later than the claim, so that no wake is missed."""
    return (yield from _histories(run_ids))


def _histories(run_ids: Sequence[UUID]) -> Steps[dict[UUID, History]]:
    batch = sorted({(run_id,) for run_id in run_ids})
    histories = {run_id: History({}, [], {}) for run_id in run_ids}
    for row in (yield query("load_steps", b=batch)):
        step, history = _step(row), histories[row["run_id"]]
        if step.status is StepStatus.SUPERSEDED:
            history.redone.setdefault(unmarked(step.step_id), len(history.steps))
        else:
            history.steps[step.step_id] = step
    for row in (yield query("load_signals", b=batch)):
        histories[row["run_id"]].signals.append(_signal(row))
    return histories


@reading
def reload(run_id: UUID, epoch: int, worker: str) -> Steps[tuple[Renewal, History]]:
    """(state of the lease, history) of one run; the wake counter first, so that no later wake is taken for seen."""
    (state,) = yield from leases.lease_states([(run_id, epoch)], worker)
    histories = yield from _histories([run_id])
    return state, histories[run_id]


@reading
def signals_of(run_id: UUID) -> Steps[list[Signal]]:
    return [_signal(row) for row in (yield query("signals_of_run", run_id=run_id))]


@reading
def happenings(run_id: UUID, *, after: int, limit: int) -> Steps[list[Happening]]:
    """One page of a run's history."""
    rows = yield query("history_of_run", run_id=run_id, after=after, limit=limit)
    return [Happening(row["idx"], row["event_type"], row["happened_at"], row["details_json"]) for row in rows]


@reading
def published(run_id: UUID, name: str) -> Steps[str | None]:
    """The newest value of that name, whichever branch of the run published it."""
    rows = yield query("published_values", run_id=run_id)
    ours = [row["output_json"] for row in rows if row["step_id"].rpartition("/")[2] == f"@publish {name}#0"]
    return ours[-1] if ours else None


class Kind(StrEnum):
    """What an entry needs to be written."""

    RESULT = "the row of a step that succeeded at once"
    RECORD = "a row of its own and nothing else"
    SUCCESS = "the end of a run without parents"
    ENDING = "an end or a hand-back that clears no steps"
    MORE = "several statements under one lock"


_RESULT, _SUCCESS = Kind.RESULT, Kind.SUCCESS
_SEPARATOR = "\x1f"


def kind_of(entry: Entry) -> Kind:
    if type(entry) is Result:
        return _RESULT
    if isinstance(entry, Record):
        if not entry.is_plain:
            return Kind.MORE
        return _RESULT if entry.is_first_success else Kind.RECORD
    if isinstance(entry, Ending) and not entry.clears:
        return _SUCCESS if entry.is_plain_success else Kind.ENDING
    return Kind.MORE


def flush(
    entries: Sequence[Entry], worker: str, *, fused: bool = False, alike: bool = False, telling: bool = False
) -> Operation[list[Outcome]]:
    """Endings alone, and plain records alone where one statement can fence them, take the short road; everything else
    is locked first. `alike`: all of one kind. `telling`: a plain success is announced with its commit."""
    kinds = {kind_of(entries[0])} if alike else set(map(kind_of, entries))
    if kinds <= {Kind.SUCCESS, Kind.ENDING}:
        return leases.settle(cast(Sequence[Ending], entries), worker, fused=fused, telling=telling)
    if fused and kinds == {Kind.RESULT}:
        operation = _record_results(cast(Sequence[Record], entries), worker)
        operation.hopeful = True
        return operation
    if fused and kinds <= {Kind.RESULT, Kind.RECORD}:
        return _record_fenced(cast(Sequence[Record], entries), worker)
    return _flush(entries, worker)


@statements
def _record_fenced(records: Sequence[Record], worker: str) -> Steps[list[Outcome]]:
    _aim(records)
    ordered = sorted(_last_of_each(records), key=attrgetter("run_id"))
    rows = yield query("record_fenced", s=list(map(_record_row, ordered)), worker=worker)
    return _held_outcomes(records, rows)


@statements
def _record_results(records: Sequence[Record], worker: str, repeated: bool = False) -> Steps[list[Outcome]]:
    """The usual record, with nothing in the batch that it does not need. Whose lease is lost is asked when one is: what
    has been written stays as it is."""
    columns = None if repeated else in_columns(sorted(records, key=attrgetter("run_id")))
    if columns is not None:
        (answer,) = yield query("record_results", worker=worker, **columns)
        if answer["held"] == len(records):
            return [Outcome.DONE] * len(records)
    ordered = sorted(_last_of_each(records), key=attrgetter("run_id"))
    rows = yield query("record_fenced", s=list(map(_record_row, ordered)), worker=worker)
    return _held_outcomes(records, rows)


def in_columns(records: Sequence[Record]) -> dict[str, str] | None:
    """What record_results takes: a text for each column. None when one of them has the separator in it, so that the
    rows would not fit each other: a coroutine may call itself whatever it likes, and its tasks are named after it."""
    texts = {
        "step_ids": _SEPARATOR.join([record.step_id for record in records]),
        "inputs": _SEPARATOR.join([record.input or "" for record in records]),
        "outputs": _SEPARATOR.join([record.output or "" for record in records]),
    }
    if any(text.count(_SEPARATOR) != len(records) - 1 for text in texts.values()):
        return None
    return texts | {
        "run_ids": f"{{{','.join([str(record.run_id) for record in records])}}}",
        "epochs": f"{{{','.join([str(record.epoch) for record in records])}}}",
        "elapsed": f"{{{','.join([str(to_us(record.elapsed)) for record in records])}}}",
    }


def _held_outcomes(records: Sequence[Record], rows: Sequence[Row]) -> list[Outcome]:
    if len(rows) == len(records):
        return [Outcome.DONE] * len(records)
    held = {(row["run_id"], row["epoch"]) for row in rows}
    return [Outcome.DONE if (record.run_id, record.epoch) in held else Outcome.LOST for record in records]


def _aim(entries: Sequence[Entry]) -> None:
    """Before the transaction begins, since its time is that of its beginning: what is due, is due when it was meant."""
    for entry in entries:
        if not isinstance(entry, Ending) and entry.left is not None:
            entry.due_in = entry.left()
        if isinstance(entry, Pause):
            _aim(entry.waits)
        elif isinstance(entry, Record) and entry.also:
            _aim(entry.also)


@transaction
def _flush(entries: Sequence[Entry], worker: str, repeated: bool = False) -> Steps[list[Outcome]]:
    _aim(entries)
    if any(isinstance(entry, Ending) and entry.has_parent for entry in entries):
        # All of them at once: two statements, each in id order, would still meet another flush in a deadlock.
        yield query("lock_runs", b=sorted({(entry.run_id,) for entry in entries}))
    keys = sorted({(entry.run_id, entry.epoch) for entry in entries})
    held = {(row["run_id"], row["epoch"]) for row in (yield query("lock_leases", b=keys, worker=worker))}
    mine = [entry for entry in entries if (entry.run_id, entry.epoch) in held]
    yield from _write_records([entry for entry in mine if isinstance(entry, Record)], repeated)
    done: set[int] = {id(entry) for entry in mine if isinstance(entry, Record)}
    endings = [entry for entry in mine if isinstance(entry, Ending)]
    if endings:
        yield from _clear(endings)
        settled = yield from leases.settle_locked(endings, worker)
        done |= {id(entry) for entry in endings if (entry.run_id, entry.epoch) in settled}
    pauses = [entry for entry in mine if isinstance(entry, Pause)]
    paused = yield from _write_pauses(pauses, worker)
    done |= {id(entry) for entry in pauses if entry.run_id in paused}
    refused = sorted({(entry.run_id, entry.epoch) for entry in pauses if id(entry) not in done})
    if refused and endings:
        # The end of another entry's run may have taken this one along: that is lost, not woken.
        held = {(row["run_id"], row["epoch"]) for row in (yield query("lock_leases", b=refused, worker=worker))}
    woken = {id(entry) for entry in pauses if (entry.run_id, entry.epoch) in held} - done
    answers = [
        Outcome.DONE if id(entry) in done else Outcome.WOKEN if id(entry) in woken else Outcome.LOST
        for entry in entries
    ]
    return (yield from _after_ambiguity(entries, worker, answers)) if repeated else answers


def _write_records(records: Sequence[Record], repeated: bool) -> Steps[None]:
    if not records:
        return
    records = [one for record in records for one in (record, *record.also)]
    told = [record for record in records if record.told is not None]
    if told and repeated:
        told = yield from _not_told_yet(told)
    children = [record.child for record in records if record.child is not None]
    if children:
        answers = yield from create_rows(children)
        for answer in answers:
            if isinstance(answer, SimpleWorkflowError):
                raise answer
    emitted = [record for record in records if record.emits is not None]
    if emitted:
        yield query("insert_outbox", e=_outbox_rows(emitted))
    yield from _record([_record_row(record) for record in _last_of_each(records)])
    if told:
        yield query("log_events", e=[(r.run_id, EventType.STEP_RETRIED, r.epoch, r.told) for r in told])
    consumed = [(record.signal_id, record.step_id) for record in records if record.signal_id is not None]
    if consumed:
        yield query("consume_signals", b=consumed)
    dropped = sorted({(child,) for record in records for child in record.cancels})
    if dropped:
        data = json.encode({"by": "parent"}, what="event data")
        moved = yield query("cancel_runs", b=dropped, reason="it lost a race of its parent")
        if moved:
            yield query("log_events", e=[(row["id"], EventType.CANCELLED, row["lease_epoch"], data) for row in moved])
    cleared = sorted({(record.run_id,) for record in records if record.clears_suspicion})
    if cleared:
        yield query("progress_runs", b=cleared)


def _not_told_yet(told: Sequence[Record]) -> Steps[list[Record]]:
    """The first try of this flush may have committed; what it recorded, it has also told."""
    histories = yield from _histories([record.run_id for record in told])
    known = {(run_id, step.step_id): step.attempt for run_id, h in histories.items() for step in h.steps.values()}
    return [record for record in told if known.get((record.run_id, record.step_id), 0) < record.attempt]


def _record(rows: list[tuple[Any, ...]]) -> Steps[None]:
    yield query("next_in_sequence")
    yield query("record_steps", b=rows)


def _outbox_rows(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    places: Counter[UUID] = Counter()
    rows = []
    for record in records:
        assert record.emits is not None
        places[record.run_id] += 1
        rows.append((record.run_id, record.step_id, places[record.run_id], *record.emits))
    return rows


def _clear(endings: Sequence[Ending]) -> Steps[None]:
    """The steps whose failure led here are done again by the next execution."""
    failed = [(ending.run_id, step_id) for ending in endings for step_id in ending.clears]
    if failed:
        yield query("clear_steps", b=failed)


def _last_of_each(records: Sequence[Record]) -> list[Record]:
    """One row per step and statement: a step that failed and succeeded within one flush is written once."""
    return list({(record.run_id, record.step_id): record for record in records}.values())


def _write_pauses(pauses: Sequence[Pause], worker: str) -> Steps[set[UUID]]:
    if not pauses:
        return set()
    batch = [(p.run_id, p.epoch, p.wakes, _micros(p.due_in)) for p in pauses]
    rows = yield query("pause_runs", b=batch, worker=worker)
    paused = {row["run_id"] for row in rows}
    waits = [wait for pause in pauses if pause.run_id in paused for wait in pause.waits]
    if waits:
        yield from _record([_record_row(wait) for wait in waits])
    if paused:
        told = [(p.run_id, p.epoch, to_us(p.elapsed), _awaited(p)) for p in pauses if p.run_id in paused]
        yield query("log_paused", b=told)
    return paused


def _awaited(pause: Pause) -> str | None:
    """What the trail says of a pause: waits that were given up are on record like those that were not."""
    if not pause.awaited:
        return None
    told: dict[str, Any] = {"waits_for": list(pause.awaited[:MOST_AWAITED])}
    if len(pause.awaited) > MOST_AWAITED:
        told["of"] = len(pause.awaited)
    return json.encode(told, what="event data")


def _after_ambiguity(entries: Sequence[Entry], worker: str, answers: list[Outcome]) -> Steps[list[Outcome]]:
    """The first try may have committed: an ending or a pause that stands as we meant it was ours, and so were the
    records of its execution that came with it."""
    lost = [
        (entry.run_id, entry.epoch, Status.PAUSED if isinstance(entry, Pause) else entry.status)
        for entry, answer in zip(entries, answers, strict=True)
        if answer is not Outcome.DONE and not isinstance(entry, Record)
    ]
    if not lost:
        return answers
    rows = yield query("settled_already", b=lost, worker=worker)
    ours = {(row["run_id"], row["epoch"]) for row in rows}
    return [
        Outcome.DONE if (entry.run_id, entry.epoch) in ours else answer
        for entry, answer in zip(entries, answers, strict=True)
    ]


@transaction
def send(signal_id: UUID, run_id: UUID, name: str, payload: str) -> Steps[None]:
    """Accept a signal, or say why not. One that was accepted before stays so, even if its run has finished since."""
    woken = yield query("wake_for_signal", run_id=run_id)
    if woken:
        yield query("next_in_sequence")
        if (yield query("insert_signal", id=signal_id, run_id=run_id, name=name, payload=payload)):
            return
    known = yield query("get_signal", id=signal_id)
    if woken or known:
        if any(_is_same(row, run_id, name, payload) for row in known):
            return
        raise IdempotencyConflict(f"signal id {signal_id} belongs to another signal; this one was not accepted")
    rows = yield query("get_runs", b=[(run_id,)])
    if not rows:
        raise RunNotFound(f"there is no run {run_id}; the signal was not accepted")
    ended = Status(rows[0]["status"]).already_because(rows[0]["last_error"])
    raise AlreadyFinished(f"run {run_id} {ended}; the signal {name!r} was not accepted")


def _is_same(row: Row, run_id: UUID, name: str, payload: str) -> bool:
    return (row["run_id"], row["name"]) == (run_id, name) and json.same_json(row["payload_json"], payload)


def _record_row(r: Record) -> tuple[Any, ...]:
    return (
        r.run_id,
        r.epoch,
        r.step_id,
        r.kind,
        r.status,
        r.attempt,
        to_us(r.elapsed),
        _micros(r.due_in),
        r.input,
        r.output,
        r.error,
    )


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else to_us(seconds)


def _step(row: Row) -> Step:
    values = dict(row)
    return Step(**{**values, "kind": StepKind(values["kind"]), "status": StepStatus(values["status"])})


def _signal(row: Row) -> Signal:
    return Signal(**dict(row))
