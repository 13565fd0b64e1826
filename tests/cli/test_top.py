"""`simpleworkflow top`, and `completion`: the live screen, one look for scripts, and what a look may cost."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest
from support import story
from support.command import COMMAND, environment
from support.ledger import Raw
from support.terminal import Terminal, assert_golden, command

import simpleworkflow as swf
from simpleworkflow.cli.top import snapshots as module
from simpleworkflow.cli.top.snapshots import Counts, Looker, rates_of
from simpleworkflow.model.records import Pulse
from simpleworkflow.model.states import EventType
from simpleworkflow.store.url import parse_url


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    opened = swf.App(url)
    opened.sync.doctor.check()
    yield opened
    opened.sync.close()


def test_one_look_prints_counts_rates_lateness_and_workers(app: swf.App, url: str) -> None:
    raw = Raw(url)
    story.tell(raw)
    raw.close()
    done = command("top", "--interval", "0.1", url=url)
    assert done.returncode == 0
    assert_golden("top.txt", re.sub(r"counted \S+ ago in \S+;", "counted (then);", done.stdout))


def test_one_look_as_json_names_the_run_that_waits_longest(app: swf.App, url: str) -> None:
    raw = Raw(url)
    waiting = app.sync.trigger("test.late.v1").id
    app.sync.trigger("test.soon.v1", delay="1h")
    raw.age(waiting, 60)
    raw.close()
    look = json.loads(command("top", "--once", "--json", "--interval", "0.1", url=url).stdout)
    assert 60 <= look["late"] < 120
    assert look["late_type"] == "test.late.v1"
    assert look["workers"] == 0
    assert {"type": "test.late.v1", "status": "pending", "runs": 1} in look["counts"]


def test_the_live_screen_shows_what_happens_and_ctrl_c_exits_with_0(app: swf.App, url: str) -> None:
    top = Terminal("top", "--interval", "0.1", url=url, width=110, height=30).until("no run is due")
    app.sync.trigger("test.new.v1")
    shown = top.until("test.new.v1").interrupt().end()
    assert shown.code == 0
    assert "\x1b[?1049l" in shown.raw, "the screen is given back"


def test_a_terminal_that_cannot_move_its_cursor_gets_one_look_below_the_other(app: swf.App, url: str) -> None:
    top = Terminal("top", "--interval", "100ms", url=url, width=110, height=30, term="dumb")
    top.until("no run is due").until("every 100ms, Ctrl-C ends")
    app.sync.trigger("test.new.v1")
    shown = top.until("test.new.v1").interrupt().end()
    assert shown.code == 0
    assert "\x1b" not in shown.raw


def test_the_title_names_the_database_without_its_password(app: swf.App, url: str, backend: str) -> None:
    shown = Terminal("top", "--interval", "0.1", url=url, width=300, height=30).until("no run is due").interrupt().end()
    assert f"simpleworkflow top  {parse_url(url)}  " in shown.text
    assert "<App" not in shown.text


def test_rates_are_events_per_second() -> None:
    events = {EventType.CREATED: 10, EventType.SUCCEEDED: 6, EventType.FAILED: 2, EventType.STARTED: 99}
    assert rates_of(Pulse(1, events, False, None, None), 2.0) == {
        "triggered": 5.0,
        "finished": 4.0,
        "failed": 1.0,
        "retried": 0.0,
    }


async def test_counting_takes_a_twentieth_of_the_time_at_most(
    app: swf.App, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    looker = Looker(app, counts=Counts([], at=now, took=2.0))
    looker.count_in_background()
    assert looker._counting is None, "two seconds of counting pay for forty of rest"
    now += 39
    looker.count_in_background()
    assert looker._counting is None
    now += 2
    looker.count_in_background()
    assert looker._counting is not None
    await looker._counting
    assert looker.counts is not None
    assert looker.counts.at == now


async def test_a_pulse_counts_only_what_came_since_the_one_before(app: swf.App) -> None:
    await app.trigger("test.a.v1")
    start = await app.activity.pulse()
    assert (start.events, start.late_type) == ({}, "test.a.v1")
    await app.trigger_many("test.a.v1", [1, 2, 3])
    pulse = await app.activity.pulse(start.last_event)
    assert pulse.events == {EventType.CREATED: 3}
    assert (await app.activity.pulse(pulse.last_event)).events == {}


# completion.


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_both_names(shell: str) -> None:
    done = command("completion", shell)
    assert done.returncode == 0
    assert "_SIMPLEWORKFLOW_COMPLETE" in done.stdout
    assert "_SWF_COMPLETE" in done.stdout


def test_the_command_answers_the_completion_script() -> None:
    more = {"_SIMPLEWORKFLOW_COMPLETE": "bash_complete", "COMP_WORDS": "simpleworkflow runs ca", "COMP_CWORD": "2"}
    entry = [COMMAND[0], "-c", "from simpleworkflow.cli import main; main(prog_name='simpleworkflow')"]
    done = subprocess.run(entry, capture_output=True, text=True, env=environment(**more), check=False)
    assert done.stdout == "plain,cancel\n"


def test_a_shell_without_completion_is_a_mistake() -> None:
    done = command("completion", "tcsh")
    assert done.returncode == 2
    assert "'tcsh' is not one of" in done.stderr
