"""What a true explanation must say, told from the tables alone.

Written from the design's sections 3 to 5, not from the code that explains: it reads every table by plain SQL and
decides for each reason, by itself, whether it holds. Exactly one must, so that a state which nobody thought of, or
which two reasons claim, is found out here and not by an operator at night.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from machine.world import Rows, World
from simpleworkflow.model.explanation import Explanation
from simpleworkflow.model.states import Reason

SILENCE = 45.0
"""A worker that has said nothing for so long does not count."""
QUIET = 20.0
"""One that has said nothing for so long may be dead: nobody calls it alive."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_NAMED = 3
CHILD_KINDS = {"child", "result"}


def moment(value: Any) -> datetime | None:
    """An instant as either database keeps it."""
    if value is None:
        return None
    return value if isinstance(value, datetime) else EPOCH + timedelta(microseconds=value)


def spelled(value: Any) -> str:
    instant = moment(value)
    assert instant is not None
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


@dataclass
class Tables:
    """Everything, as it was when one explanation was given."""

    rows: Rows
    workers: list[dict[str, Any]]
    disabled: set[str]

    @classmethod
    def of(cls, world: World) -> Tables:
        registry = world.raw.sql("SELECT workflow_name, is_enabled FROM workflow.workflow_registry")
        return cls(
            world.rows(),
            world.raw.sql("SELECT * FROM workflow.workflow_worker ORDER BY started_at, id"),
            {row["workflow_name"] for row in registry if not row["is_enabled"]},
        )


class Oracle:
    """The truth about one run at one instant."""

    def __init__(self, tables: Tables, run_id: UUID, at: datetime) -> None:
        self.tables = tables
        self.at = at
        self.id = run_id
        self.row = tables.rows.runs[run_id]
        self.waits = sorted(
            (step for step in tables.rows.steps[run_id] if step["completed_at"] is None and self._is_awaited(step)),
            key=lambda step: (step["seq"], step["step_id"]),
        )

    def _is_awaited(self, step: dict[str, Any]) -> bool:
        """A row that waits is no proof: a pause says what it waits for, and a resident execution what it gave up."""
        is_kept = step["kind"] == "step" or step["error"] is None
        if self.row["status"] == "paused":
            said = self._said()
            return step["step_id"] in said if said is not None else is_kept
        due = moment(step["due_at"])
        mine = self.row["status"] == "leased" and step["lease_epoch"] == self.row["lease_epoch"]
        return mine and is_kept and (due is None or due > self.at)

    def _said(self) -> list[str] | None:
        events = [e for e in self.tables.rows.events[self.id] if e["lease_epoch"] == self.row["lease_epoch"]]
        data = plain([e for e in events if e["event_type"] == "paused"][-1]["data"])
        return data["waits_for"] if data else None

    # What there is to know.

    def has_passed(self, column: str) -> bool:
        instant = moment(self.row[column])
        return instant is not None and instant <= self.at

    @property
    def is_open(self) -> bool:
        return self.row["status"] in {"pending", "leased", "paused"}

    @property
    def is_late(self) -> bool:
        unstarted = self.row["started_at"] is None and self.has_passed("start_by")
        return self.is_open and (self.has_passed("deadline_at") or unstarted)

    @property
    def is_free(self) -> bool:
        """Nothing but its wait, its time or its turn keeps it."""
        return self.is_open and not self.is_late and self.row["held_at"] is None and self.row["status"] != "leased"

    @property
    def time_has_come(self) -> bool:
        return self.is_free and self.has_passed("run_at")

    def alive(self) -> list[dict[str, Any]]:
        heard_since = self.at - timedelta(seconds=SILENCE)
        return [
            worker
            for worker in self.tables.workers
            if worker["stopped_at"] is None and (moment(worker["seen_at"]) or EPOCH) > heard_since
        ]

    def is_quiet(self, worker: dict[str, Any]) -> bool:
        return (moment(worker["seen_at"]) or EPOCH) < self.at - timedelta(seconds=QUIET)

    def servers(self) -> list[dict[str, Any]]:
        return [worker for worker in self.alive() if serves(worker, self.row["type"])]

    def is_claimable(self) -> bool:
        return self.time_has_come and self.row["type"] not in self.tables.disabled

    def others(self) -> list[Oracle]:
        return [Oracle(self.tables, other, self.at) for other in self.tables.rows.runs if other != self.id]

    def more_urgent(self) -> list[Oracle]:
        """Claimable runs without crashes that every worker which could take this one would take first."""
        servers = self.servers()
        return [
            other
            for other in self.others()
            if other.is_claimable()
            and other.row["crashes"] == 0
            and other.row["priority"] < self.row["priority"]
            and all(serves(w, other.row["type"]) and not is_capped(w, other.row["type"]) for w in servers)
        ]

    def before(self) -> list[Oracle]:
        mine = (moment(self.row["run_at"]), str(self.id))
        return [
            other
            for other in self.others()
            if other.time_has_come
            and (other.row["type"], other.row["priority"]) == (self.row["type"], self.row["priority"])
            and min(other.row["crashes"], 2) == min(self.row["crashes"], 2)
            and (moment(other.row["run_at"]), str(other.id)) < mine
        ]

    def kinds(self) -> set[str]:
        return {wait["kind"] for wait in self.waits}

    # Each reason by itself.

    def holds(self, reason: Reason) -> bool:
        told: bool = getattr(self, f"is_{reason.value}")()
        return told

    def is_succeeded(self) -> bool:
        return bool(self.row["status"] == "succeeded")

    def is_cancelled(self) -> bool:
        return bool(self.row["status"] == "cancelled")

    def is_timed_out(self) -> bool:
        return bool(self.row["status"] == "timed_out")

    def is_failed(self) -> bool:
        return self.row["status"] == "failed" and not self.is_spent()

    def is_out_of_attempts(self) -> bool:
        return self.row["status"] == "failed" and self.is_spent()

    def is_spent(self) -> bool:
        return self.row["max_attempts"] is not None and self.tries() >= self.row["max_attempts"]

    def tries(self) -> int:
        return int(self.row["attempt"] + self.row["crashes"])

    def is_overdue(self) -> bool:
        return self.is_late

    def is_held(self) -> bool:
        return self.is_open and not self.is_late and self.row["held_at"] is not None

    def is_running(self) -> bool:
        return self._has_lease() and (moment(self.row["lease_until"]) or EPOCH) >= self.at

    def is_lease_expired(self) -> bool:
        return self._has_lease() and (moment(self.row["lease_until"]) or EPOCH) < self.at

    def _has_lease(self) -> bool:
        return self.row["status"] == "leased" and not self.is_late and self.row["held_at"] is None

    def is_waiting_for_signal(self) -> bool:
        return self._pauses() and "signal" in self.kinds()

    def is_waiting_for_child(self) -> bool:
        return self._pauses() and "signal" not in self.kinds() and bool(CHILD_KINDS & self.kinds())

    def is_waiting_for_retry(self) -> bool:
        by_step = self._pauses() and "step" in self.kinds() and not ({"signal"} | CHILD_KINDS) & self.kinds()
        return by_step or (self._waits_its_time() and self.tries() > 0)

    def is_sleeping(self) -> bool:
        return self._pauses() and self.row["run_at"] is not None and self.kinds() <= {"sleep"}

    def is_waiting_for_wake(self) -> bool:
        return self._pauses() and self.row["run_at"] is None and not self.waits

    def _pauses(self) -> bool:
        return self.is_free and not self.time_has_come and self.row["status"] == "paused"

    def _waits_its_time(self) -> bool:
        return self.is_free and not self.time_has_come and self.row["status"] == "pending"

    def is_scheduled(self) -> bool:
        return self._waits_its_time() and self.tries() == 0

    def is_disabled(self) -> bool:
        return self.time_has_come and self.row["type"] in self.tables.disabled

    def is_no_worker(self) -> bool:
        return self.is_claimable() and not self.servers()

    def is_claim_fails(self) -> bool:
        """Values for which a claim would be refused do not get into these tables."""
        return False

    def is_suspect(self) -> bool:
        return self.is_claimable() and bool(self.servers()) and self.row["crashes"] > 0

    def is_outranked(self) -> bool:
        return self._stands_in_line() and bool(self.more_urgent())

    def is_due(self) -> bool:
        return self._stands_in_line() and not self.more_urgent()

    def _stands_in_line(self) -> bool:
        return self.is_claimable() and bool(self.servers()) and self.row["crashes"] == 0

    def reasons(self) -> list[Reason]:
        return [reason for reason in Reason if self.holds(reason)]


def plain(value: Any) -> Any:
    """A JSON column as either database hands it out."""
    return json.loads(value) if isinstance(value, str) else value


def serves(worker: dict[str, Any], type: str) -> bool:
    return any(low <= type < high for low, high in plain(worker["spans"]))


def is_capped(worker: dict[str, Any], type: str) -> bool:
    cap, taken = ((plain(worker["load"]) or {}).get("caps") or {}).get(type, (1, 0))
    return bool(taken >= cap)


def is_full(worker: dict[str, Any]) -> bool:
    load = plain(worker["load"])
    return bool(load) and load["taken"] >= load["slots"]


def check(told: Explanation, world: World, tables: Tables) -> None:
    """The whole tree: each run in it has exactly the reason that holds, and a sentence that names the facts."""
    for one in told.walk():
        assert one.at == told.at, "one instant for all of it"
        oracle = Oracle(tables, one.run_id, told.at)
        assert oracle.reasons() == [one.reason], f"{one.sentence}\n{oracle.row}\n{oracle.waits}"
        world.seen[f"reason {one.reason}"] += 1
        for fact in facts(oracle, one.reason):
            assert fact in one.sentence, f"{fact!r} is not in: {one.sentence}"
        for doubt in ("something", "unknown", "None", "NULL", "which is alive"):
            assert doubt not in one.sentence, one.sentence
        for step in tables.rows.steps[one.run_id]:
            if step["kind"] == "signal" and step["completed_at"] is None and step not in oracle.waits:
                assert f"signal '{step['step_id'].split('#')[0]}'" not in one.sentence, one.sentence
        assert (one.type, one.status.value) == (oracle.row["type"], oracle.row["status"])
        assert {child.run_id for child in one.children} == waited_for(oracle), one.sentence


def facts(oracle: Oracle, reason: Reason) -> list[str]:
    """What the sentence must name."""
    row = oracle.row
    named = [str(oracle.id), row["type"]]
    if row["finished_at"] is not None:
        named += [spelled(row["finished_at"])]
        named += [row["last_error"]] if row["last_error"] and row["status"] != "succeeded" else []
        named += [f"deleted at {spelled(row['deleted_at'])}"] if row["deleted_at"] else []
    elif reason is Reason.OVERDUE:
        unstarted = row["start_by"] if row["started_at"] is None else None
        late = [limit for limit in (moment(row["deadline_at"]), moment(unstarted)) if limit and limit <= oracle.at]
        named += [spelled(min(late)), "timed_out", *([] if oracle.alive() else ["no worker is alive"])]
        if oracle.alive() and all(map(oracle.is_quiet, oracle.alive())):
            named.append(spelled(max(worker["seen_at"] for worker in oracle.alive())))
    elif reason is Reason.HELD:
        named += [f"held since {spelled(row['held_at'])}", row["hold_reason"] or "", row["leased_by"] or ""]
        named += _resumed_facts(oracle)
    elif reason in {Reason.RUNNING, Reason.LEASE_EXPIRED}:
        is_resident = reason is Reason.RUNNING and oracle.waits
        named += [f"held in memory by {row['leased_by']}" if is_resident else f"running on {row['leased_by']}"]
        named += [spelled(row["lease_until"]), *_lease_facts(oracle, reason)]
    elif row["status"] == "paused" and not oracle.time_has_come:
        named += [spelled(row["run_at"])] if row["run_at"] is not None else []
        named += [fact for wait in oracle.waits[:MOST_NAMED] for fact in _wait_facts(wait)]
    else:
        named += [spelled(row["run_at"]), *([row["last_error"]] if oracle.tries() else [])]
        named += _turn_facts(oracle, reason)
    return named


def _lease_facts(oracle: Oracle, reason: Reason) -> list[str]:
    holder = [worker for worker in oracle.tables.workers if worker["id"] == oracle.row["leased_by"]]
    alive = holder and holder[0] in oracle.alive() and not oracle.is_quiet(holder[0])
    if reason is Reason.LEASE_EXPIRED:
        counts = holder and holder[0] in oracle.alive()
        seen = [f"last seen at {spelled(holder[0]['seen_at'])}"] if counts else []
        seen += ["no other worker is alive"] if counts and len(oracle.alive()) == 1 else []
        return ["takes it back", *seen, *([] if oracle.alive() else ["no worker is alive"])]
    leased = [e for e in oracle.tables.rows.events[oracle.id] if e["event_type"] == "leased"][-1]
    named = [f"since {spelled(leased['created_at'])}", f"attempt {oracle.tries() + 1}"]
    if holder and not alive:
        named.append(spelled(holder[0]["stopped_at"] or holder[0]["seen_at"]))
    return named + [fact for wait in oracle.waits[:MOST_NAMED] for fact in _wait_facts(wait)]


def _resumed_facts(oracle: Oracle) -> list[str]:
    """What keeps it still when nobody holds it any more."""
    row, named = oracle.row, []
    if row["status"] == "leased":
        return []
    if row["status"] == "paused" and not oracle.has_passed("run_at"):
        named = ["still waits for", *(fact for wait in oracle.waits[:MOST_NAMED] for fact in _wait_facts(wait))]
    elif not oracle.has_passed("run_at"):
        named = [f"not before {spelled(row['run_at'])}"]
    if row["type"] in oracle.tables.disabled:
        return [*named, "disabled"]
    return named if oracle.servers() else [*named, "no live worker serves its type"]


def _wait_facts(wait: dict[str, Any]) -> list[str]:
    name = wait["step_id"].split("#")[0]
    if wait["kind"] == "signal":
        return [f"signal '{name}' since {spelled(wait['started_at'])}"]
    if wait["kind"] == "sleep":
        return [f"{spelled(wait['due_at'])} (a sleep)"]
    if wait["kind"] == "step":
        told = ["boom"] if wait["error"] is not None else []
        return [f"the next attempt of step {name}", *told, *([spelled(wait["due_at"])] if wait["due_at"] else [])]
    return [f"child run {name.removeprefix('@result ')}" if name.startswith("@") else name]


def _turn_facts(oracle: Oracle, reason: Reason) -> list[str]:
    if reason is Reason.DISABLED:
        return ["disabled"]
    if reason is Reason.NO_WORKER:
        return ["no live worker serves its type", *(worker["name"] for worker in oracle.alive())]
    if reason is Reason.OUTRANKED:
        return [f"{len(oracle.more_urgent())} more urgent", f"priority is {oracle.row['priority']}", *_room(oracle)]
    if reason in {Reason.DUE, Reason.SUSPECT}:
        count = len(oracle.before())
        named = [f"behind {count} due run"] if count else []
        named += [f"{w['name']} (last seen" if oracle.is_quiet(w) else w["name"] for w in oracle.servers()]
        return ["due since", *named, *_room(oracle)]
    return ["due at"]


def _room(oracle: Oracle) -> list[str]:
    servers, type = oracle.servers(), oracle.row["type"]
    if all(is_capped(worker, type) for worker in servers):
        return ["its type has a cap of"]
    if all(map(is_full, servers)):
        return ["slots were taken at"]
    return ["all that its type may have"] if all(is_full(w) or is_capped(w, type) for w in servers) else []


def waited_for(oracle: Oracle) -> set[UUID]:
    """The children that a paused run waits for: those its waits name, or else those that are open."""
    if oracle.row["status"] != "paused":
        return set()
    names = [wait["step_id"].split("#")[0] for wait in oracle.waits]
    named = {UUID(name.removeprefix("@result ")) for name in names if name.startswith("@result ")}
    if named or (names and not any(wait["kind"] == "child" for wait in oracle.waits)):
        return named
    runs = oracle.tables.rows.runs.items()
    return {
        run_id
        for run_id, row in runs
        if row["parent_id"] is not None and UUID(str(row["parent_id"])) == oracle.id and row["finished_at"] is None
    }
