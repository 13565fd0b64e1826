"""`simpleworkflow schedule` as operators type it, on both databases."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result
from support.command import COMMAND, environment
from support.ledger import Raw
from support.waiting import until

import simpleworkflow as swf
from simpleworkflow.cli.main import main
from simpleworkflow.cli.workers import worker as work


@pytest.fixture
def ready(url: str) -> str:
    app = swf.App(url)
    app.sync.doctor.check()
    app.sync.close()
    return url


def schedule(ready: str, *arguments: str, code: int = 0) -> str:
    """In this process: a new one for each of these commands would take a minute altogether."""
    done = typed(ready, "schedule", *arguments)
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def typed(ready: str, *arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=stdin, env={"SIMPLEWORKFLOW_URL": ready})


def as_json(ready: str, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in schedule(ready, *arguments, "--json").splitlines()]


def test_a_schedule_lives_from_add_to_delete(ready: str) -> None:
    added = schedule(
        ready,
        "add",
        "report",
        "shop.report.v1",
        "0 9 * * MON-FRI",
        "--tz",
        "Europe/Berlin",
        "--payload",
        '{"to": "ada"}',
        "--overlap",
        "skip",
        "--catch-up",
        "all",
        "--window",
        "2 days",
    )
    assert added.startswith("report: 0 9 * * MON-FRI, next at 2")
    schedule(ready, "add", "often", "shop.poll.v1", "--every", "15m")
    often, report = as_json(ready, "list")
    assert report | {"next_at": 0} == {
        "name": "report",
        "type": "shop.report.v1",
        "cron": "0 9 * * MON-FRI",
        "every_seconds": None,
        "tz": "Europe/Berlin",
        "payload": {"to": "ada"},
        "overlap": "skip",
        "catch_up": "all",
        "window_seconds": 172800.0,
        "next_at": 0,
        "is_paused": False,
        "pause_reason": None,
        "origin": "call",
        "last_slot_at": None,
        "last_run_id": None,
        "last_skipped_at": None,
        "fired": 0,
        "skipped": 0,
        "trouble": None,
    }
    assert often["every_seconds"] == 900.0
    head, *rows = schedule(ready, "list").splitlines()
    assert head.split() == ["NAME", "WHEN", "ZONE", "TYPE", "STATE", "NEXT", "LAST", "FIRED", "SKIPPED"]
    assert [row.split()[0] for row in rows] == ["often", "report"]

    assert schedule(ready, "pause", "report", "--reason", "holi\x1bdays").startswith("report paused, next slot 2")
    assert "report was paused: holi\\x1bdays" in schedule(ready, "list")
    assert schedule(ready, "resume", "report").startswith("report active")
    run_id = UUID(schedule(ready, "run-now", "report").strip())
    app = swf.App(ready)
    assert app.sync.get(run_id).payload == {"to": "ada"}
    app.sync.close()
    assert as_json(ready, "delete", "report", "--yes") == [{"name": "report", "is_deleted": True}]
    assert [one["name"] for one in as_json(ready, "list")] == ["often"]


def test_backfill_starts_each_slot_once_and_can_be_tried_before(ready: str) -> None:
    schedule(ready, "add", "hourly", "shop.poll.v1", "--every", "1h")
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    span = [(end - timedelta(hours=5)).isoformat(), end.isoformat()]
    assert as_json(ready, "backfill", "hourly", *span, "--dry-run") == [{"name": "hourly", "slots": 5}]
    assert schedule(ready, "backfill", "hourly", *span) == "5 of 5 slots started\n"
    assert as_json(ready, "backfill", "hourly", *span) == [{"name": "hourly", "slots": 5, "started": 0}]
    assert schedule(ready, "backfill", "hourly", "6h", end.isoformat()).endswith("slots started; 5 had been before\n")


def test_a_backfill_that_would_be_refused_is_refused_when_it_is_tried_before(ready: str) -> None:
    schedule(ready, "add", "seconds", "shop.poll.v1", "--every", "1s")
    ahead = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    for dry in ([], ["--dry-run"]):
        assert "still to come" in schedule(ready, "backfill", "seconds", "1h", ahead, *dry, code=2)
        assert "100,000 slots" in schedule(ready, "backfill", "seconds", "30h", *dry, code=2)


def test_coming_slots_are_shown_on_the_clocks_of_their_zone(ready: str) -> None:
    around = ["--from", "2030-03-30T12:00Z", "-n", "3"]
    told = schedule(ready, "next", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", *around)
    assert told.splitlines() == [
        "2030-03-31 01:00:00Z  Sun 2030-03-31 03:00:00 CEST",
        "2030-04-01 00:30:00Z  Mon 2030-04-01 02:30:00 CEST",
        "2030-04-02 00:30:00Z  Tue 2030-04-02 02:30:00 CEST",
    ]
    schedule(ready, "add", "nightly", "shop.poll.v1", "30 2 * * *", "--tz", "Europe/Berlin")
    assert schedule(ready, "next", "nightly", *around) == told
    (first, *_) = as_json(ready, "next", "nightly", *around)
    assert first == {"slot": "2030-03-31T01:00:00+00:00", "local": "2030-03-31T03:00:00+02:00"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["add", "x", "shop.poll.v1", "0 0 30 2 *"], "Bad day-of-month"),
        (["add", "x", "shop.poll.v1", "@daily", "--tz", "Mars/Phobos"], "no time zone 'Mars/Phobos'"),
        (["add", "two words", "shop.poll.v1", "@daily"], "schedule name"),
        (["add", "x", "two words", "@daily"], "workflow type"),
        (["add", "x", "shop.poll.v1"], "one of the two"),
        (["add", "x", "shop.poll.v1", "@daily", "--every", "1h"], "one of the two"),
        (["add", "x", "shop.poll.v1", "--every", "often"], "often"),
        (["add", "x", "shop.poll.v1", "@daily", "--payload", "{"], "--payload"),
        (["add", "x", "shop.poll.v1", "@daily", "--overlap", "queue"], "queue"),
        (["add", "x", "shop.poll.v1", "\x1b[31m * * * *"], "Bad minute"),
        (["backfill", "x", "1h", "2h"], "not before"),
        (["backfill", "x", "soon"], "soon"),
        (["next"], "name a schedule"),
        (["next", "x", "--cron", "@daily"], "name a schedule"),
        (["next", "--cron", "@never"], "fields"),
    ],
)
def test_what_cannot_be_is_the_callers_mistake(ready: str, arguments: list[str], says: str) -> None:
    told = schedule(ready, *arguments, code=2)
    assert says in told
    assert "\x1b" not in told


@pytest.mark.parametrize(
    "arguments",
    [
        ["pause", "x"],
        ["resume", "x"],
        ["delete", "x", "--yes"],
        ["run-now", "x"],
        ["next", "x"],
        ["backfill", "x", "1h"],
    ],
)
def test_a_name_that_nobody_has_is_an_answer(ready: str, arguments: list[str]) -> None:
    assert schedule(ready, *arguments, code=1) == "error: there is no schedule 'x'\n"


def test_a_schedule_of_the_code_says_that_it_will_come_back(ready: str) -> None:
    schedule(ready, "add", "x", "shop.poll.v1", "@daily")
    raw = Raw(ready)
    raw.sql("UPDATE workflow.workflow_schedule SET origin = 'code'")
    raw.close()
    done = typed(ready, "schedule", "delete", "x", stdin="y\n")
    assert (done.exit_code, done.stdout) == (0, "x deleted\n")
    assert "written anew when a worker starts" in done.stderr


def test_a_broken_and_a_late_schedule_are_seen_in_the_list(ready: str) -> None:
    for name in ("broken", "late", "sound"):
        schedule(ready, "add", name, "shop.poll.v1", "@daily")
    raw = Raw(ready)
    raw.sql("UPDATE workflow.workflow_schedule SET tz = 'Mars/\x1bPhobos' WHERE name = 'broken'")
    raw.sql(f"UPDATE workflow.workflow_schedule SET next_at = next_at {raw.back(3 * 86400)} WHERE name = 'late'")
    raw.close()
    told = schedule(ready, "list")
    _, broken, late, sound, why = told.splitlines()
    assert ("broken" in broken.split()[1:], "late" in late.split()[1:], "active" in sound.split()) == (True, True, True)
    assert why.startswith("broken: there is no time zone")
    assert "\x1b" not in told


def test_backfill_stopped_by_the_keyboard_says_how_far_it_came(ready: str, tmp_path: Path) -> None:
    schedule(ready, "add", "seconds", "shop.poll.v1", "--every", "1s")
    command = [*COMMAND, "schedule", "backfill", "seconds", "27h"]
    process = subprocess.Popen(command, env=environment(ready), stderr=subprocess.PIPE, text=True)
    raw = Raw(ready)
    many = "SELECT 1 FROM workflow.workflow_run LIMIT 1 OFFSET 1200"
    until(lambda: raw.sql(many), "it has begun")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 1
    assert re.search(r"interrupted; \d+ of 972\d\d slots were dealt with; ask again to go on", told)
    (row,) = raw.sql("SELECT count(*) AS runs FROM workflow.workflow_run")
    raw.close()
    assert 0 < row["runs"] < 97200


def test_a_worker_can_be_told_to_leave_schedules_alone(ready: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    app = swf.App(ready)
    monkeypatch.setattr(work, "loading_for", lambda *_: nullcontext())
    monkeypatch.setattr(work, "load_app", lambda *_, **__: app)
    monkeypatch.setattr(work, "serve", lambda _, **options: told.append(options))
    for arguments in ([], ["--no-schedules"]):
        assert CliRunner().invoke(main, ["worker", "shop.work:app", *arguments]).exit_code == 0
    app.sync.close()
    assert [options.get("schedules", True) for options in told] == [True, False]


def test_doctor_and_explain_know_of_schedules(ready: str) -> None:
    (fine,) = [one for one in _findings(ready) if one["check"] == "schedules"]
    assert (fine["level"], fine["seen"]) == ("ok", "0 schedules, none late or broken")
    for name in ("broken", "late"):
        schedule(ready, "add", name, "shop.poll.v1", "@daily")
    raw = Raw(ready)
    raw.sql("UPDATE workflow.workflow_schedule SET tz = 'Mars/Phobos' WHERE name = 'broken'")
    raw.sql(f"UPDATE workflow.workflow_schedule SET next_at = next_at {raw.back(3 * 86400)} WHERE name = 'late'")
    raw.close()
    broken, late = [one for one in _findings(ready) if one["check"] == "schedules"]
    assert (broken["level"], broken["subject"], "Mars/Phobos" in broken["seen"]) == ("problem", "broken", True)
    assert late["level"] == "problem", "nobody is there to start it"
    assert late["seen"].startswith("1 schedule late by up to 2d")
    schedule(ready, "pause", "broken")
    schedule(ready, "pause", "late")
    (fine,) = [one for one in _findings(ready) if one["check"] == "schedules"]
    assert fine["level"] == "ok", "what is paused is meant to stand"

    asked = schedule(ready, "run-now", "late").strip()
    told = typed(ready, "explain", asked).stdout
    assert "late, asked for 20" in told


def _findings(ready: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in typed(ready, "doctor", "--json").stdout.splitlines()]
