"""The benchmark at its smallest: our driver does its work on both databases, and the bare loop speaks our SQL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import bare
import pytest
from support.waiting import until

import simpleworkflow as swf

BENCH = Path(__file__).resolve().parents[2] / "bench"
DRIVER = BENCH / "peers" / "drive_ours.py"


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
    counts = {(count.type, str(count.status)): count.runs for count in app.sync.activity.counts()}
    app.sync.close()
    assert counts["bench.noop.v1", "pending"] >= 200  # and those of its warming up


async def test_the_bare_loop_finishes_runs_with_our_own_statements(postgres_url: str) -> None:
    drive("prepare", postgres_url, "250")
    story = await bare.drain(postgres_url, 250)
    assert story["jobs"] == 250
    app = swf.App(postgres_url)
    assert {(str(count.status), count.runs) for count in await app.activity.counts()} == {("succeeded", 250)}
    run = await anext(app.runs())
    assert [event.type for event in await app.handle(run.id).events()] == ["created", "leased", "started", "succeeded"]
    await app.close()


def test_a_folder_that_cannot_be_written_to_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [sys.executable, str(BENCH), "--only", "wal", "--quick", "--output", str(tmp_path / "file" / "x")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "nothing can be written to" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_benchmark_that_is_told_to_stop_leaves_no_server_behind(number: signal.Signals) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # a server that root starts runs as somebody else

        def servers() -> list[Path]:
            return list(Path(folder).glob("simpleworkflow-postgres-*"))

        command = [sys.executable, str(BENCH), "--only", "wal", "--quick", "--output", f"{folder}/out"]
        told: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        running = subprocess.Popen(command, env={**os.environ, "TMPDIR": folder}, **told)
        try:
            until(lambda: any((server / "data" / "postmaster.pid").exists() for server in servers()), "a server")
            running.send_signal(number)
            assert running.wait(30) == 130
        finally:
            running.kill()
            running.wait()
        assert servers() == []
