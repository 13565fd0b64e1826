"""`simpleworkflow demo` as a process: without a terminal, with one, and interrupted; and its judge.

The judge must find every broken promise, so it is also given evidence that was doctored.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from simpleworkflow.clock import to_micros
from simpleworkflow.demo import effects_log
from simpleworkflow.demo.effects_log import Effect
from simpleworkflow.demo.evidence import Evidence, RunRecord
from simpleworkflow.model.records import Event, HistoryEvent, Signal
from simpleworkflow.model.states import EventType

LIMIT = 60
COMMAND = [sys.executable, "-m", "simpleworkflow", "demo"]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A plain environment, with settings of the developer's own that must not leak into the show."""
    plain = {key: value for key, value in os.environ.items() if key not in {"FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"}}
    ours = {
        "SIMPLEWORKFLOW_URL": "elsewhere.db",
        "SIMPLEWORKFLOW_SINK": "nowhere:",
        "WORKER_TYPE_PREFIXES": "billing.*",
    }
    return {**plain, **ours, "TMPDIR": str(tmp_path)}


def rows(output: str) -> dict[str, str]:
    """The rows of the closing table."""
    found = re.findall(r"│ ([A-Za-z0-9 ,]+?) +│ +(.+?) │", output)
    return dict(found)


def check_story(output: str) -> None:
    table = rows(output)
    count = {label: int(value) for label, value in table.items() if value.isdigit()}
    assert count["orders accepted"] == count["orders finished once"] == 24
    assert count["labels made by child runs"] == 48
    assert count["signals sent"] == count["signals taken"] == 24
    assert count["workers killed with SIGKILL"] == 2
    assert count["steps on record as done"] == 3 * 24 + 48
    assert count["finished steps that ran again"] == 0
    assert count["failed and tried again"] >= 3  # more when a kill comes between an error and its record
    assert 2 <= count["cut off by a kill and run again"] <= 8
    again = count["failed and tried again"] + count["cut off by a kill and run again"]
    assert count["step bodies begun"] == count["steps on record as done"] + again
    assert count["executions of runs, replays included"] > 24 + 48
    for kill in (1, 2):
        told = re.fullmatch(r"([\d.]+) to ([\d.]+)", table[f"seconds from kill {kill} until its steps went on"])
        assert told is not None
        assert 0 <= float(told[1]) <= float(told[2])
    assert "no finished step ran again" in output


def test_without_a_terminal_it_tells_its_story_in_plain_lines(environment: dict[str, str], tmp_path: Path) -> None:
    show = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert show.returncode == 0, show.stdout + show.stderr
    assert show.stderr == ""
    assert "\x1b" not in show.stdout
    assert len(re.findall(r"kill -9 \d+: worker (north|south) is gone, in the middle of \d steps", show.stdout)) == 2
    check_story(show.stdout)
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_it_shows_a_live_board(environment: dict[str, str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    terminal = {**environment, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    show = subprocess.Popen(COMMAND, env=terminal, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    output = read_all(ours)
    assert show.wait(LIMIT) == 0, output
    assert "\x1b[2K" in output, "nothing was redrawn"
    assert " 23 ■■■■■   24 ■■■■■ " in ESCAPES.sub("", output)
    check_story(ESCAPES.sub("", output))
    assert list(tmp_path.iterdir()) == []


def read_all(terminal: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other side of a terminal is closed
            part = b""
        if not part:
            os.close(terminal)
            return b"".join(parts).decode()
        parts.append(part)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing_behind(
    number: signal.Signals, environment: dict[str, str], tmp_path: Path
) -> None:
    unbuffered = {**environment, "PYTHONUNBUFFERED": "1"}
    show = subprocess.Popen(COMMAND, env=unbuffered, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert show.stdout is not None
    workers: list[int] = []
    for line in show.stdout:
        started = re.search(r"worker \w+ starts, process (\d+)", line)
        workers += [int(started[1])] if started else []
        if " leased " in line:
            break
    show.send_signal(number)
    assert show.wait(LIMIT) == 128 + number
    show.stdout.close()
    assert len(workers) == 2
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
    assert list(tmp_path.iterdir()) == []


# The judge, with evidence made by hand: one order with one parcel, two kills.

START = datetime(2030, 1, 1, tzinfo=UTC)
ORDER, LABEL = UUID(int=1), UUID(int=2)
NORTH, SOUTH, EAST, SHOWMAN = 11, 12, 13, 10


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def line(what: str, seconds: float, pid: int, step_id: str = "", run_id: UUID = ORDER) -> Effect:
    return Effect(what, to_micros(at(seconds)), pid, 1, str(run_id), step_id)


def happening(idx: int, kind: str, seconds: float, **details: Any) -> HistoryEvent:
    return HistoryEvent(idx, kind, at(seconds), json.dumps(details))


def done(idx: int, step_id: str, seconds: float) -> HistoryEvent:
    return happening(idx, "ActivityCompleted", seconds, step_id=step_id)


def trail(run_id: UUID, *words: EventType) -> list[Event]:
    return [Event(number, run_id, word, 1, None, at(number)) for number, word in enumerate(words)]


def innocent() -> Evidence:
    """North dies inside charge, south after reserve failed once and ended but before its record; east does the rest."""
    effects = [
        line("start", 1, NORTH, "charge#0"),
        line("kill", 2, NORTH),
        line("start", 3, SOUTH, "charge#0"),
        line("end", 4, SOUTH, "charge#0"),
        line("start", 5, SOUTH, "reserve#0"),
        line("error", 6, SOUTH, "reserve#0"),
        line("start", 7, SOUTH, "reserve#0"),
        line("end", 8, SOUTH, "reserve#0"),
        line("kill", 8.1, SOUTH),
        line("start", 9.6, EAST, "reserve#0"),
        line("end", 10, EAST, "reserve#0"),
        line("signal", 11, SHOWMAN, "approved"),
        line("start", 12, EAST, "make_label#0", LABEL),
        line("end", 13, EAST, "make_label#0", LABEL),
        line("start", 14, EAST, "notify#0"),
        line("end", 15, EAST, "notify#0"),
    ]
    history = [
        happening(1, "WorkflowStarted", 0, workflow_name="orders.fulfil.v1", input={"parcels": ["01-a"]}),
        done(2, "charge#0", 4.1),
        done(3, "reserve#0", 10.1),
        happening(4, "ActivityCompleted", 13.5, step_id="orders.label.v1#=01-a", child_id=str(LABEL)),
        done(5, "notify#0", 15.1),
    ]
    signals = [Signal(UUID(int=9), ORDER, "approved", at(11), at(11.5), '"yes"')]
    order = RunRecord(trail(ORDER, EventType.CREATED, EventType.LEASED, EventType.SUCCEEDED), history, signals)
    words = (EventType.CREATED, EventType.LEASED, EventType.SUCCEEDED)
    return Evidence(effects, {ORDER: order}, {LABEL: RunRecord(trail(LABEL, *words), [done(1, "make_label#0", 13.1)])})


def test_the_innocent_show_is_acquitted_and_its_table_counts_what_happened() -> None:
    evidence = innocent()
    assert evidence.violations() == []
    assert evidence.is_sound
    table = dict(evidence.table())
    assert table["step bodies begun"] == "7"
    assert table["failed and tried again"] == "1"
    assert table["cut off by a kill and run again"] == "2"
    assert table["of these through, but not yet on record"] == "1"
    assert table["finished steps that ran again"] == "0"
    assert table["steps on record as done"] == "4"
    assert table["executions of runs, replays included"] == "2"
    assert table["seconds from kill 1 until its steps went on"] == "1.0 to 1.0"
    assert table["seconds from kill 2 until its steps went on"] == "1.5 to 1.5"


def with_effects(evidence: Evidence, *more: Effect) -> Evidence:
    return replace(evidence, effects=[*evidence.effects, *more])


def without_effects(evidence: Evidence, doomed: Callable[[Effect], bool]) -> Evidence:
    return replace(evidence, effects=[effect for effect in evidence.effects if not doomed(effect)])


def with_order(evidence: Evidence, **changes: Any) -> Evidence:
    return replace(evidence, orders={ORDER: replace(evidence.orders[ORDER], **changes)})


def without_record(evidence: Evidence, step_id: str) -> Evidence:
    lines: Sequence[HistoryEvent] = evidence.orders[ORDER].history
    return with_order(evidence, history=[one for one in lines if one.details.get("step_id") != step_id])


CRIMES: dict[str, tuple[Callable[[Evidence], Evidence], str]] = {
    "a finished step runs again elsewhere": (
        lambda e: with_effects(e, line("start", 4.2, EAST, "charge#0"), line("end", 4.3, EAST, "charge#0")),
        "step charge#0 of order 1 .* was on record as done and began again in process 13",
    ),
    "a finished step runs again after a kill": (
        lambda e: with_effects(e, line("start", 4.11, SOUTH, "charge#0")),
        "was on record as done and began again in process 12",
    ),
    "a finished label runs again": (
        lambda e: with_effects(e, line("start", 14, EAST, "make_label#0", LABEL)),
        "step make_label#0 .* was on record as done",
    ),
    "a step begins twice for no reason": (
        lambda e: with_effects(e, line("start", 9.7, EAST, "reserve#0")),
        "began twice, and neither an error nor a kill tells why",
    ),
    "a step is on record that nobody did": (
        lambda e: without_effects(e, lambda line: line.step_id == "notify#0"),
        "step notify#0 of run .* is on record as done, and the log knows no end of it",
    ),
    "a step that was done is not on record": (
        lambda e: without_record(e, "notify#0"),
        "step notify#0 of run .* has begun and is not on record as done",
    ),
    "an order is lost": (
        lambda e: with_order(e, events=trail(ORDER, EventType.CREATED, EventType.LEASED)),
        "order .* was lost or finished twice",
    ),
    "an order finishes twice": (
        lambda e: with_order(e, events=trail(ORDER, EventType.CREATED, EventType.SUCCEEDED, EventType.SUCCEEDED)),
        "order .* was lost or finished twice",
    ),
    "a label is lost": (
        lambda e: replace(e, labels={LABEL: replace(e.labels[LABEL], events=trail(LABEL, EventType.CREATED))}),
        "label .* was lost or finished twice",
    ),
    "a child is started twice": (
        lambda e: replace(e, labels={**e.labels, UUID(int=3): e.labels[LABEL]}),
        "1 parcels need a label each, but 2 child runs were started",
    ),
    "a signal is not taken": (
        lambda e: with_order(e, signals=[replace(e.orders[ORDER].signals[0], consumed_at=None)]),
        "order .*: signals sent 1, kept 1, taken 0",
    ),
    "a signal is forgotten": (lambda e: with_order(e, signals=[]), "signals sent 1, kept 0, taken 0"),
    "nobody was killed": (
        lambda e: without_effects(e, lambda line: line.what == "kill"),
        "two workers were to be killed, and the log knows of 0",
    ),
}


@pytest.mark.parametrize("crime", CRIMES)
def test_the_judge_of_the_show_names_every_crime(crime: str) -> None:
    doctored, sentence = CRIMES[crime]
    evidence = doctored(innocent())
    assert any(re.search(sentence, told) for told in evidence.violations()), evidence.violations()
    assert not evidence.is_sound
    if "finished" in crime and "runs again" in crime:
        assert dict(evidence.table())["finished steps that ran again"] == "1"


def test_a_show_with_evidence_against_it_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from simpleworkflow.demo.main import main
    from simpleworkflow.demo.scenario import Scenario

    guilty, _ = CRIMES["a finished step runs again elsewhere"]
    monkeypatch.setattr(Scenario, "run", lambda _: guilty(innocent()))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    try:
        assert main() == 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    told = capsys.readouterr().out
    assert "was on record as done and began again" in told
    assert "A promise was broken" in told


def test_what_is_noted_is_read_back_line_by_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert effects_log.read_effects() == []
    lines = [line("start", 1, NORTH, "charge#0"), Effect("kill", 5, NORTH)]
    for one in lines:
        effects_log.note(one)
    assert effects_log.read_effects() == lines
    assert effects_log.bodies_under_way(lines, NORTH) == 1
    assert effects_log.bodies_under_way(lines, SOUTH) == 0
