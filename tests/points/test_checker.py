"""The judge can convict: each promise is broken once, on paper, and the judge names it.

The innocent evidence is that of a whole life: a first worker that died after the parcels were weighed, a second that
finished. Every case changes one thing.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import checker
from .checker import judge

Evidence = dict[str, Any]
RUN, CHILD = "run", "child"


def step(step_id: str, epoch: int, *, run: str = RUN, kind: str = "step", output: Any = None) -> Evidence:
    row = {"run_id": run, "step_id": step_id, "kind": kind, "status": "succeeded", "lease_epoch": epoch, "attempt": 0}
    return {**row, "output": output if output is not None else f"token of {step_id}", "completed_at": 1}


def effect(step_id: str, epoch: int, *, run: str = RUN, attempt: int = 0, token: str | None = None) -> Evidence:
    token = token or f"token of {step_id}"
    return {"run": run, "step": step_id, "epoch": epoch, "attempt": attempt, "token": token, "pid": 1, "at": 0.0}


def event(kind: str, epoch: int | None, run: str = RUN) -> Evidence:
    return {"workflow_id": run, "event_type": kind, "lease_epoch": epoch}


def finished(run: str, epoch: int, result: Any, parent: str | None) -> Evidence:
    row = {"id": run, "type": run, "status": "succeeded", "attempt": 0, "lease_epoch": epoch, "result": result}
    return {**row, "parent_id": parent, "leased_by": None, "lease_until": None, "last_error": None}


def innocent() -> Evidence:
    steps = [
        step("charge#0", 1),
        step("parcel:0/weigh#0", 1),
        step("parcel:1/weigh#0", 1),
        step("parcel:0/pack#0", 2),
        step("parcel:1/pack#0", 2),
        step("close#0", 3),
        step("sleep#0", 2, kind="sleep"),
        step("early#0", 1, kind="signal", output="early 7"),
        step("late#0", 3, kind="signal", output="late 7"),
        step("tell#0", 3, kind="emit"),
        step("print_label#0", 1, run=CHILD),
    ]
    tokens = {row["step_id"]: row["output"] for row in steps}
    parcels = [[tokens[f"parcel:{at}/{name}#0"] for name in ("weigh", "pack")] for at in (0, 1)]
    result = {"charge": tokens["charge#0"], "early": "early 7", "parcels": parcels, "late": "late 7"}
    result |= {"label": "7 token of print_label#0", "close": tokens["close#0"]}
    effects = [
        effect("charge#0", 1, token="a failed attempt"),
        effect("charge#0", 1, attempt=1),
        effect("parcel:0/weigh#0", 1),
        effect("parcel:1/weigh#0", 1),
        effect("parcel:0/pack#0", 1, token="cut short by the death"),
        *(effect(row["step_id"], row["lease_epoch"]) for row in steps[3:6]),
        effect("print_label#0", 1, run=CHILD),
    ]
    first = [("created", None), ("leased", 1), ("step_retried", 1), ("retried", 1), ("leased", 2), ("started", 2)]
    trail = [*first, ("paused", 2), ("woken", 3), ("leased", 3), ("started", 3), ("succeeded", 3)]
    childs = [("created", None), ("leased", 1), ("started", 1), ("succeeded", 1)]
    return {
        "run_id": RUN,
        "number": 7,
        "emits": True,
        "fault": (9, "after"),
        "marks": [{"number": 9, "kind": "after", "pid": 1}],
        "runs": [finished(RUN, 3, result, None), finished(CHILD, 1, result["label"], RUN)],
        "steps": steps,
        "effects": effects,
        "sights": [{"steps": [], "lines": 0}, {"steps": copy.deepcopy(steps[:3]), "lines": 5}],
        "events": [event(*one) for one in trail] + [event(*one, CHILD) for one in childs],
        "signals": [
            {"name": "early", "payload": "early 7", "consumed_at": 1, "consumed_by": "early#0"},
            {"name": "late", "payload": "late 7", "consumed_at": 1, "consumed_by": "late#0"},
        ],
        "outbox": [{"event_type": "run.started", "sequence": 1}, {"event_type": "points.parcelled", "sequence": 2}],
    }


CRIMES: dict[str, tuple[Callable[[Evidence], object], str]] = {
    "the fault did not fire": (lambda e: e["marks"].clear(), "was planned, [] fired"),
    "the fault fired twice": (lambda e: e["marks"].append(e["marks"][0]), "fired"),
    "it failed": (lambda e: e["runs"][0].update(status="failed"), "run is failed"),
    "an attempt was burned": (lambda e: e["runs"][0].update(attempt=1), "burned 1 attempts"),
    "its lease is still there": (lambda e: e["runs"][0].update(leased_by="w"), "still has a lease"),
    "two children": (lambda e: e["runs"].append(dict(e["runs"][1])), "one run and one child"),
    "the child is not over": (lambda e: e["runs"][1].update(status="leased"), "child is leased"),
    "the result is another": (lambda e: e["runs"][0]["result"].update(close="x"), "the result of run"),
    "the child's result is another": (lambda e: e["runs"][1].update(result="x"), "the result of child"),
    "leased twice in a row": (lambda e: e["events"].insert(2, event("leased", 2)), "leased cannot follow"),
    "claimed while paused, unwoken": (lambda e: e["events"].pop(7), "leased cannot follow when a run is paused"),
    "two ends": (lambda e: e["events"].insert(11, event("succeeded", 3)), "succeeded cannot follow"),
    "no end": (lambda e: e["events"].pop(10), "0 terminal events"),
    "a late worker's line": (lambda e: e["events"][5].update(lease_epoch=1), "started tells of epoch 1"),
    "an epoch went back": (lambda e: e["events"][8].update(lease_epoch=2), "leased tells of epoch 2"),
    "a claim without a line": (lambda e: e["runs"][0].update(lease_epoch=4), "the run's epoch is 4"),
    "a step was left open": (lambda e: e["steps"][6].update(status="waiting"), "sleep sleep#0 was left waiting"),
    "a step is missing": (lambda e: e["steps"].pop(0), "steps on record"),
    "a timer too many": (lambda e: e["steps"].append(step("sleep#1", 3, kind="sleep")), "2 records of kind sleep"),
    "a body ran in a later epoch": (
        lambda e: e["effects"].append(effect("parcel:0/weigh#0", 2)),
        "parcel:0/weigh#0 was started in epoch 2, on record since epoch 1",
    ),
    "a body ran again, seen by order": (
        lambda e: e["effects"].append(effect("parcel:0/weigh#0", 1, attempt=1)),
        "parcel:0/weigh#0 was started again (line 9) after its checkpoint",
    ),
    "a body ran twice in one epoch": (
        lambda e: e["effects"].append(effect("close#0", 3)),
        "close#0 was started 2 times as attempt 0 of epoch 3",
    ),
    "a body never ran": (lambda e: e["effects"].pop(3), "its body never started"),
    "a body left no record": (lambda e: e["effects"].append(effect("refund#0", 3)), "refund#0 started and is not on"),
    "an output of nobody": (lambda e: e["effects"][-2].update(token="x"), "is not that of the last body"),
    "a checkpoint was written over": (
        lambda e: e["sights"][1]["steps"][0].update(output="x"),
        "the checkpoint of charge#0 was seen and has changed since",
    ),
    "a checkpoint moved to another epoch": (
        lambda e: e["sights"][1]["steps"][1].update(lease_epoch=0),
        "the checkpoint of parcel:0/weigh#0 was seen and has changed since",
    ),
    "a signal was left over": (lambda e: e["signals"][1].update(consumed_at=None), "signal late was not consumed"),
    "a signal twice": (lambda e: e["signals"].append(dict(e["signals"][1])), "3 signals on record"),
    "one wait took both": (lambda e: e["signals"][1].update(consumed_by="early#0"), "consumed by one wait"),
    "a signal was misheard": (lambda e: e["steps"][8].update(output="x"), "its wait heard 'x'"),
    "an event was not emitted": (lambda e: e["outbox"].pop(), "emitted 0 times"),
    "an event was emitted twice": (
        lambda e: e["outbox"].append({"event_type": "points.parcelled", "sequence": 3}),
        "emitted 2 times",
    ),
    "the outbox has a gap": (lambda e: e["outbox"][1].update(sequence=3), "has gaps: [1, 3]"),
}


def test_the_innocent_life_is_acquitted() -> None:
    assert judge(innocent()) == []


@pytest.mark.parametrize("crime", CRIMES)
def test_the_judge_names_every_crime(crime: str) -> None:
    commit, verdict = CRIMES[crime]
    evidence = innocent()
    commit(evidence)
    assert [complaint for complaint in judge(evidence) if verdict in complaint], judge(evidence)


def test_the_judge_imports_nothing_from_the_package() -> None:
    code = "import sys, runpy; runpy.run_path(sys.argv[1]); sys.exit('simpleworkflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, checker.__file__], check=False).returncode == 0


def test_the_judge_is_a_plain_script(tmp_path: Path) -> None:
    evidence = innocent()
    evidence["fault"] = list(evidence["fault"])
    for crime, code in ((None, 0), ("it failed", 1)):
        if crime is not None:
            CRIMES[crime][0](evidence)
        (tmp_path / "evidence.json").write_text(json.dumps(evidence))
        command = [sys.executable, "-I", checker.__file__, str(tmp_path / "evidence.json")]
        assert subprocess.run(command, capture_output=True, check=False).returncode == code
