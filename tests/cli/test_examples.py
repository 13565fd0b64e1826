"""The examples run as their readers will run them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import until

import simpleworkflow as swf
from simpleworkflow.model.states import Status

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(program: str, *arguments: str, url: str, cwd: Path, fails_with: str = "") -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "SIMPLEWORKFLOW_URL": url},
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    if fails_with:
        assert done.stderr.splitlines()[-1].endswith(fails_with)  # a run that ends failed is an error in the log
    else:
        assert done.stderr == ""
    return done.stdout


def first_example() -> str:
    """The first code block of the README, as its reader will paste it."""
    text = (EXAMPLES.parent / "README.md").read_text()
    return text.partition("```python\n")[2].partition("```")[0]


COUNTED_CHOICES = """
import functools, os, random

real = random.choice


@functools.wraps(real)
def choice(options):
    with open(os.environ["CHOICES"], "a") as told:
        print("chosen", file=told)
    return real(options)


random.choice = choice
"""


@pytest.fixture
def first(tmp_path: Path, url: str) -> tuple[list[str], dict[str, str]]:
    """The example as a script with a shorter sleep, in a folder of its own; every random choice leaves a line."""
    text = first_example()
    assert text.count('"10s"') == 1
    (tmp_path / "example.py").write_text(text.replace('"10s"', '"2s"'))
    (tmp_path / "sitecustomize.py").write_text(COUNTED_CHOICES)
    where = url if "://" in url else ""  # SQLite: as the README has it, ./simpleworkflow.db
    environment = {"SIMPLEWORKFLOW_URL": where, "PYTHONPATH": str(tmp_path), "CHOICES": str(tmp_path / "choices")}
    return [sys.executable, "example.py"], {**os.environ, **environment}


def test_the_first_example_goes_on_with_the_same_word_after_a_kill(
    first: tuple[list[str], dict[str, str]], url: str, tmp_path: Path
) -> None:
    command, environment = first
    app = swf.App(url if "://" in url else str(tmp_path / "simpleworkflow.db"))
    victim = subprocess.Popen(command, env=environment, cwd=tmp_path)

    def is_asleep() -> bool:
        return any(run.status is Status.PAUSED for run in app.sync.runs(type="demo.greet.v1"))

    try:
        until(is_asleep, "it sleeps")
    finally:
        victim.kill()
        victim.wait()
    (run,) = app.sync.runs(type="demo.greet.v1")
    (word,) = [line.details["result"] for line in app.sync.handle(run.id).history() if line.type == "ActivityCompleted"]
    for _ in range(2):  # it goes on; and once it has finished, its key finds its result
        again = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (again.returncode, again.stderr) == (0, "")
        assert again.stdout == f"{word}, Ada!\n"
    assert (tmp_path / "choices").read_text() == "chosen\n"
    assert app.sync.get(run.id).is_finished
    app.sync.close()


def test_the_first_example_is_among_the_examples() -> None:
    assert (EXAMPLES / "greet.py").read_text().endswith(f'"""\n\n{first_example()}')


def test_an_order_is_approved_labelled_and_told_about(url: str, tmp_path: Path) -> None:
    labels, state, *history = run("order.py", url=url, cwd=tmp_path).splitlines()
    assert labels == "['label for a lamp', 'label for two books']"
    assert state == "19.99 EUR charged, waiting for approval"
    told = [line.split()[1] for line in history]
    assert (told[0], told[-1]) == ("WorkflowStarted", "WorkflowCompleted")
    assert told.count("SignalReceived") == 1
    assert told.count("ActivityCompleted") == 1 + 2
    again = run("order.py", url=url, cwd=tmp_path).splitlines()
    assert again == [labels, state, *history], "its key finds the run that has ended"


def test_files_are_zipped_in_pgqrs_spelling_from_trigger_to_result(url: str, tmp_path: Path) -> None:
    def zip_files(*arguments: str) -> str:
        return run("pgqrs_zip_files.py", *arguments, url=url, cwd=tmp_path)

    queued, paused, success = zip_files().splitlines()
    assert (queued, paused) == ("QUEUED", "PAUSED")
    assert success == (
        "SUCCESS {'archive': 'photos/2024-.zip', 'files': ['2024-a.jpg', '2024-b.jpg'], 'approved_by': 'ada'}"
    )
    run_id = zip_files("trigger", "films", "2023-").strip()
    assert zip_files("status", run_id) == "QUEUED\n"
    zip_files("approve", run_id, "bob")
    command = [sys.executable, str(EXAMPLES / "pgqrs_zip_files.py"), "worker"]
    worker = subprocess.Popen(command, env={**os.environ, "SIMPLEWORKFLOW_URL": url}, stderr=subprocess.PIPE)
    try:
        until(lambda: "SUCCESS" in zip_files("status", run_id), "the worker has done it")
    finally:
        worker.send_signal(signal.SIGINT)
        _, complaints = worker.communicate(timeout=30)
    assert "'approved_by': 'bob'" in zip_files("status", run_id)
    assert (worker.returncode, complaints) == (0, b"")


def test_a_workflow_is_started_by_the_clock_and_by_hand(url: str, tmp_path: Path) -> None:
    assert run("schedule.py", url=url, cwd=tmp_path).splitlines() == [
        "every-morning: 0 9 * * MON-FRI (Europe/Berlin)",
        "every-two-seconds: every 2s (UTC)",
        "asked for: report about two seconds",
        "by the clock: report about two seconds",
    ]


def test_a_trace_joins_request_trigger_executions_child_and_steps(url: str, tmp_path: Path) -> None:
    result, *tree = run("tracing.py", url=url, cwd=tmp_path).splitlines()
    assert result == "label for a lamp"
    first = ["POST /orders", "   trigger trace.order.v1", "      run trace.order.v1 (paused)", "         step charge"]
    assert tree[:4] == first
    # Whether the parent gives up its slot before its child has ended is a matter of milliseconds.
    rest = [line for line in tree[4:] if line != "      run trace.order.v1 (paused)"]
    child = ["         run trace.label.v1 (succeeded)", "            step print"]
    last = "      run trace.order.v1 (succeeded)"
    assert rest in ([*child, last], [last, *child])


def test_reports_go_and_the_invoice_stays(url: str, tmp_path: Path) -> None:
    lines = run("retention.py", url=url, cwd=tmp_path).splitlines()
    assert lines[-3:] == ["invoice 7 sent", "3 reports would go", "3 reports are gone, 1 run is left"]


def test_events_of_two_orders_arrive_in_order(url: str, tmp_path: Path) -> None:
    assert run(
        "outbox.py", url=url, cwd=tmp_path, fails_with="PermanentError: there is nothing to order"
    ).splitlines() == [
        *("1 order.placed", "2 order.shipped", "3 simpleworkflow.run.succeeded"),
        *("1 order.placed", "2 simpleworkflow.run.failed"),
    ]
