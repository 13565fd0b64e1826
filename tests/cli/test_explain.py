"""`simpleworkflow explain` as operators run it: a real process on a real database, in a pipe and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from uuid import UUID

import pytest
from support.ledger import Raw

import simpleworkflow as swf

COMMAND = [sys.executable, "-m", "simpleworkflow"]
FIRST, SECOND = "abcdef01-0000-7000-8000-000000000001", "abcdef01-0000-7000-8000-000000000002"
MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    opened = swf.App(url)
    opened.sync.doctor.check()
    yield opened
    opened.sync.close()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, "explain", *arguments], capture_output=True, text=True, timeout=60)


def family(app: swf.App, url: str) -> None:
    """A parent that waits for its child, which waits for a signal."""
    app.sync.trigger("shop.order.v1", id=FIRST)
    app.sync.trigger("shop.pay.v1", id=SECOND)
    raw = Raw(url)
    for run_id, kind, step_id in ((FIRST, "result", f"@result {SECOND}#0"), (SECOND, "signal", "paid#0")):
        raw.pause(UUID(run_id))
        raw.put_as_ours(UUID(run_id), parent_id=FIRST if run_id == SECOND else None)
        raw.sql(
            "INSERT INTO workflow.workflow_step (run_id, seq, lease_epoch, kind, status, step_id, started_at)"
            f" VALUES (?, 1, 0, ?, 'waiting', ?, {raw.now})",
            run_id,
            kind,
            step_id,
        )
    raw.close()


TREE = f"""\
run {FIRST} (shop.order.v1) is paused and waits for child run {SECOND} (shop.pay.v1), \
which is paused and waits for signal 'paid' since T
  status     paused
  created    T
  waits for  child run {SECOND} since T
  due        as soon as what it waits for has come
  priority   100
  served by  nobody; alive: none at all

    run {SECOND} (shop.pay.v1) is paused and waits for signal 'paid' since T
      status     paused
      created    T
      parent     {FIRST}
      waits for  signal 'paid' since T
      due        as soon as what it waits for has come
      priority   100
      served by  nobody; alive: none at all
"""


def test_the_sentence_comes_first_then_the_details_then_the_children(app: swf.App, url: str) -> None:
    family(app, url)
    done = run(FIRST, "--url", url)
    assert (done.returncode, done.stderr) == (0, "")
    assert MOMENT.sub("T", done.stdout) == TREE


def test_json_tells_the_same_to_programs(app: swf.App, url: str) -> None:
    family(app, url)
    done = run(FIRST, "--url", url, "--json")
    (line,) = done.stdout.splitlines()
    told = json.loads(line)
    assert (told["run_id"], told["type"], told["status"]) == (FIRST, "shop.order.v1", "paused")
    assert told["reason"] == "waiting_for_child"
    assert {"label": "priority", "value": "100"} in told["details"]
    (child,) = told["children"]
    assert (child["run_id"], child["reason"], child["children"]) == (SECOND, "waiting_for_signal", [])
    assert told["sentence"] == app.sync.explain(FIRST)


def test_the_beginning_of_an_id_is_enough_when_it_means_one_run(app: swf.App, url: str) -> None:
    app.sync.trigger("shop.pay.v1", id=SECOND)
    assert f"run {SECOND} (shop.pay.v1)" in run("abcdef01-00", "--url", url).stdout
    app.sync.trigger("shop.order.v1", id=FIRST)
    several = run("ABCDEF01", "--url", url)
    assert (several.returncode, several.stdout) == (1, "")
    assert "several runs have ids that begin with abcdef01; which one?" in several.stderr
    assert f"{FIRST}  shop.order.v1  pending" in several.stderr
    assert f"{SECOND}  shop.pay.v1  pending" in several.stderr


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("01234567-89ab-7def-8123-456789abcdef", 1, "there is no run 01234567-89ab-7def-8123-456789abcdef"),
        ("01234567", 1, "there is no run whose id begins with 01234567"),
        ("0123456", 2, "'0123456' is not the id of a run; give the whole id or at least its first 8 digits"),
        ("order-4711", 2, "is not the id of a run"),
        ("abcdef01-0000-7000-8000-0000000000012", 2, "is not the id of a run"),
        ("\x1b[31mred", 2, "'\\x1b[31mred' is not the id of a run"),
    ],
)
def test_a_wrong_id_ends_in_a_sentence_and_its_exit_code(
    app: swf.App, url: str, text: str, code: int, says: str
) -> None:
    done = run(text, "--url", url)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_terminal_gets_colours_and_never_somebody_elses_escapes(app: swf.App, url: str) -> None:
    app.sync.trigger("shop.pay.v1", id=SECOND)
    app.sync.hold(SECOND, reason="\x1b]0;owned\x07 [bold]not markup[/bold]")
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [*COMMAND, "explain", SECOND, "--url", url], stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 4096):
            shown += chunk
    except OSError:
        pass  # how a terminal says that its other end is closed
    os.close(leader)
    assert process.wait(30) == 0
    assert b"\x1b[" in shown, "colours, on a terminal"
    assert b"\x1b]" not in shown
    assert b"\\x1b]0;owned\\x07 [bold]not markup[/bold]" in shown


def test_help_says_what_the_command_does(app: swf.App) -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "Say where a run stands and why" in done.stdout
