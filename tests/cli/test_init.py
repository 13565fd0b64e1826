"""`simpleworkflow init`: the project that it writes runs, as its reader would run it, and nothing is overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import COMMAND, environment, run
from support.waiting import until

FILES = {"workflows.py", "order.py", "test_workflows.py", "README.md", "requirements.txt", ".gitignore"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    done = run("init", "shop", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path / "shop"


@pytest.fixture
def worker(project: Path, url: str) -> Iterator[Path]:
    log = project.parent / "worker.log"
    with log.open("wb") as out:
        command = [*COMMAND, "worker", "workflows:app"]
        process = subprocess.Popen(command, cwd=project, env=environment(url), stdout=out, stderr=out)
    until(lambda: "is ready" in log.read_text() or process.poll() is not None, "the worker is ready")
    yield log
    process.terminate()
    assert process.wait(30) == 0


def order(project: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "order.py", *arguments]
    return subprocess.run(command, cwd=project, env=environment(url), capture_output=True, text=True, timeout=60)


def test_the_new_project_runs_an_order_to_its_end(project: Path, worker: Path, url: str) -> None:
    first = order(project, url, "4711")
    assert first.returncode == 0, first.stderr
    assert "{'receipt': 'receipt-4711', 'parcel': 'parcel-4711'}" in first.stdout
    again = order(project, url, "4711")
    assert "order 4711 was given before" in again.stdout
    assert again.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]
    assert worker.read_text().count("charging 1000 cents for order 4711") == 1


def test_the_new_project_passes_its_own_tests(project: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True, timeout=60)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert not list(project.glob("*.db")), "the tests touched the project's database"


def test_init_prints_the_next_two_commands(tmp_path: Path) -> None:
    done = run("init", "my shop", cwd=tmp_path)
    commands = [line.strip() for line in done.stdout.splitlines() if line.startswith("    ")]
    assert commands == ["cd 'my shop' && simpleworkflow dev workflows:app", "cd 'my shop' && python order.py"]
    assert set(os.listdir(tmp_path / "my shop")) == FILES
    here = tmp_path / "here"
    here.mkdir()
    told = json.loads(run("init", "--json", cwd=here).stdout)
    assert told["next"] == ["simpleworkflow dev workflows:app", "python order.py"]
    assert set(told["files"]) == FILES == set(os.listdir(here))


def test_init_overwrites_nothing_and_names_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "order.py").symlink_to("nowhere")
    done = run("init", cwd=tmp_path)
    assert done.returncode == 1
    assert "nothing was written, for these are there already: order.py, README.md" in done.stderr
    assert (tmp_path / "README.md").read_text() == "mine"
    assert set(os.listdir(tmp_path)) == {"README.md", "order.py"}


def test_init_into_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in ("file", "file/below"):
        done = run("init", folder, cwd=tmp_path)
        assert done.returncode == 1
        assert len(done.stderr.strip().splitlines()) == 1
        assert "Traceback" not in done.stderr


def test_the_new_project_sends_nobody_to_a_package_index_for_our_name(project: Path) -> None:
    """The README of this package says where it comes from; a stranger's package of that name must not come instead."""
    wanted = [line.partition("#")[0].strip() for line in (project / "requirements.txt").read_text().splitlines()]
    assert [line for line in wanted if line] == ["pytest"]
    assert "pip install /path/to/simpleworkflow" in (project / "README.md").read_text()
