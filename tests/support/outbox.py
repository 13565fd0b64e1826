"""Short words for tests of the outbox: events that wait, rules, lanes taken, what became of deliveries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from simpleworkflow.model.outbox import LANES, Delivery, Marks, Offered, Refused, lane_of, lifecycle_rules
from simpleworkflow.model.states import StepKind
from simpleworkflow.sinks.protocol import CloudEvent, Refusal
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import outbox, outbox_lanes

from .ledger import Raw, record

LEASE = 30.0


async def rule(ledger: Ledger, prefix: str, *events: str) -> None:
    await ledger.run(outbox_lanes.add_rules(lifecycle_rules(prefix, events)))


def emitting(lease: Any, number: int, type: str = "told") -> Any:
    return record(lease, f"@emit {type}#{number}", kind=StepKind.EMIT, emits=(type, str(number)))


def rows(raw: Raw, run_id: UUID) -> list[dict[str, Any]]:
    return raw.sql("SELECT * FROM workflow.outbox_event WHERE aggregate_id = ? ORDER BY sequence", run_id)


def told(raw: Raw, run_id: UUID) -> list[tuple[int, str]]:
    return [(row["sequence"], row["event_type"].removeprefix("simpleworkflow.run.")) for row in rows(raw, run_id)]


def data(row: dict[str, Any]) -> dict[str, Any]:
    payload = row["payload"]
    found: dict[str, Any] = json.loads(payload) if isinstance(payload, str) else payload
    return found


def put(raw: Raw, run_id: UUID, count: int, start: int = 1) -> None:
    """Events of a run that nobody executes."""
    text = "INSERT INTO workflow.outbox_event (aggregate_id, sequence, event_type, payload) VALUES (?, ?, 'told', '1')"
    for sequence in range(start, start + count):
        raw.sql(text, run_id, sequence)


def statuses(raw: Raw, run_id: UUID) -> list[str]:
    return [row["status"] for row in rows(raw, run_id)]


async def take(ledger: Ledger, me: str, *, dead: Sequence[str] = (), spare: Sequence[str] = LANES) -> dict[str, int]:
    tended = await ledger.run(outbox_lanes.tend(me, lease=LEASE, dead=dead, spare=spare))
    return tended.mine


async def offered(ledger: Ledger, lanes: Sequence[str] = LANES, per_lane: int = 100) -> list[Offered]:
    return (await ledger.run(outbox.next_batch(lanes, per_lane=per_lane))).offered


async def mark(
    ledger: Ledger,
    epochs: dict[str, int],
    *,
    me: str = "me",
    published: Sequence[Offered] = (),
    refused: Sequence[Offered] = (),
    dead: Sequence[Offered] = (),
    behind: Sequence[tuple[int, str]] = (),
) -> set[str]:
    """What became of these events; which lanes had been lost."""
    marks: dict[str, Marks] = {}

    def of(lane: str) -> Marks:
        return marks.setdefault(lane, Marks([], [], []))

    for event in published:
        of(event.lane).published.append((event.id, event.run_id))
    for event in refused:
        of(event.lane).refused.append(Refused(event.id, Delivery.RETRYING, event.attempt + 1, 60.0, "busy"))
    for event in dead:
        of(event.lane).refused.append(Refused(event.id, Delivery.DEAD, event.attempt + 1, None, "no"))
    for row, lane in behind:
        of(lane).behind.append(row)
    return await ledger.run(outbox.mark(me, {lane: epochs[lane] for lane in marks}, marks))


async def kill_event(ledger: Ledger, epochs: dict[str, int], run_id: UUID) -> None:
    """The first event of this run is dead, and what follows stands behind it."""
    head = next(event for event in await offered(ledger) if event.run_id == run_id)
    await mark(ledger, epochs, dead=[head])
    batch = await ledger.run(outbox.next_batch([lane_of(run_id)], per_lane=100))
    await mark(ledger, epochs, behind=batch.behind)


class Heap:
    """A sink that keeps what it gets, and refuses what it is told to."""

    def __init__(self) -> None:
        self.got: list[CloudEvent] = []
        self.refusing: dict[UUID, Refusal] = {}
        self.calls = 0
        self.is_closed = False

    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        self.calls += 1
        answers: list[Refusal | None] = []
        stuck: set[UUID] = set()
        for event in events:
            refusal = self.refusing.get(event.run_id)
            if refusal is None and event.run_id not in stuck:
                self.got.append(event)
                answers.append(None)
            else:
                stuck.add(event.run_id)
                answers.append(refusal)
        return answers

    async def close(self) -> None:
        self.is_closed = True

    def of(self, run_id: UUID) -> list[int]:
        return [event.sequence for event in self.got if event.run_id == run_id]
