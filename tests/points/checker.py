"""The judge: reads what a run left behind, and says everything that breaks a promise.

It imports nothing from the package, so that no mistake of the package can hide itself here: the tables are read with
plain SQL, the legal paths of the audit trail are spelled out once more, and the effects log is what user code wrote.
`judge` is a pure function of the evidence, so that tests can show it evidence of each crime.

How it knows that a body was not started again after its checkpoint was committed, without trusting any clock: while a
run is under way its checkpoints are read again and again, and after each reading the lines of the effects log are
counted. A line that comes later than that count was written after the checkpoint had been seen. Beside that: nobody
with a later epoch than the checkpoint's started the body (who claims later reads the history later), nobody started it
twice as the same attempt of the same epoch, and the token on record is that of the last body that started.

As a script: python checker.py evidence.json
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Evidence = dict[str, Any]

STEPS = ("charge#0", "close#0", "parcel:0/pack#0", "parcel:0/weigh#0", "parcel:1/pack#0", "parcel:1/weigh#0")
CHILD_STEPS = ("print_label#0",)
JSON = {"payload", "result", "input", "output", "error", "data"}
DONE = {"succeeded", "failed"}
ENDS = {"succeeded", "failed", "cancelled", "timed_out"}
PATHS = {
    ("nowhere", "created"): "pending",
    ("pending", "leased"): "leased",
    ("paused", "woken"): "waking",
    ("waking", "leased"): "leased",
    ("leased", "started"): "leased",
    ("leased", "step_retried"): "leased",
    ("leased", "retried"): "pending",
    ("leased", "released"): "pending",
    ("leased", "paused"): "paused",
    ("leased", "succeeded"): "succeeded",
}
"""Where an event leads from where. Other moves are lawful elsewhere; here nobody holds, cancels or fails a run."""


class Tables:
    """A stranger's connection to the ledger."""

    def __init__(self, url: str) -> None:
        self.is_file = "://" not in url
        self.connection: Any
        if self.is_file:
            self.connection = sqlite3.connect(url, isolation_level=None, timeout=20)
            self.connection.row_factory = sqlite3.Row
        else:
            import psycopg
            from psycopg.rows import dict_row

            self.connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def rows(self, text: str, *parameters: Any) -> list[Row]:
        text = text.replace("workflow.", "") if self.is_file else text.replace("?", "%s")
        return [_plain(dict(row), self.is_file) for row in self.connection.execute(text, parameters).fetchall()]

    def run(self, run_id: str) -> Row:
        return self.rows("SELECT * FROM workflow.workflow_run WHERE id = ?", run_id)[0]

    def family(self, run_id: str) -> list[Row]:
        text = "SELECT * FROM workflow.workflow_run WHERE id = ? OR parent_id = ? ORDER BY created_at, id"
        return self.rows(text, run_id, run_id)

    def steps(self, run_id: str) -> list[Row]:
        """Of the run and its children."""
        text = "SELECT s.* FROM workflow.workflow_step s JOIN workflow.workflow_run r ON r.id = s.run_id"
        return self.rows(f"{text} WHERE r.id = ? OR r.parent_id = ? ORDER BY s.run_id, s.step_id", run_id, run_id)

    def ledger(self, run_id: str, *, emits: bool) -> Evidence:
        """Everything that the database holds of the run and its children."""
        family = self.family(run_id)
        events = "SELECT * FROM workflow.workflow_event WHERE workflow_id = ? ORDER BY id"
        signals = "SELECT * FROM workflow.workflow_signal WHERE run_id = ? ORDER BY seq"
        outbox = "SELECT * FROM workflow.outbox_event WHERE aggregate_id = ? ORDER BY sequence"
        return {
            "runs": family,
            "steps": self.steps(run_id),
            "events": [event for run in family for event in self.rows(events, run["id"])],
            "signals": self.rows(signals, run_id),
            "outbox": self.rows(outbox, run_id) if emits else [],
        }

    def close(self) -> None:
        self.connection.close()


def _plain(row: Row, is_text: bool) -> Row:
    """The same words from both databases: JSON decoded, ids and instants as text."""
    for name in JSON & row.keys() if is_text else ():
        row[name] = None if row[name] is None else json.loads(row[name])
    known = str | int | list | dict | None
    return {name: value if isinstance(value, known) else str(value) for name, value in row.items()}


def read_lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def sight(tables: Tables, run_id: str, effects: Path) -> Row:
    """What is on record now, then how many lines the log has: the order is the point."""
    done = [row for row in tables.steps(run_id) if row["kind"] == "step" and row["status"] in DONE]
    return {"steps": done, "lines": len(read_lines(effects))}


def judge(evidence: Evidence) -> list[str]:
    """Every broken promise, in words; an empty list is an acquittal."""
    run_id = evidence["run_id"]
    family = [run["id"] for run in evidence["runs"]]
    return [
        *_fault(evidence),
        *_endings(run_id, evidence["runs"]),
        *[crime for one in family for crime in _trail(one, evidence)],
        *_checkpoints(evidence),
        *_bodies(evidence),
        *_sightings(evidence),
        *_signals(evidence),
        *_result(evidence),
        *_outbox(evidence),
    ]


def _fault(evidence: Evidence) -> Iterator[str]:
    fired = [(mark["number"], mark["kind"]) for mark in evidence["marks"]]
    planned = [tuple(evidence["fault"])] if evidence["fault"] else []
    if fired != planned:
        yield f"the fault {planned} was planned, {fired} fired"


def _endings(run_id: str, runs: list[Row]) -> Iterator[str]:
    children = [run for run in runs if run["parent_id"] == run_id]
    if len(runs) != 2 or len(children) != 1:
        yield f"{len(runs)} runs, {len(children)} of them children; one run and one child were meant"
    for run in runs:
        if run["status"] != "succeeded":
            yield f"{run['type']} is {run['status']}: {run['last_error']}"
        if run["attempt"] != 0:
            yield f"{run['type']} burned {run['attempt']} attempts, though its own code never failed"
        if run["leased_by"] is not None or run["lease_until"] is not None:
            yield f"{run['type']} has ended and still has a lease"


def _trail(run_id: str, evidence: Evidence) -> Iterator[str]:
    """The events are a path; each claim raised the epoch by one and everything else happened under the last one."""
    state, epoch, ends = "nowhere", 0, 0
    for event in evidence["events"]:
        if event["workflow_id"] != run_id:
            continue
        kind = event["event_type"]
        if kind == "leased":
            epoch += 1
        if kind not in {"created", "woken"} and event["lease_epoch"] != epoch:
            yield f"{kind} tells of epoch {event['lease_epoch']}, but the epoch was {epoch}"
        ends += kind in ENDS
        if (state, kind) not in PATHS:
            yield f"{kind} cannot follow when a run is {state}"
            return
        state = PATHS[state, kind]
    if ends != 1 or state not in ENDS:
        yield f"{ends} terminal events, and the trail ends in {state}"
    for run in evidence["runs"]:
        if run["id"] == run_id and run["lease_epoch"] != epoch:
            yield f"the trail has {epoch} claims, the run's epoch is {run['lease_epoch']}"


def _checkpoints(evidence: Evidence) -> Iterator[str]:
    for row in evidence["steps"]:
        if row["status"] != "succeeded" or row["completed_at"] is None:
            yield f"{row['kind']} {row['step_id']} was left {row['status']}"
    run_id = evidence["run_id"]
    own = sorted(row["step_id"] for row in evidence["steps"] if row["kind"] == "step" and row["run_id"] == run_id)
    childs = sorted(row["step_id"] for row in evidence["steps"] if row["kind"] == "step" and row["run_id"] != run_id)
    if (tuple(own), tuple(childs)) != (STEPS, CHILD_STEPS):
        yield f"steps on record: {own} and {childs}"
    kinds = Counter(row["kind"] for row in evidence["steps"])
    wanted = {"sleep": 1, "signal": 2, "emit": 1 if evidence["emits"] else 0}
    for kind, count in wanted.items():
        if kinds[kind] != count:
            yield f"{kinds[kind]} records of kind {kind}, not {count}"


def _bodies(evidence: Evidence) -> Iterator[str]:
    starts = Counter((e["run"], e["step"], e["epoch"], e["attempt"]) for e in evidence["effects"])
    for (_, step, epoch, attempt), count in starts.items():
        if count > 1:
            yield f"{step} was started {count} times as attempt {attempt} of epoch {epoch}"
    for row in evidence["steps"]:
        if row["kind"] != "step":
            continue
        mine = [e for e in evidence["effects"] if (e["run"], e["step"]) == (row["run_id"], row["step_id"])]
        if not mine:
            yield f"{row['step_id']} is on record, but its body never started"
            continue
        later = [e["epoch"] for e in mine if e["epoch"] > row["lease_epoch"]]
        if later:
            yield f"{row['step_id']} was started in epoch {later[0]}, on record since epoch {row['lease_epoch']}"
        if mine[-1]["token"] != row["output"]:
            yield f"the output of {row['step_id']} is not that of the last body that started"
    known = {(row["run_id"], row["step_id"]) for row in evidence["steps"]}
    for effect in evidence["effects"]:
        if (effect["run"], effect["step"]) not in known:
            yield f"{effect['step']} started and is not on record"


def _sightings(evidence: Evidence) -> Iterator[str]:
    final = {(row["run_id"], row["step_id"]): row for row in evidence["steps"]}
    again: set[tuple[str, str, int]] = set()
    changed: set[tuple[str, str]] = set()
    for sight in evidence["sights"]:
        for row in sight["steps"]:
            key = row["run_id"], row["step_id"]
            now = final.get(key)
            if now is None or any(now[name] != row[name] for name in ("status", "output", "lease_epoch", "attempt")):
                changed.add(key)
            for number, effect in enumerate(evidence["effects"][sight["lines"] :], sight["lines"]):
                if (effect["run"], effect["step"]) == key:
                    again.add((*key, number))
    yield from (f"{step} was started again (line {number}) after its checkpoint" for _, step, number in sorted(again))
    yield from (f"the checkpoint of {step} was seen and has changed since" for _, step in sorted(changed))


def _signals(evidence: Evidence) -> Iterator[str]:
    waits = {row["step_id"]: row for row in evidence["steps"] if row["kind"] == "signal"}
    readers = [signal["consumed_by"] for signal in evidence["signals"]]
    if [signal["name"] for signal in evidence["signals"]] != ["early", "late"]:
        yield f"{len(evidence['signals'])} signals on record, not one early and one late"
    if len(set(readers)) != len(readers):
        yield "two signals were consumed by one wait"
    for signal in evidence["signals"]:
        wait = waits.get(signal["consumed_by"])
        if signal["consumed_at"] is None or wait is None:
            yield f"signal {signal['name']} was not consumed by any wait"
        elif wait["output"] != signal["payload"]:
            yield f"signal {signal['name']} said {signal['payload']!r}, its wait heard {wait['output']!r}"


def _result(evidence: Evidence) -> Iterator[str]:
    """The result is made of what is on record, and of nothing else."""
    run_id, number = evidence["run_id"], evidence["number"]
    own = {row["step_id"]: row["output"] for row in evidence["steps"] if row["run_id"] == run_id}
    label = [row["output"] for row in evidence["steps"] if (row["kind"], row["step_id"]) == ("step", CHILD_STEPS[0])]
    meant = {
        "charge": own.get("charge#0"),
        "early": f"early {number}",
        "parcels": [[own.get(f"parcel:{at}/{name}#0") for name in ("weigh", "pack")] for at in (0, 1)],
        "late": f"late {number}",
        "label": f"{number} {label[0]}" if label else None,
        "close": own.get("close#0"),
    }
    for run in evidence["runs"]:
        wanted = meant if run["id"] == run_id else meant["label"]
        if run["result"] != wanted:
            yield f"the result of {run['type']} is {run['result']!r}, on record is {wanted!r}"


def _outbox(evidence: Evidence) -> Iterator[str]:
    told = [row for row in evidence["outbox"] if row["event_type"] == "points.parcelled"]
    if len(told) != (1 if evidence["emits"] else 0):
        yield f"the event was emitted {len(told)} times"
    numbers = [row["sequence"] for row in evidence["outbox"]]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers)) if numbers else []):
        yield f"the outbox of the run has gaps: {numbers}"


if __name__ == "__main__":
    found = judge(json.loads(Path(sys.argv[1]).read_text()))
    sys.exit("\n".join(found) or 0)
