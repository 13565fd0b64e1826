"""What pytest gets from the test kit, seen from a project that uses it: the guard of the real database, tracebacks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import simpleworkflow as swf

PROJECT = """
import os
import pytest
import simpleworkflow as swf

app = swf.App()


@app.workflow("t.fail.v1", retry=swf.Retry(max_attempts=1))
async def fail(ctx: swf.Context) -> None:
    raise ValueError("no such order")


@app.workflow("t.wait.v1")
async def wait(ctx: swf.Context) -> None:
    await ctx.wait_for_signal("go")


def test_forgets_its_env():
    app.sync.trigger(fail)


@pytest.mark.simpleworkflow_real_database
def test_is_allowed_to():
    assert app.sync.activity.counts() == []


def test_has_an_env(workflow_env):
    assert workflow_env(app).app.activity.counts() == []


def test_names_its_own(tmp_path, monkeypatch):
    for own in (swf.App(str(tmp_path / "own.db")), swf.App(":memory:")):
        own.sync.trigger(fail)
        own.sync.close()
    monkeypatch.setenv("SIMPLEWORKFLOW_URL", str(tmp_path / "named.db"))
    named = swf.App()
    named.sync.trigger(fail)
    named.sync.close()
    monkeypatch.delenv("SIMPLEWORKFLOW_URL")
    monkeypatch.chdir(tmp_path)
    here = swf.App()
    here.sync.trigger(fail)
    here.sync.close()


def test_shows_its_line_alone(workflow_env):
    env = workflow_env(app)
    env.run(fail)  # THE LINE


def test_shows_its_line_alone_too(workflow_env):
    env = workflow_env(app)
    handle = env.app.trigger(fail)
    env.settle()
    handle.signal("go")  # THE LINE


def test_shows_all_of_another_error(workflow_env):
    workflow_env(app).stub(fail, returns=1, nonsense=2)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "test_shop.py").write_text(PROJECT)
    return tmp_path / "shop"


def reported(project: Path, *arguments: str, **more: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SIMPLEWORKFLOW", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rA", *arguments],
        capture_output=True,
        text=True,
        cwd=project,
        env={**kept, **more},
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


def part(output: str, test: str) -> str:
    """What the report says of one test, without what it logged."""
    return re.split(r"\n(?:____|====|-+ Captured)", output.split(f" {test} ___")[1])[0]


def test_a_test_that_forgets_its_environment_does_not_reach_the_real_database(project: Path) -> None:
    out = reported(project)
    refused = part(out, "test_forgets_its_env")
    assert "this test would use the real database, the one of programs in " in refused
    assert "use `with swf.testing.env(app) as env:`" in refused
    for allowed in ("test_is_allowed_to", "test_has_an_env", "test_names_its_own"):
        assert f"PASSED test_shop.py::{allowed}\n" in out
    assert "4 failed, 3 passed" in out, out


def test_the_traceback_of_a_sentence_has_the_lines_of_the_test_alone(project: Path) -> None:
    out = reported(project, "-k", "shows", "--color=no")
    for test, sentence in (
        ("test_shows_its_line_alone", "ValueError: no such order"),
        ("test_shows_its_line_alone_too", "has already failed (ValueError: no such order); the signal 'go'"),
    ):
        told = part(out, test)
        assert sentence in told
        assert "> " in told
        assert "# THE LINE" in told
        assert "src/simpleworkflow" not in told
        assert "asyncio" not in told
        assert "concurrent" not in told
    assert "simpleworkflow/testing/env.py" in part(out, "test_shows_all_of_another_error")
    assert "simpleworkflow/testing/env.py" in part(reported(project, "--full-trace"), "test_shows_its_line_alone")


def test_a_project_may_allow_the_real_database_for_all_its_tests(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\nsimpleworkflow_real_database = true\n")
    real = str(project / "real.db")
    out = reported(project, "-k", "forgets or allowed", SIMPLEWORKFLOW_URL=real)
    assert "PASSED test_shop.py::test_forgets_its_env" in out
    assert Path(real).exists()


def test_a_test_that_forgets_its_environment_is_told_of_the_variable(project: Path) -> None:
    real = str(project / "real.db")
    out = reported(project, "-k", "forgets", SIMPLEWORKFLOW_URL=real)
    assert "the real database, the one that SIMPLEWORKFLOW_URL names;" in out
    assert not Path(real).exists()


async def test_a_blocking_environment_serves_an_async_test(tmp_path: Path) -> None:
    app = swf.App(str(tmp_path / "untouched.db"))

    @app.workflow("t.sleepy.v1")
    async def sleepy(ctx: swf.Context) -> str:
        await ctx.sleep("10 days")
        return "rested"

    with swf.testing.env(app) as env:
        assert env.run(sleepy) == "rested"
        handle = env.app.trigger(sleepy)
        env.settle()
        env.advance("10 days")
        assert handle.result("1s") == "rested"


@pytest.mark.parametrize("name", ["run", "advance", "settle", "stub", "now", "app"])
def test_an_environment_that_was_not_opened_says_how_to_open_it(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"with swf\.testing\.env\(app\) as env: env\.{name}$"):
        getattr(swf.testing.env(swf.App(":memory:")), name)
    with pytest.raises(AttributeError, match="no attribute 'advanced'"):
        swf.testing.env(swf.App(":memory:")).advanced  # type: ignore[attr-defined]  # noqa: B018
