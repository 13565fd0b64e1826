"""The examples run as their readers will run them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.ledger import until

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(program: str, *arguments: str, url: str, cwd: Path) -> str:
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
    assert done.stderr == ""
    return done.stdout


def test_the_greeting_is_said_once_per_name(url: str, tmp_path: Path) -> None:
    first = run("greet.py", "Ada", url=url, cwd=tmp_path)
    assert first.startswith("Hello, Ada! (said at ")
    assert run("greet.py", "Ada", url=url, cwd=tmp_path) == first
    assert run("greet.py", "Bob", url=url, cwd=tmp_path).startswith("Hello, Bob!")


def test_without_a_url_the_file_is_beside_the_program(tmp_path: Path) -> None:
    assert run("greet.py", url="", cwd=tmp_path).startswith("Hello, Ada!")
    assert (tmp_path / "simpleworkflow.db").exists()


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
