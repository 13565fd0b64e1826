"""`simpleworkflow runs …` as operators run it: listing, showing, watching, and changing runs, on both databases."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest
from support import story
from support.ledger import Raw
from support.terminal import Terminal, assert_golden, command

import simpleworkflow as swf

NOBODY = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    opened = swf.App(url)
    opened.sync.doctor.check()
    yield opened
    opened.sync.close()


@pytest.fixture
def told(app: swf.App, url: str) -> Iterator[Raw]:
    """A database with the story of tests/support/story.py."""
    raw = Raw(url)
    story.tell(raw)
    yield raw
    raw.close()


@pytest.mark.parametrize(
    "words", [["runs", "list"], ["trigger", "t.any.v1"], ["explain", NOBODY], ["top", "--once"]], ids=" ".join
)
def test_the_file_of_another_program_is_left_alone(tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "albums.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE album (title text)")
    before = file.read_bytes()
    done = command(*words, url=str(file))
    assert done.returncode == 1
    assert "has no tables of simpleworkflow" in done.stderr
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["albums.db"]


# list.


def test_a_listing_in_a_pipe_is_whole_and_obeys_nothing_that_a_payload_says(told: Raw, url: str) -> None:
    done = command("runs", "list", url=url)
    assert done.returncode == 0
    assert_golden("runs_list.txt", done.stdout)
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout


def test_a_listing_fits_a_narrow_terminal(told: Raw, url: str) -> None:
    shown = Terminal("runs", "list", url=url, width=110).end()
    assert shown.code == 0
    lines = shown.text.splitlines()
    assert len(lines) == 6
    assert max(map(len, lines)) <= 110
    assert all(str(run_id) in shown.text for run_id in (story.ORDER, story.FAILED)), "ids are never shortened"
    assert "…" in shown.text
    assert "\x1b[31mfailed" in shown.raw, "states have colours there"
    assert "\x1b[31mdeclined" not in shown.raw


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--type", "shop.ship.v1"], [story.CHILD]),
        (["--prefix", "shop.*", "--status", "failed", "--status", "pending"], [story.HELD, story.FAILED]),
        (["--held"], [story.HELD]),
        (["--key", "order-8"], [story.HELD]),
        (["--limit", "2"], [story.LATER, story.HELD]),
        (["--before", str(story.HELD), "--limit", "1"], [story.FAILED]),
        (["--since", "2030-01-31T12:00:30Z"], [story.LATER, story.HELD]),
        (["--until", "2030-01-31T12:00:01Z"], [story.ORDER]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and isinstance(value[0], str) else "",
)
def test_filters_of_a_listing_combine(told: Raw, url: str, filters: list[str], found: list[UUID]) -> None:
    done = command("runs", "list", "--ids", *filters, url=url)
    assert done.stdout.split() == [str(run_id) for run_id in found]


def test_a_listing_says_when_there_is_more_and_as_json_has_everything(told: Raw, url: str) -> None:
    done = command("runs", "list", "--json", "--limit", "4", url=url)
    assert f"go on with --before {story.CHILD}" in done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert runs[0]["id"] == str(story.LATER)
    assert runs[2]["last_error"] == f"ValueError: {story.NASTY}", "escapes in JSON are the same text"
    everything = command("runs", "list", "--limit", "0", url=url)
    assert len(everything.stdout.splitlines()) == 6
    assert everything.stderr == ""


def test_a_reader_that_leaves_early_is_no_error(told: Raw, url: str) -> None:
    import subprocess

    from support.command import COMMAND, environment

    line = " ".join([*COMMAND, "runs", "list", "--json", "--limit", "0"])
    shell = f"for i in 1 2 3; do {line}; done | head -n 1"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, env=environment(url), check=False)
    assert json.loads(done.stdout)["id"] == str(story.LATER)
    assert done.stderr == ""


# show.


def test_a_page_about_a_run_tells_everything(told: Raw, url: str) -> None:
    done = command("runs", "show", story.ORDER, url=url)
    assert done.returncode == 0
    assert_golden("runs_show.txt", done.stdout)


def test_a_page_as_json_has_steps_signals_and_children(told: Raw, url: str) -> None:
    page = json.loads(command("runs", "show", story.ORDER, "--json", url=url).stdout)
    assert page["payload"] == {"order": 7}
    assert [step["step_id"] for step in page["steps"]][:2] == ["charge#0", "@sleep#0"]
    assert [(signal["name"], signal["payload"]) for signal in page["signals"]] == [("approve", "yes")]
    assert [child["id"] for child in page["children"]] == [str(story.CHILD)]
    assert str(story.ORDER) in page["explain"]


def test_long_values_are_cut_unless_asked_for_in_full(app: swf.App, url: str) -> None:
    run = app.sync.trigger("test.long.v1", {"items": list(range(60)), "text": "x" * 2_000})
    short = command("runs", "show", run.id, url=url).stdout
    assert "more lines; --full shows them" in short
    full = command("runs", "show", run.id, "--full", url=url).stdout
    assert "x" * 2_000 in full
    assert "--full" not in full


def test_an_error_is_shown_as_a_traceback_and_children_by_their_keys(app: swf.App, url: str) -> None:
    @app.workflow("test.ship.v1")
    async def ship(ctx: swf.Context, parcel: str) -> None: ...

    @app.workflow("test.broken.v1", retry=swf.Retry(max_attempts=1))
    async def broken(ctx: swf.Context) -> None:
        for number in range(5):
            await ctx.set_value("progress", number)
        await ctx.run(ship, "a", key="left")
        child = await ctx.trigger(ship, "b", key="right")
        await child.result()
        try:
            raise OSError("no \x1b[31mroute")
        except OSError as error:
            raise ValueError("no stock") from error

    with app.sync.worker():
        run = app.sync.trigger(broken)
        with pytest.raises(swf.RunFailed):
            run.result("20s")
    shown = command("runs", "show", run.id, "--full", url=url).stdout
    _, _, error = shown.partition("\ntraceback\n")
    assert "  Traceback (most recent call last):\n    File " in error
    assert '\n      raise OSError("no' in error
    assert "\n  OSError: no \\x1b[31mroute\n\n  The exception above led to this one:" in error
    assert "\n  ValueError: no stock\n" in error
    assert "\\n" not in error
    assert [line.split()[:4] for line in shown.splitlines() if "@publish progress" in line] == [
        ["@publish", "progress", "publish", "succeeded"]
    ]
    assert " 5 " not in next(line for line in shown.splitlines() if "@publish progress" in line)
    for key in ("left", "right"):
        assert f"child test.ship.v1#={key} " in shown
    page = json.loads(command("runs", "show", run.id, "--json", url=url).stdout)
    assert page["error"]["traceback"].startswith("Traceback (most recent call last):")
    assert page["error"]["cause"]["traceback"].endswith("OSError: no \x1b[31mroute\n")


@pytest.mark.parametrize("what", [["runs", "show"], ["runs", "watch"], ["history"], ["runs", "signal"]])
def test_a_run_that_does_not_exist_is_one_sentence(app: swf.App, url: str, what: list[str]) -> None:
    more = ["go"] if what[-1] == "signal" else []
    done = command(*what, NOBODY, *more, url=url)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: there is no run {NOBODY}")
    assert len(done.stderr.splitlines()) == 1
    wrong = command(*what, "nonsense", *more, url=url)
    assert wrong.returncode == 2
    assert "'nonsense' is not the id of a run" in wrong.stderr


# cancel, hold, resume, retry, delete, signal.


def test_each_run_gets_its_own_answer_and_a_refusal_stops_no_other(told: Raw, app: swf.App, url: str) -> None:
    first, second = app.sync.trigger("test.a.v1").id, app.sync.trigger("test.a.v1").id
    reason = "[bold]over"
    done = command("runs", "cancel", first, story.FAILED, NOBODY, "nonsense", second, "--reason", reason, url=url)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [f"{first} cancelled", f"{second} cancelled"]
    assert f"refused: run {story.FAILED} (shop.refund.v1) has already failed (" in done.stderr
    assert "); it cannot be cancelled" in done.stderr
    assert f"refused: there is no run {NOBODY}" in done.stderr
    assert "'nonsense' is not the id of a run" in done.stderr
    assert app.sync.get(first).last_error == reason
    again = command("runs", "cancel", first, story.FAILED, "--json", url=url)
    assert again.returncode == 1
    lines = [json.loads(line) for line in again.stdout.splitlines()]
    assert lines[0] == {"id": str(first), "status": "cancelled", "is_held": False, "is_deleted": False}
    assert "cannot be cancelled" in lines[1]["error"]


def test_hold_resume_retry_and_delete_say_what_each_run_became(told: Raw, app: swf.App, url: str) -> None:
    run = app.sync.trigger("test.a.v1").id
    assert command("runs", "hold", run, "--reason", "look", url=url).stdout == f"{run} pending held\n"
    assert app.sync.get(run).hold_reason == "look"
    assert command("runs", "resume", run, url=url).stdout == f"{run} pending\n"
    assert command("runs", "retry", story.FAILED, url=url).stdout == f"{story.FAILED} pending\n"
    assert command("runs", "delete", run, "--yes", url=url).stdout == f"{run} cancelled deleted\n"
    refused = command("runs", "retry", run, url=url)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "was deleted; it cannot be retried" in refused.stderr


def test_delete_asks_first_and_does_nothing_unless_told_yes(told: Raw, app: swf.App, url: str) -> None:
    refused = Terminal("runs", "delete", story.HELD, story.LATER, url=url)
    shown = refused.until("Delete these 2 runs?").type("n\n").end()
    assert shown.code == 1
    assert app.sync.get(story.HELD).status == "pending"
    agreed = Terminal("runs", "delete", story.HELD, url=url).until("Delete this run?").type("y\n").end()
    assert agreed.code == 0
    assert f"{story.HELD} cancelled deleted" in agreed.text
    nobody = command("runs", "delete", "-", url=url, stdin=str(story.LATER))
    assert nobody.returncode == 2
    assert "add --yes" in nobody.stderr
    assert app.sync.get(story.LATER).deleted_at is None


def test_many_ids_come_from_standard_input_in_order(app: swf.App, url: str) -> None:
    runs = [handle.id for handle in app.sync.trigger_many("test.a.v1", [None] * 70)]
    done = command("runs", "cancel", "-", url=url, stdin="\n".join(map(str, [*runs, runs[0]])))
    assert done.returncode == 0
    assert done.stdout.splitlines() == [f"{run} cancelled" for run in runs], "each once"
    assert {run.status for run in app.sync.runs(type="test.a.v1")} == {"cancelled"}


def test_many_runs_show_a_bar_on_a_terminal_and_none_in_a_pipe(app: swf.App, url: str) -> None:
    runs = [handle.id for handle in app.sync.trigger_many("test.a.v1", [None] * 60)]
    shown = Terminal("runs", "cancel", *runs, url=url).end()
    assert shown.code == 0
    assert "60/60" in shown.text
    assert all(f"{run} cancelled" in shown.text for run in runs)
    assert "/60" not in command("runs", "cancel", *runs, url=url).stderr


def test_a_signal_is_sent_with_its_payload(app: swf.App, url: str) -> None:
    run = app.sync.trigger("test.a.v1").id
    done = command("runs", "signal", run, "go", '{"by": "ann"}', url=url)
    (signal,) = app.sync.handle(run).signals()
    assert (signal.name, signal.payload) == ("go", {"by": "ann"})
    assert done.stdout == f"{signal.id}\n"
    piped = command("runs", "signal", run, "go", "-", "--json", url=url, stdin="[1]")
    assert json.loads(piped.stdout)["run_id"] == str(run)
    assert app.sync.handle(run).signals()[-1].payload == [1]
    wrong = command("runs", "signal", run, "go", "hello", url=url)
    assert wrong.returncode == 2
    assert "text needs its own quotes" in wrong.stderr
    app.sync.cancel(run)
    late = command("runs", "signal", run, "go", url=url)
    assert late.returncode == 1
    assert "the signal 'go' was not accepted" in late.stderr


# watch.


async def wait_for_go(ctx: swf.Context) -> str:
    return await ctx.wait_for_signal("go", str)


async def fail_at_once(ctx: swf.Context) -> None:
    raise swf.PermanentError("no [bold]\x1b[31mstock")


def test_watching_without_a_terminal_prints_a_line_per_change(app: swf.App, url: str) -> None:
    app.workflow("test.go.v1")(wait_for_go)
    with app.sync.worker():
        handle = app.sync.trigger("test.go.v1")
        handle.signal("go", "now")
        done = command("runs", "watch", handle.id, "--interval", "0.05", url=url)
    assert done.returncode == 0
    words = re.findall(r"^ +\+\S+(?: \S+)?  (\w+)", done.stdout, re.MULTILINE)
    assert words[0] == "WorkflowStarted"
    assert "SignalReceived" in words
    assert words[-1] == "WorkflowCompleted"
    assert f"run {handle.id} (test.go.v1) succeeded" in done.stdout.splitlines()[-1]
    as_json = command("runs", "watch", handle.id, "--json", url=url)
    assert json.loads(as_json.stdout.splitlines()[-1])["status"] == "succeeded"


def test_watching_a_run_that_fails_exits_with_1(app: swf.App, url: str) -> None:
    app.workflow("test.fail.v1")(fail_at_once)
    with app.sync.worker():
        done = command("runs", "watch", app.sync.trigger("test.fail.v1").id, url=url)
    assert done.returncode == 1
    assert "no [bold]\\x1b[31mstock" in done.stdout
    assert "\x1b" not in done.stdout


def test_watching_on_a_terminal_lives_until_the_run_ends(app: swf.App, url: str) -> None:
    app.workflow("test.go.v1")(wait_for_go)
    with app.sync.worker():
        handle = app.sync.trigger("test.go.v1")
        watch = Terminal("runs", "watch", handle.id, "--interval", "0.05", url=url, width=160)
        watch.until("waits for signal 'go'")
        handle.signal("go", "now")
        shown = watch.until("WorkflowCompleted").end()
    assert shown.code == 0
    assert "succeeded" in shown.text


def test_ctrl_c_stops_watching_and_not_the_run(app: swf.App, url: str) -> None:
    handle = app.sync.trigger("test.nobody.v1")
    shown = Terminal("runs", "watch", handle.id, url=url).until("WorkflowStarted").interrupt().end()
    assert shown.code == 1
    assert "stopped watching" in shown.text
    assert handle.get().status == "pending"


# Mistakes.


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["list", "--status", "done"], "'done' is not one of 'pending', 'leased', 'paused'"),
        (["list", "--since", "yesterday"], "'yesterday' is neither a duration such as 10m nor ISO 8601"),
        (["list", "--since", "2030-01-01"], "has no time zone; write 2030-01-01Z"),
        (["list", "--prefix", "a b."], "type prefix"),
        (["list", "--limit", "-1"], "-1 is not in the range"),
        (["cancel"], "Missing argument 'RUN...|-'"),
        (["dance"], "there is no command 'runs dance'"),
    ],
)
def test_a_runs_command_called_wrongly_exits_with_2(arguments: list[str], sentence: str) -> None:
    done = command("runs", *arguments)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())


@pytest.mark.parametrize("is_grouped", [False, True])
def test_the_traceback_of_a_step_comes_before_that_of_the_run_that_it_failed(
    app: swf.App, url: str, is_grouped: bool
) -> None:
    async def charge() -> None:
        raise ValueError("no such card")

    @app.workflow("test.broken.v1", retry=swf.Retry(max_attempts=1))
    async def broken(ctx: swf.Context) -> None:
        once = swf.step(retry=swf.Retry(max_attempts=1))(charge)
        if not is_grouped:
            await ctx.step(once)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.step(once))

    with app.sync.worker():
        run = app.sync.trigger(broken)
        with pytest.raises(swf.RunFailed):
            run.result("20s")
    shown = command("runs", "show", run.id, "--full", url=url).stdout
    fields, _, error = shown.partition("\ntraceback\n")
    assert error.index('raise ValueError("no such card")') < error.index("The exception above led to this one:")
    assert error.index("The exception above led to this one:") < error.index("StepFailed: step charge failed")
    assert "Traceback" not in fields
