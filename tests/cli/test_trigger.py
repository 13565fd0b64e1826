"""`simpleworkflow trigger`: what a shell gets back, and what each mistake is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from support.terminal import Terminal, command

import simpleworkflow as swf


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    opened = swf.App(url)
    opened.sync.doctor.check()
    yield opened
    opened.sync.close()


def test_a_trigger_prints_the_id_and_nothing_else(app: swf.App, url: str) -> None:
    done = command("trigger", "test.a.v1", '{"n": 1}', url=url)
    assert (done.returncode, done.stderr) == (0, "")
    run = app.sync.get(UUID(done.stdout.strip()))
    assert (run.type, run.payload) == ("test.a.v1", {"n": 1})
    assert app.sync.get(command("trigger", "test.a.v1", url=url).stdout.strip()).payload is None


def test_a_payload_comes_from_standard_input_or_a_file(app: swf.App, url: str, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('["é"]')
    from_file = command("trigger", "test.a.v1", f"@{file}", url=url).stdout.strip()
    assert app.sync.get(from_file).payload == ["é"]
    piped = command("trigger", "test.a.v1", "-", "--json", url=url, stdin="[2]")
    told = json.loads(piped.stdout)
    assert told["is_new"] is True
    assert app.sync.get(told["id"]).payload == [2]


def test_every_option_reaches_the_run(app: swf.App, url: str) -> None:
    chosen = UUID("01900000-0000-7000-8000-00000000000a")
    options = ["--id", chosen, "--key", "k1", "--priority", "7", "--max-attempts", "5"]
    when = ["--at", "2040-01-01T00:00Z", "--start-by", "2040-01-01T01:00+00:00"]
    assert command("trigger", "test.a.v1", *options, *when, url=url).stdout == f"{chosen}\n"
    run = app.sync.get(chosen)
    assert (run.idempotency_key, run.priority, run.max_attempts) == ("k1", 7, 5)
    assert run.run_at is not None
    assert run.run_at.isoformat() == "2040-01-01T00:00:00+00:00"
    assert run.start_by is not None
    assert (run.start_by - run.run_at).total_seconds() == 3600
    later = app.sync.get(command("trigger", "test.a.v1", "--delay", "1h", "--start-by", "10m", url=url).stdout.strip())
    assert later.run_at is not None
    assert later.start_by is not None
    assert (later.run_at - later.created_at).total_seconds() == 3600
    assert (later.start_by - later.run_at).total_seconds() == 600
    again = command("trigger", "test.a.v1", "--key", "k1", url=url)
    assert again.stdout == f"{chosen}\n"
    assert "nothing new was created" in again.stderr
    other = command("trigger", "test.a.v1", "2", "--key", "k1", url=url)
    assert other.returncode == 1
    assert "which has another payload" in other.stderr


async def double(ctx: swf.Context, n: int) -> int:
    return 2 * n


async def fail(ctx: swf.Context) -> None:
    raise swf.PermanentError("no \x1b[31mstock")


def test_waiting_prints_the_result_or_exits_with_1_and_the_reason(app: swf.App, url: str) -> None:
    app.workflow("test.double.v1")(double)
    app.workflow("test.fail.v1")(fail)
    with app.sync.worker():
        good = command("trigger", "test.double.v1", "21", "--wait", url=url)
        bad = command("trigger", "test.fail.v1", "--wait", url=url)
        as_json = command("trigger", "test.fail.v1", "--wait", "--json", url=url)
    assert (good.returncode, good.stdout) == (0, "42\n")
    assert good.stderr.startswith("run ")
    assert (bad.returncode, bad.stdout) == (1, "")
    assert "(test.fail.v1) failed: PermanentError: no \\x1b[31mstock" in bad.stderr
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["status"] == "failed"


def test_waiting_too_long_exits_with_1_and_says_what_the_run_waits_for(app: swf.App, url: str) -> None:
    done = command("trigger", "test.nobody.v1", "--wait-timeout", "200ms", url=url)
    assert done.returncode == 1
    assert "not finished after 200ms" in done.stderr
    assert "no live worker serves its type" in done.stderr
    assert [run.status for run in app.sync.runs(type="test.nobody.v1")] == ["pending"], "the run goes on"


def test_ctrl_c_stops_the_waiting_and_names_the_run(app: swf.App, url: str) -> None:
    shown = Terminal("trigger", "test.nobody.v1", "--wait", url=url).until("run ").interrupt().end()
    assert shown.code == 1
    (run,) = app.sync.runs(type="test.nobody.v1")
    assert f"stopped waiting; the run goes on: {run.id}" in shown.text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a b"], "workflow type 'a b' contains ' '"),
        (["a.v1", "hello"], "text needs its own quotes"),
        (["a.v1", "@nowhere.json"], "PAYLOAD cannot be read from 'nowhere.json': No such file"),
        (["a.v1", "--at", "2030-01-01T00:00"], "has no time zone; write 2030-01-01T00:00Z for UTC"),
        (["a.v1", "--delay", "1h", "--at", "2030-01-01T00:00Z"], "give --delay or --at, not both"),
        (["a.v1", "--start-by", "soon"], "'soon' is neither a duration"),
        (["a.v1", "--start-by", "2020-01-01T00:00Z"], "is not after the run is due"),
        (["a.v1", "--id", "x"], "'x' is not a valid UUID"),
        (["a.v1", "--priority", "1000"], "1000 is not in the range"),
        ([], "Missing argument 'TYPE'"),
    ],
)
def test_a_trigger_called_wrongly_exits_with_2(arguments: list[str], sentence: str) -> None:
    done = command("trigger", *arguments)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())


def test_a_missing_file_is_not_made_by_looking_for_it(tmp_path: Path) -> None:
    place = tmp_path / "nowhere.db"
    for arguments in (["trigger", "a.v1"], ["runs", "list"], ["events"], ["workers"], ["top", "--once"]):
        done = command(*arguments, url=str(place))
        assert done.returncode == 1
        assert f"there is no database at {place}" in done.stderr
        assert "simpleworkflow migrate up" in done.stderr
    assert not place.exists()
