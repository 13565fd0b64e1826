"""`simpleworkflow prune` as operators run it: what it asks, what it says, and that it can be killed at any point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from support.command import COMMAND, environment
from support.ledger import Raw
from support.old_runs import DAY, OWNED, ended, left, orphans, still_open
from support.terminal import Terminal, command
from support.waiting import until

import simpleworkflow as swf
from simpleworkflow.cli.maintenance.prune import prune


def call(*arguments: str, url: str, stdin: str = "") -> Result:
    """The command in this process: quicker than one of its own, which the last tests here have."""
    return CliRunner().invoke(prune, [*arguments, "--url", url], input=stdin)


@pytest.fixture
def old(url: str) -> Iterator[Raw]:
    """Two that succeeded and one that failed long ago, one that ended lately, one that is open."""
    app = swf.App(url)
    app.sync.doctor.check()
    app.sync.close()
    raw = Raw(url)
    for status in ("succeeded", "succeeded", "failed"):
        ended(raw, 40 * DAY, status=status, type="billing.pay.v1")
    ended(raw, 4 * DAY)
    still_open(raw, 50 * DAY)
    yield raw
    raw.close()


def test_a_dry_run_counts_by_kind_and_deletes_nothing(old: Raw, url: str) -> None:
    before = old.everything()
    done = call("--older-than", "30 days", "--dry-run", url=url)
    assert done.exit_code == 0
    assert "           2  billing.pay.v1  succeeded\n           1  billing.pay.v1  failed\n" in done.stdout
    assert "3 runs would be deleted" in done.stdout
    assert old.everything() == before


def test_with_yes_it_deletes_without_a_question(old: Raw, url: str) -> None:
    done = call("--older-than", "30 days", "--yes", url=url)
    assert done.exit_code == 0
    assert "3 runs deleted" in done.stdout
    assert len(left(old)) == 2
    assert orphans(old) == {}


@pytest.mark.parametrize(
    ("options", "goes"),
    [
        (["--status", "failed"], 1),
        (["--status", "failed", "--status", "succeeded"], 3),
        (["--prefix", "media.*"], 0),
        (["--prefix", "billing.*", "--prefix", "media.*"], 3),
    ],
)
def test_prefix_and_status_choose(old: Raw, url: str, options: list[str], goes: int) -> None:
    done = call("--older-than", "30 days", "--yes", "--json", *options, url=url)
    (line,) = done.stdout.splitlines()
    told = json.loads(line)
    assert told["pruned"] == goes
    assert told["dry_run"] is False
    assert set(told["kept"]) == {"open_parent", "unpublished_events", "newest_events", "locked"}
    assert len(left(old)) == 5 - goes


def test_deleted_runs_can_go_alone(old: Raw, url: str) -> None:
    ended(old, 40 * DAY, deleted=10 * DAY, type="media.cut.v1")
    still_open(old, 0.0)
    done = call("--deleted-older-than", "7 days", "--yes", "--json", url=url)
    assert json.loads(done.stdout)["by_type"] == [{"type": "media.cut.v1", "status": "succeeded", "runs": 1}]


def test_it_asks_with_the_count_and_no_keeps_everything(old: Raw, url: str) -> None:
    before = left(old)
    done = call("--older-than", "30 days", url=url, stdin="n\n")
    assert "Delete these 3 runs for good? [y/N]" in done.stderr
    assert done.exit_code == 1
    assert left(old) == before
    nobody = call("--older-than", "30 days", url=url)
    assert nobody.exit_code == 1
    assert left(old) == before
    agreed = call("--older-than", "30 days", url=url, stdin="y\n")
    assert agreed.exit_code == 0
    assert "3 runs deleted" in agreed.stdout


def test_on_a_terminal_it_shows_how_far_it_is(old: Raw, url: str) -> None:
    shown = Terminal("prune", "--older-than", "30 days", "--yes", url=url).end()
    assert shown.code == 0
    assert "deleting" in shown.text
    assert "3 runs deleted" in shown.text


def test_why_a_run_stays_is_told(old: Raw, url: str) -> None:
    ended(old, 40 * DAY, outbox="waiting")
    still_open(old, 0.0)
    done = call("--older-than", "30 days", "--yes", url=url)
    assert "1  old enough, but kept: they have events that are not published yet" in done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "--older-than"),
        (["--older-than", "30"], "no unit"),
        (["--older-than", "1 year"], "not understood"),
        (["--older-than", "1d", "--prefix", "a b"], "'a b' contains"),
        (["--older-than", "1d", "--status", "pending"], "pending"),
        (["--older-than", "1d", "--batch", "0"], "--batch"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_before_anything_is_opened(options: list[str], says: str) -> None:
    done = CliRunner().invoke(prune, [*options, "--yes", "--url", "nowhere/none.db"])
    assert done.exit_code == 2
    assert says in done.output


def test_a_file_that_is_not_there_is_not_made(tmp_path: object) -> None:
    done = command("prune", "--older-than", "1d", "--yes", "--url", f"{tmp_path}/none.db")
    assert done.returncode == 1
    assert "there is no database" in done.stderr
    assert not os.path.exists(f"{tmp_path}/none.db")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=lambda how: how.name)
def test_killed_in_the_middle_it_leaves_no_half_of_a_run(old: Raw, url: str, how: signal.Signals) -> None:
    for n in range(150):
        ended(old, 60 * DAY + n)
    still_open(old, 0.0)
    before = len(left(old))
    process = start(url, "--batch", "5")
    until(lambda: len(left(old)) < before or process.poll() is not None, "some are gone")
    process.send_signal(how)
    _, errors = process.communicate(timeout=30)
    rest = left(old)
    assert 6 < len(rest) < before, "it was in the middle"
    assert orphans(old) == {}
    for table in ("workflow_step", "workflow_signal", "workflow_event"):
        (whole,) = old.sql(f"SELECT count(DISTINCT {OWNED[table]}) AS runs FROM workflow.{table}")
        assert whole["runs"] == len(rest), f"{table} has something of every run that is left"
    if how is not signal.SIGKILL:
        assert "interrupted" in errors
        assert "for good" in errors
        assert "Traceback" not in errors
    again = call("--older-than", "30 days", "--yes", url=url)
    assert again.exit_code == 0
    assert len(left(old)) == 3
    assert orphans(old) == {}


def start(url: str, *options: str) -> subprocess.Popen[str]:
    command = [*COMMAND, "prune", "--older-than", "30 days", "--yes", *options]
    return subprocess.Popen(command, env=environment(url), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def test_several_commands_at_once_are_fine(old: Raw, url: str) -> None:
    for n in range(80):
        ended(old, 60 * DAY + n)
    still_open(old, 0.0)
    began = time.monotonic()
    for process in [start(url, "--batch", "5") for _ in range(3)]:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert len(left(old)) == 3, f"after {time.monotonic() - began:.1f} s"
    assert orphans(old) == {}
