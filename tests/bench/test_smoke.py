"""The benchmark at its smallest: our driver does its work on both databases, and the bare loop speaks our SQL."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import bare
import pytest

import simpleworkflow as swf

DRIVER = Path(__file__).resolve().parents[2] / "bench" / "peers" / "drive_ours.py"


def drive(*words: str) -> str:
    command = [sys.executable, str(DRIVER), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_driver_drains_steps_and_triggers(database: str, tmp_path: Path, postgres_url: str) -> None:
    url = postgres_url if database == "postgres" else str(tmp_path / "bench.db")
    drive("prepare", url, "150")
    story = json.loads(drive("drain", url, "150").splitlines()[-1])
    assert (story["jobs"], story["handlers"]) == (150, 150)
    assert story["seconds"] > 0
    stepped = json.loads(drive("steps", url, "15").splitlines()[-1])
    assert stepped["jobs"] == 15
    bulk = json.loads(drive("trigger-bulk", url, "200").splitlines()[-1])
    assert bulk["jobs"] == 200
    app = swf.App(url)
    counts = {(count.type, str(count.status)): count.runs for count in app.sync.counts()}
    app.sync.close()
    assert counts["bench.noop.v1", "pending"] >= 200  # and those of its warming up


async def test_the_bare_loop_finishes_runs_with_our_own_statements(postgres_url: str) -> None:
    drive("prepare", postgres_url, "250")
    story = await bare.drain(postgres_url, 250)
    assert story["jobs"] == 250
    app = swf.App(postgres_url)
    assert {(str(count.status), count.runs) for count in await app.counts()} == {("succeeded", 250)}
    run = await anext(app.runs())
    assert [event.type for event in await app.events(run.id)] == ["created", "leased", "started", "succeeded"]
    await app.close()
