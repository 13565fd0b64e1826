"""Checks the promises of the engine after the demo: compares the effects log with what the tables record.

A body that a kill cut off runs again, and so does one that had ended but was not on record yet: effects happen at least
once, and the closing table counts both. A body that starts after its step was recorded as done breaks a promise.

Both sources are dated by the clock of one host, and a record is dated before its commit. So the comparison is stricter
than the promise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from uuid import UUID

from ..clock import to_micros
from ..model.records import Event, HistoryEvent, Signal
from ..model.states import EventType
from .effects_log import Effect, Place

ORDER_STEPS = ("charge#0", "reserve#0", "notify#0")
LABEL_STEPS = ("make_label#0",)


@dataclass(frozen=True)
class RunRecord:
    """What the tables record about one run."""

    events: Sequence[Event]
    history: Sequence[HistoryEvent]
    signals: Sequence[Signal] = ()

    @property
    def finished_once(self) -> bool:
        words = [event.type for event in self.events]
        return words.count(EventType.SUCCEEDED) == 1 and words[-1] is EventType.SUCCEEDED

    @property
    def parcels(self) -> int:
        (first,) = [line for line in self.history if line.type == "WorkflowStarted"]
        return len(first.details["input"]["parcels"])

    @property
    def done(self) -> dict[str, int]:
        """Id of every step on record as done -> when it was recorded."""
        lines = [line for line in self.history if line.type == "ActivityCompleted" and "child_id" not in line.details]
        return {line.details["step_id"]: to_micros(line.at) for line in lines}


@dataclass(frozen=True)
class Evidence:
    effects: Sequence[Effect]
    orders: Mapping[UUID, RunRecord]
    """Every order that was accepted."""
    labels: Mapping[UUID, RunRecord]
    """Every child run that exists."""

    def table(self) -> list[tuple[str, str]]:
        runs = [*self.orders.values(), *self.labels.values()]
        leased = sum(event.type is EventType.LEASED for run in runs for event in run.events)
        sent = [signal for order in self.orders.values() for signal in order.signals]
        rows: list[tuple[str, object]] = [
            ("orders accepted", len(self.orders)),
            ("orders finished once", sum(order.finished_once for order in self.orders.values())),
            ("labels made by child runs", sum(label.finished_once for label in self.labels.values())),
            ("signals sent", len(self._lines("signal"))),
            ("signals taken", sum(signal.consumed_at is not None for signal in sent)),
            ("workers killed with SIGKILL", len(self._lines("kill"))),
            ("executions of runs, replays included", leased),
            ("step bodies begun", len(self._lines("start"))),
            ("failed and tried again", len(self._lines("error"))),
            ("cut off by a kill and run again", len(self.cut_off)),
            *([("of these through, but not yet on record", len(self.unrecorded))] if self.unrecorded else []),
            ("steps on record as done", len(self._done)),
            ("finished steps that ran again", len(self.ran_again)),
        ]
        for number, kill in enumerate(self._lines("kill"), 1):
            waits = [(after.at - kill.at) / 1e6 for before, after in self.cut_off if before.pid == kill.pid]
            span = f"{min(waits):.1f} to {max(waits):.1f}" if waits else "nothing was cut off"
            rows.append((f"seconds from kill {number} until its steps went on", span))
        return [(label, str(value)) for label, value in rows]

    @cached_property
    def cut_off(self) -> list[tuple[Effect, Effect]]:
        """Bodies that a killed process had started and that started again elsewhere: (before, after)."""
        return [pair for pair in self._repeats if pair[0].pid in self._killed and not self._failed(*pair)]

    @cached_property
    def unrecorded(self) -> list[Effect]:
        """Bodies that had ended when their process was killed, but were not on record yet."""
        ends = {(line.place, line.pid) for line in self._lines("end")}
        return [before for before, _ in self.cut_off if (before.place, before.pid) in ends]

    @cached_property
    def ran_again(self) -> list[Effect]:
        """Bodies that started after their step was on record as done."""
        return [line for line in self._lines("start") if line.at > self._done.get(line.place, line.at)]

    @property
    def is_sound(self) -> bool:
        return not self.violations()

    def violations(self) -> list[str]:
        """Every fact that contradicts a promise, as a sentence."""
        return [
            *self._broken_steps(),
            *self._broken_runs(self.orders, ORDER_STEPS, "order"),
            *self._broken_runs(self.labels, LABEL_STEPS, "label"),
            *self._broken_signals(),
            *self._broken_counts(),
        ]

    def _broken_steps(self) -> Iterator[str]:
        for line in self.ran_again:
            yield f"{_name(line)} was on record as done and began again in process {line.pid}"
        for before, after in self._repeats:
            if before.pid not in self._killed and not self._failed(before, after):
                yield f"{_name(after)} began twice, and neither an error nor a kill tells why"
        ended = {line.place for line in self._lines("end")}
        for place in sorted(self._done.keys() - ended):
            yield f"step {place[1]} of run {place[0]} is on record as done, and the log knows no end of it"
        for place in sorted({line.place for line in self._lines("start")} - self._done.keys()):
            yield f"step {place[1]} of run {place[0]} has begun and is not on record as done"

    def _broken_runs(self, runs: Mapping[UUID, RunRecord], steps: Sequence[str], what: str) -> Iterator[str]:
        for run_id, record in runs.items():
            if not record.finished_once:
                yield f"{what} {run_id} was lost or finished twice: {[str(event.type) for event in record.events]}"
            elif set(record.done) != set(steps):
                yield f"{what} {run_id} finished with other steps on record than it has: {sorted(record.done)}"

    def _broken_signals(self) -> Iterator[str]:
        sent = Counter(line.run_id for line in self._lines("signal"))
        for run_id, record in self.orders.items():
            taken = sum(signal.consumed_at is not None for signal in record.signals)
            if not sent[str(run_id)] == len(record.signals) == taken == 1:
                yield f"order {run_id}: signals sent {sent[str(run_id)]}, kept {len(record.signals)}, taken {taken}"

    def _broken_counts(self) -> Iterator[str]:
        parcels = sum(order.parcels for order in self.orders.values())
        if len(self.labels) != parcels:
            yield f"{parcels} parcels need a label each, but {len(self.labels)} child runs were started"
        if len(self._killed) != 2:
            yield f"two workers were to be killed, and the log knows of {len(self._killed)}"

    @cached_property
    def _done(self) -> dict[Place, int]:
        runs = [*self.orders.items(), *self.labels.items()]
        return {(str(run_id), step_id): at for run_id, record in runs for step_id, at in record.done.items()}

    @cached_property
    def _killed(self) -> set[int]:
        return {line.pid for line in self._lines("kill")}

    @cached_property
    def _repeats(self) -> list[tuple[Effect, Effect]]:
        """Every start of a body that follows another start of it: (before, after)."""
        starts: defaultdict[Place, list[Effect]] = defaultdict(list)
        for line in sorted(self._lines("start"), key=lambda line: line.at):
            starts[line.place].append(line)
        return [pair for lines in starts.values() for pair in pairwise(lines)]

    def _failed(self, before: Effect, after: Effect) -> bool:
        """Whether the first of two bodies ended with an error."""
        errors = [line for line in self._lines("error") if (line.place, line.pid) == (before.place, before.pid)]
        return any(before.at <= line.at <= after.at for line in errors)

    def _lines(self, what: str) -> list[Effect]:
        return [line for line in self.effects if line.what == what]


def _name(line: Effect) -> str:
    return f"step {line.step_id} of order {line.order} (run {line.run_id})"
