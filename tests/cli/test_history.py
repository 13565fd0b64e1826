"""`simpleworkflow history`: the timeline and the words, from a past with fixed instants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from support import story
from support.ledger import Raw
from support.terminal import Terminal, assert_golden, command

import simpleworkflow as swf
from simpleworkflow.cli.history.timeline import Bar, Stretch, draw


@pytest.fixture
def told(url: str) -> Iterator[Raw]:
    app = swf.App(url)
    app.sync.doctor.check()
    app.sync.close()
    raw = Raw(url)
    story.tell(raw)
    yield raw
    raw.close()


def test_the_timeline_shows_when_each_step_and_wait_was_and_how_long(told: Raw, url: str) -> None:
    done = command("history", story.ORDER, url=url)
    assert done.returncode == 0
    assert_golden("history_order.txt", done.stdout)


def test_the_timeline_of_a_failure_shows_the_error_and_the_attempts(told: Raw, url: str) -> None:
    done = command("history", story.FAILED, url=url)
    assert_golden("history_failed.txt", done.stdout)
    assert "\x1b" not in done.stdout


def test_the_audit_trail_tells_who_held_the_run(told: Raw, url: str) -> None:
    done = command("history", story.ORDER, "--audit", url=url)
    assert_golden("history_audit.txt", done.stdout)
    lines = [
        json.loads(line) for line in command("history", story.ORDER, "--audit", "--json", url=url).stdout.splitlines()
    ]
    assert [line["type"] for line in lines][:3] == ["created", "leased", "step_retried"]


def test_the_history_as_json_is_raw(told: Raw, url: str) -> None:
    lines = [json.loads(line) for line in command("history", story.ORDER, "--json", url=url).stdout.splitlines()]
    assert [line["idx"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["type"] == "WorkflowStarted"
    assert lines[0]["details"]["input"] == {"order": 7}
    assert lines[2]["details"]["error"] == story.NASTY


def test_the_timeline_fits_a_terminal_and_has_colours_there(told: Raw, url: str) -> None:
    shown = Terminal("history", story.ORDER, url=url, width=80).end()
    assert shown.code == 0
    chart = [line for line in shown.text.splitlines() if "█" in line or "░" in line]
    assert len(chart) == 6
    assert max(map(len, chart)) <= 80 + len("  1 failed attempt")
    assert "\x1b[32m" in shown.raw


def test_a_run_that_has_not_started_has_a_history_without_bars(told: Raw, url: str) -> None:
    done = command("history", story.LATER, url=url)
    assert done.returncode == 0
    assert "WorkflowStarted" in done.stdout
    assert "on a worker" not in done.stdout


def test_bars_never_vanish_and_never_leave_the_chart() -> None:
    def at(seconds: float) -> Stretch:
        return Stretch(story.START + timedelta(seconds=seconds), story.START + timedelta(seconds=seconds))

    end = story.START + timedelta(hours=1)
    bars = [Bar(f"s{n}", [at(second)], False, False, "", "") for n, second in enumerate((-5, 0, 1800, 3600))]
    lines = [line.plain for line in draw(bars, story.START, end, 80, ascii_only=True)]
    assert [line.count("#") for line in lines] == [0, 1, 1, 1, 1]
    assert len({len(line) for line in lines[1:]}) == 1


def test_letters_that_a_terminal_lacks_are_replaced(told: Raw, url: str) -> None:
    import subprocess

    from support.command import COMMAND, environment

    with told.without_triggers("workflow_run"):  # an outcome stays
        told.put_as_ours(story.FAILED, last_error="größer")
    env = environment(url, PYTHONIOENCODING="ascii")
    done = subprocess.run([*COMMAND, "history", str(story.FAILED)], capture_output=True, text=True, env=env, check=True)
    assert "gr\\xf6\\xdfer" in done.stdout
    assert "##" in done.stdout
