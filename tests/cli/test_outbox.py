"""`simpleworkflow outbox`: how it stands, dispatch to a file and to standard output, list, replay, skip, rules."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest
from click.testing import CliRunner
from support.command import COMMAND, environment
from support.ledger import Raw
from support.outbox import put, rows, statuses
from support.terminal import command
from support.waiting import until

import simpleworkflow as swf
from simpleworkflow.cli import main
from simpleworkflow.clock import new_id

NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def box(url: str) -> Iterator[Raw]:
    """A migrated database."""
    app = swf.App(url)
    app.sync.doctor.check()
    app.sync.close()
    raw = Raw(url)
    yield raw
    raw.close()


class Said(NamedTuple):
    stdout: str
    stderr: str


def outbox(*arguments: object, url: str, code: int = 0) -> Said:
    """In this process, since a new one takes half a second; those that dispatch are real ones."""
    done = CliRunner().invoke(main, ["outbox", *map(str, arguments)], env={"SIMPLEWORKFLOW_URL": url})
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return Said(done.stdout, done.stderr)


def dispatched(*arguments: object, url: str) -> Said:
    done = command("outbox", "dispatch", "--once", *arguments, url=url)
    assert done.returncode == 0, done.stderr
    return Said(done.stdout, done.stderr)


def make_dead(raw: Raw, run_id: UUID) -> None:
    text = "UPDATE workflow.outbox_event SET status = ?, attempt = 3, last_error = ? WHERE aggregate_id = ?"
    raw.sql(f"{text} AND sequence = 1", "dead", "HTTP 410 \x1b[31mgone", run_id)
    raw.sql(f"{text} AND sequence > 1", "behind", None, run_id)


def test_the_way_of_events_from_rule_to_file(box: Raw, url: str, tmp_path: Path) -> None:
    assert outbox("rules", "add", "shop.*", "created", "cancelled", url=url).stdout.count("shop.*") == 2
    assert "there already" in outbox("rules", "add", "shop.", "created", url=url).stderr
    app = swf.App(url)
    run_id = app.sync.trigger("shop.order.v1").id
    app.sync.cancel(run_id)
    app.sync.close()
    (waiting,) = outbox("status", url=url).stdout.splitlines()[:1]
    assert waiting.startswith("waiting    2, the oldest for")

    target = tmp_path / "events.jsonl"
    done = dispatched("--sink", f"file:{target}", "--source", "/shop", url=url)
    assert done.stderr == "2 published\n"
    events = [json.loads(line) for line in target.read_text().splitlines()]
    assert [(event["id"], event["type"], event["source"]) for event in events] == [
        (f"{run_id}/1", "simpleworkflow.run.created", "/shop"),
        (f"{run_id}/2", "simpleworkflow.run.cancelled", "/shop"),
    ]
    lines = [json.loads(line) for line in outbox("list", run_id, "--json", url=url).stdout.splitlines()]
    assert [(line["sequence"], line["status"]) for line in lines] == [(1, "published"), (2, "published")]

    assert outbox("replay", run_id, "--from", 2, url=url).stdout == "1 event is offered again\n"
    printed = dispatched("--sink", "stdout:", url=url).stdout
    assert json.loads(printed)["id"] == f"{run_id}/2"
    assert outbox("replay", "--since", "1h", "--json", url=url).stdout == '{"replayed": 2}\n'

    assert outbox("rules", "delete", "shop.*", "created", url=url).stdout == "deleted shop.*  created\n"
    assert "no such rule" in outbox("rules", "delete", "shop.*", "created", url=url).stderr
    listed = outbox("rules", "list", "--json", url=url).stdout
    assert json.loads(listed) == {"prefix": "shop.*", "event": "cancelled"}


def test_dead_events_are_listed_skipped_and_offered_again(box: Raw, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = new_id(), new_id()
    for run_id in (first, second):
        put(box, run_id, 2)
        make_dead(box, run_id)
    status = json.loads(outbox("status", "--json", url=url).stdout)
    assert {name: status[name] for name in ("waiting", "held_back", "dead")} == {
        "waiting": 0,
        "held_back": 2,
        "dead": 2,
    }
    listed = outbox("list", url=url).stdout
    assert listed.count("HTTP 410 \\x1b[31mgone") == 2
    assert outbox("list", url=url).stderr == ""
    monkeypatch.setattr("simpleworkflow.cli.outbox.events.MOST_DEAD", 1)
    cut = outbox("list", url=url)
    assert cut.stdout.count("HTTP 410") == 1
    assert "the oldest 1; simpleworkflow outbox status says how many" in cut.stderr
    done = outbox("skip", first, 1, "--reason", "moved", "--by", "ada", url=url)
    assert done.stdout == f"event 1 of run {first} is skipped; later ones of that run go out\n"
    row = rows(box, first)[0]
    assert (row["status"], row["skipped_by"], row["skip_reason"]) == ("skipped", "ada", "moved")
    assert outbox("replay", "--dead", url=url).stdout == "1 event is offered again\n"
    assert dispatched("--sink", "stdout:", url=url).stderr == "3 published\n"
    assert statuses(box, second) == ["published", "published"]


def test_a_line_with_a_secret_can_come_by_the_environment(box: Raw, url: str, tmp_path: Path) -> None:
    put(box, new_id(), 1)
    target = tmp_path / "events.jsonl"
    given = {"SIMPLEWORKFLOW_URL": url, "SIMPLEWORKFLOW_SINK": f"file:{target}"}
    done = CliRunner().invoke(main, ["outbox", "dispatch", "--once"], env=given)
    assert done.exit_code == 0, done.output
    assert len(target.read_text().splitlines()) == 1


def test_a_dispatcher_whose_reader_has_ended_ends_and_refuses_nothing(box: Raw, url: str) -> None:
    run_id = new_id()
    put(box, run_id, 3)
    reading, writing = os.pipe()
    os.close(reading)  # as head does
    arguments = [*COMMAND, "outbox", "dispatch", "--sink", "stdout:"]
    done = subprocess.run(
        arguments, env=environment(url), stdout=writing, stderr=subprocess.PIPE, text=True, timeout=20
    )
    os.close(writing)
    assert done.returncode == 1
    assert "nobody reads standard output any more; what was not taken waits" in done.stderr.splitlines()[-1]
    assert statuses(box, run_id) == ["waiting"] * 3
    assert "no dispatcher is alive" in outbox("status", url=url).stdout


def test_a_dispatcher_stops_when_told_to_and_gives_its_lanes_back(box: Raw, url: str, tmp_path: Path) -> None:
    target = tmp_path / "events.jsonl"
    process = subprocess.Popen(
        [*COMMAND, "outbox", "dispatch", "--sink", f"file:{target}"],
        env=environment(url),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        run_id = new_id()
        put(box, run_id, 3)
        until(lambda: statuses(box, run_id) == ["published"] * 3, "they are published")
        shown = outbox("status", url=url).stdout
        assert "serves 16 of 16 lanes 0123456789abcdef" in shown
        once = dispatched("--sink", "stdout:", url=url)
        assert "lanes are served by other dispatchers" in once.stderr
    finally:
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=20)
    assert process.returncode == 0, log
    assert "once more ends it at once" in log
    assert "3 published" in log
    assert box.sql("SELECT count(owner) AS n FROM workflow.outbox_lane")[0]["n"] == 0
    assert "no dispatcher is alive" in outbox("status", url=url).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["dispatch"], 2, "--sink"),
        (["dispatch", "--sink", "stdout:", "--keep", "soon"], 2, "soon"),
        (["replay"], 2, "say what to offer again"),
        (["replay", "--dead", "--since", "1h"], 2, "say what to offer again"),
        (["replay", "--dead", "--from", "2"], 2, "--from"),
        (["replay", NOBODY], 1, "there is no run"),
        (["replay", "xyz"], 2, "not the id of a run"),
        (["skip", NOBODY, "1"], 1, "there is no run"),
        (["skip", NOBODY, "0"], 2, "0"),
        (["list", NOBODY], 1, "there is no run"),
        (["rules", "add", "shop.*"], 2, "EVENT"),
        (["rules", "add", "shop.*", "exploded"], 2, "exploded"),
        (["rules", "add", "sh*p", "failed"], 1, "wildcard"),
    ],
)
def test_mistakes_are_told_in_a_sentence(tmp_path: Path, arguments: list[str], code: int, says: str) -> None:
    url = str(tmp_path / "a.db")
    app = swf.App(url)
    app.sync.doctor.check()
    app.sync.close()
    done = outbox(*arguments, url=url, code=code)
    assert says in done.stderr


def test_a_sink_that_is_no_place_is_told_without_its_password(box: Raw, url: str) -> None:
    done = command("outbox", "dispatch", "--sink", "pigeon://x:hunter2@y", "--once", url=url)
    assert done.returncode == 2
    assert "https://" in done.stderr
    assert "hunter2" not in done.stderr


def test_an_event_that_is_not_stuck_is_not_skipped(box: Raw, url: str) -> None:
    run_id = new_id()
    put(box, run_id, 1)
    assert "is waiting; only one that is dead or retried" in outbox("skip", run_id, 1, url=url, code=1).stderr
