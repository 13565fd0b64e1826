"""examples/sched_order.py as its reader runs it: killed while it waits, paid meanwhile, started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.waiting import until

import simpleworkflow as swf

from .room import types

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "sched_order.py"


def documented() -> list[str]:
    """The history of this order as docs/coming-from.md shows it."""
    page = (ROOT / "docs" / "coming-from.md").read_text()
    block = page.split("The order above, paid before it waited:\n\n```\n")[1].split("```")[0]
    return [line.split()[1] for line in block.splitlines()]


def test_an_order_is_killed_paid_meanwhile_and_finished_with_one_history(url: str, tmp_path: Path) -> None:
    environment = {**os.environ, "SIMPLEWORKFLOW_URL": url}

    def run(*arguments: str) -> str:
        command = [sys.executable, str(PROGRAM), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    run("pay")
    assert [line.split()[1] for line in run("history").splitlines()] == ["WorkflowStarted", "SignalReceived"]
    app = swf.App(url)
    (order,) = app.sync.runs()
    first = subprocess.Popen([sys.executable, str(PROGRAM)], cwd=tmp_path, env=environment)
    try:
        until(lambda: "WorkflowTaskYielded" in types(app.sync.handle(order.id).history()), "the order sleeps")
    finally:
        first.kill()
        first.wait()
        app.sync.close()
    result, *history = run().splitlines()
    assert result == "one book, reserved for 4200 cents"
    assert [line.split()[1] for line in history] == documented()
    assert len(history) == 9
