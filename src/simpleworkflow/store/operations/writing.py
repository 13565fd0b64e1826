"""Writing journal entries: one plan for each kind of batch.

| entries of the batch | plan | statements, in this order |
|---|---|---|
| steps that succeeded at once | `_record_results` | `record_results` |
| rows of steps and nothing else | `_record_fenced` | `record_fenced` |
| successes of runs without parents | `_finish` | `finish_runs`, `log_finished` |
| ends and hand-backs without parents | `_settle` | `settle_runs`, `log_settled` |
| anything else | `_write_locked` | the locks, then children, outbox, records, signals, endings, pauses, events |

The first four prove the lease in the statement that writes, so that PostgreSQL needs one round trip and one commit.
SQLite has one transaction for whatever comes, so records go by the last plan there.
`_write_locked` is one transaction: it locks the runs (and, for endings, their parents) in id order and learns which
leases still hold; nothing of an entry whose lease is lost is written. Each entry has its own outcome.

The danger is an answer that was lost: the batch is then written again with `repeated`, and what the first try has
committed must be recognised as ours, by epoch, worker and target.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import cast
from uuid import UUID

from ...clock import to_us
from ...model import moves
from ...model import payload as json
from ...model.errors import SimpleWorkflowError
from ...model.moves import Ending, Outcome, Pause, Record, Result
from ...model.states import EventType, Status
from ..protocol import Operation, Row, Steps, query, statements, transaction
from .leases import lease_states
from .runs import create_rows
from .steps import histories
from .written_rows import (
    in_columns,
    last_of_each,
    outbox_rows,
    pause_log_row,
    pause_row,
    record_row,
    settle_log_row,
    settle_row,
)

Entry = Record | Pause | Ending
Key = tuple[UUID, int]
"""A run and the epoch of the lease under which it was executed."""


class Kind(StrEnum):
    """What an entry needs to be written."""

    RESULT = "the row of a step that succeeded at once"
    RECORD = "a row of its own and nothing else"
    SUCCESS = "the end of a run without parents"
    ENDING = "an end or a hand-back that clears no steps"
    MORE = "several statements under one lock"


_RESULT, _SUCCESS = Kind.RESULT, Kind.SUCCESS


def kind_of(entry: Entry) -> Kind:
    if type(entry) is Result:
        return _RESULT
    if isinstance(entry, Record):
        if not entry.is_plain:
            return Kind.MORE
        return _RESULT if entry.is_first_success else Kind.RECORD
    if isinstance(entry, Ending) and not entry.clears and not entry.has_parent:
        return _SUCCESS if entry.is_plain_success else Kind.ENDING
    return Kind.MORE


def write(
    entries: Sequence[Entry],
    worker: str,
    *,
    fused: bool = False,
    alike: bool = False,
    telling: bool = False,
    skip_locked: bool = False,
) -> Operation[list[Outcome]]:
    """Write a batch by the plan of its kind.

    fused: the database can prove a lease in the statement that inserts a record. alike: all entries are of one kind.
    telling: a plain success is announced with its commit. skip_locked: rows that somebody else has locked are not
    waited for; their entries are BUSY.
    """
    if skip_locked:
        return _write_locked(entries, worker, skip_locked=True)
    kinds = {kind_of(entries[0])} if alike else set(map(kind_of, entries))
    if kinds <= {Kind.SUCCESS, Kind.ENDING}:
        endings = cast(Sequence[Ending], entries)
        if kinds == {Kind.SUCCESS}:
            return _finish_counted(endings, worker, telling) if fused else _finish(endings, worker)
        return _settle(endings, worker)
    if fused and kinds == {Kind.RESULT}:
        operation = _record_results(cast(Sequence[Record], entries), worker)
        operation.hopeful = True
        return operation
    if fused and kinds <= {Kind.RESULT, Kind.RECORD}:
        return _record_fenced(cast(Sequence[Record], entries), worker)
    return _write_locked(entries, worker)


# Records that need nothing else.


@statements
def _record_fenced(records: Sequence[Record], worker: str) -> Steps[list[Outcome]]:
    _aim(records)
    ordered = sorted(last_of_each(records), key=attrgetter("run_id"))
    rows = yield query("record_fenced", s=list(map(record_row, ordered)), worker=worker)
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
    ordered = sorted(last_of_each(records), key=attrgetter("run_id"))
    rows = yield query("record_fenced", s=list(map(record_row, ordered)), worker=worker)
    return _held_outcomes(records, rows)


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


# Endings that concern no other run.


@statements
def _finish(endings: Sequence[Ending], worker: str, repeated: bool = False) -> Steps[list[Outcome]]:
    """The usual end, with nothing in the batch that it does not need."""
    ordered = sorted((e.run_id, e.epoch, to_us(e.elapsed), e.result) for e in endings)
    done = {(row["run_id"], row["epoch"]) for row in (yield query("finish_runs", b=ordered, worker=worker))}
    if done:
        yield query("log_finished", b=[entry[:3] for entry in ordered if entry[:2] in done])
    return (yield from _ended(endings, worker, done, repeated))


@statements
def _finish_counted(
    endings: Sequence[Ending], worker: str, telling: bool, repeated: bool = False
) -> Steps[list[Outcome]]:
    """The same where one statement does it all: it says how many it has ended, and which is asked when some are not."""
    ordered = sorted((e.run_id, e.epoch, to_us(e.elapsed), e.result) for e in endings)
    (answer,) = yield query("finish_counted", b=ordered, worker=worker, telling=telling)
    if answer["done"] == len(endings):
        return [Outcome.DONE] * len(endings)
    return (yield from _ended(endings, worker, set(), repeated=True))


@statements
def _settle(endings: Sequence[Ending], worker: str, repeated: bool = False) -> Steps[list[Outcome]]:
    done = yield from _settling(sorted(endings, key=attrgetter("run_id")), worker)
    return (yield from _ended(endings, worker, done, repeated))


def _settling(ordered: Sequence[Ending], worker: str) -> Steps[set[Key]]:
    rows = yield query("settle_runs", b=[settle_row(ending) for ending in ordered], worker=worker)
    done = {(row["run_id"], row["epoch"]) for row in rows}
    if done:
        log = [settle_log_row(ending) for ending in ordered if (ending.run_id, ending.epoch) in done]
        yield query("log_settled", b=log)
    return done


def _ended(endings: Sequence[Ending], worker: str, done: set[Key], repeated: bool) -> Steps[list[Outcome]]:
    outcomes = [Outcome.DONE if (e.run_id, e.epoch) in done else Outcome.LOST for e in endings]
    return (yield from _after_ambiguity(endings, worker, outcomes)) if repeated else outcomes


# Everything else, under locks.


@transaction
def _write_locked(
    entries: Sequence[Entry], worker: str, *, skip_locked: bool = False, repeated: bool = False
) -> Steps[list[Outcome]]:
    _aim(entries)
    held = yield from _lock(entries, worker, skip_locked)
    mine = [entry for entry in entries if (entry.run_id, entry.epoch) in held]
    records = [entry for entry in mine if isinstance(entry, Record)]
    yield from _write_records(records, repeated)
    endings = [entry for entry in mine if isinstance(entry, Ending)]
    settled = yield from _write_endings(endings, worker)
    pauses = [entry for entry in mine if isinstance(entry, Pause)]
    paused = yield from _write_pauses(pauses, worker)
    refused = sorted({(entry.run_id, entry.epoch) for entry in pauses if entry.run_id not in paused})
    if refused and endings:
        # The end of another entry's run may have taken this one along: that is lost, not woken.
        held = {(row["run_id"], row["epoch"]) for row in (yield query("lock_leases", b=refused, worker=worker))}
    done = {id(entry) for entry in records}
    done |= {id(entry) for entry in endings if (entry.run_id, entry.epoch) in settled}
    done |= {id(entry) for entry in pauses if entry.run_id in paused}
    woken = {id(entry) for entry in pauses if (entry.run_id, entry.epoch) in held} - done
    outcomes = [
        Outcome.DONE if id(entry) in done else Outcome.WOKEN if id(entry) in woken else Outcome.LOST
        for entry in entries
    ]
    if repeated or skip_locked:
        outcomes = yield from _after_ambiguity(entries, worker, outcomes)
    return (yield from _told_apart(entries, worker, outcomes)) if skip_locked else outcomes


def _lock(entries: Sequence[Entry], worker: str, skip_locked: bool) -> Steps[set[Key]]:
    """The leases among these that still hold, with their rows locked."""
    if not skip_locked and any(isinstance(entry, Ending) and entry.has_parent for entry in entries):
        # All of them at once: two statements, each in id order, would still meet another batch in a deadlock.
        yield query("lock_runs", b=sorted({(entry.run_id,) for entry in entries}))
    keys = sorted({(entry.run_id, entry.epoch) for entry in entries})
    rows = yield query("lock_free_leases" if skip_locked else "lock_leases", b=keys, worker=worker)
    return {(row["run_id"], row["epoch"]) for row in rows}


def _told_apart(entries: Sequence[Entry], worker: str, outcomes: list[Outcome]) -> Steps[list[Outcome]]:
    """A lease that still holds though its row could not be locked: somebody else has locked it."""
    pairs = zip(entries, outcomes, strict=True)
    lost = sorted({(entry.run_id, entry.epoch) for entry, outcome in pairs if outcome is Outcome.LOST})
    states = (yield from lease_states(lost, worker)) if lost else []
    busy = {(state.id, state.epoch) for state in states if state.owned}
    return [
        Outcome.BUSY if outcome is Outcome.LOST and (entry.run_id, entry.epoch) in busy else outcome
        for entry, outcome in zip(entries, outcomes, strict=True)
    ]


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
        yield query("insert_outbox", e=outbox_rows(emitted))
    yield from _write_rows(last_of_each(records))
    if told:
        yield query("log_events", e=[(r.run_id, EventType.STEP_RETRIED, r.epoch, r.told) for r in told])
    yield from _write_effects(records)


def _write_effects(records: Sequence[Record]) -> Steps[None]:
    """What records change beside their own rows: signals are taken, losers of a race end, suspects have progressed."""
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
    """The first try of this batch may have committed; what it recorded, it has also told."""
    found = yield from histories([record.run_id for record in told])
    known = {(run_id, step.step_id): step.attempt for run_id, h in found.items() for step in h.steps.values()}
    return [record for record in told if known.get((record.run_id, record.step_id), 0) < record.attempt]


def _write_rows(records: Sequence[Record]) -> Steps[None]:
    yield query("next_in_sequence")
    yield query("record_steps", b=list(map(record_row, records)))


def _write_endings(endings: Sequence[Ending], worker: str) -> Steps[set[Key]]:
    """First the steps whose failure led here are marked, since the next execution does them again."""
    failed = [(ending.run_id, step_id) for ending in endings for step_id in ending.clears]
    if failed:
        yield query("clear_steps", b=failed)
    return (yield from settle_locked(endings, worker))


def settle_locked(endings: Sequence[Ending], worker: str) -> Steps[set[Key]]:
    """With the locks held. Ends come last: one may also end a run that another entry sends back to pending."""
    ordered = sorted(endings, key=attrgetter("run_id"))
    done: set[Key] = set()
    for is_terminal in (False, True):
        group = [ending for ending in ordered if ending.status.is_terminal is is_terminal]
        if group:
            done |= yield from _settling(group, worker)
    return done


def _write_pauses(pauses: Sequence[Pause], worker: str) -> Steps[set[UUID]]:
    if not pauses:
        return set()
    rows = yield query("pause_runs", b=list(map(pause_row, pauses)), worker=worker)
    paused = {row["run_id"] for row in rows}
    waits = [wait for pause in pauses if pause.run_id in paused for wait in pause.waits]
    if waits:
        yield from _write_rows(waits)
    if paused:
        yield query("log_paused", b=[pause_log_row(pause) for pause in pauses if pause.run_id in paused])
    return paused


def _after_ambiguity(entries: Sequence[Entry], worker: str, outcomes: list[Outcome]) -> Steps[list[Outcome]]:
    """The first try may have committed: an ending or a pause that stands as we meant it was ours, and so were the
    records of its execution that came with it. Believed is only our own epoch and our own target."""
    unsure = [
        (entry.run_id, entry.epoch, Status.PAUSED if isinstance(entry, Pause) else entry.status)
        for entry, outcome in zip(entries, outcomes, strict=True)
        if outcome is not Outcome.DONE and not isinstance(entry, Record)
    ]
    if not unsure:
        return outcomes
    rows = yield query("settled_already", b=unsure, worker=worker)
    ours = {(row["run_id"], row["epoch"]) for row in rows}
    return [
        Outcome.DONE if (entry.run_id, entry.epoch) in ours else outcome
        for entry, outcome in zip(entries, outcomes, strict=True)
    ]


@transaction
def release_strangers(worker: str, known: Container[UUID]) -> Steps[int]:
    """Hand back what is leased to a worker that does not know of it, and tell how many. A transaction also where there
    is nothing to write: on SQLite it then waits behind the claim that was cut off."""
    rows = yield query("leased_runs", worker=worker)
    endings = [moves.release_stranger(row["run_id"], row["epoch"]) for row in rows if row["run_id"] not in known]
    if endings:
        yield query("lock_runs", b=sorted((ending.run_id,) for ending in endings))
        yield from settle_locked(endings, worker)
    return len(endings)
