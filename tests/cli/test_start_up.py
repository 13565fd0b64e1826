"""Asking for help is quick, for nothing is loaded that it does not need; the package's names come when asked for."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import COMMAND

HEAVY = {"asyncio", "msgspec", "rich", "asyncpg", "sqlite3", "simpleworkflow.app", "simpleworkflow.public"}
LIMIT = 0.3
TELL_LOADED = """
import json, sys
sys.argv = ["simpleworkflow", *json.loads(sys.argv[1])]
from simpleworkflow.cli import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)))
"""


def loaded_by(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", TELL_LOADED, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(json.loads(done.stdout.splitlines()[-1]))


def python(code: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["migrate", "--help"], ["dev", "--help"], ["init", "-h"]]
)
def test_asking_for_help_loads_nothing_heavy(arguments: list[str]) -> None:
    loaded = loaded_by(*arguments)
    assert "click" in loaded
    assert loaded & HEAVY == set()


def test_asking_for_help_takes_well_under_a_third_of_a_second() -> None:
    """Processor time, the median of five: other work on this machine does not count."""
    taken = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*COMMAND, "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert statistics.median(taken) < LIMIT


def test_importing_the_package_loads_nothing_until_a_name_is_used(tmp_path: Path) -> None:
    code = """
import sys, simpleworkflow as swf
assert swf.__version__ and not {"asyncio", "msgspec"} & sys.modules.keys()
assert not hasattr(swf, "__wrapped__") and "msgspec" not in sys.modules  # what tools probe for
swf.App
assert "msgspec" in sys.modules and "App" in vars(swf)
print("lazy")
"""
    assert python(code, tmp_path) == "lazy"


@pytest.mark.parametrize("first", ["", "swf.clock_is_no_name if False else swf.App;", "swf.testing;"])
def test_every_public_name_is_there_however_it_is_asked_for(tmp_path: Path, first: str) -> None:
    code = f"""
import simpleworkflow as swf
{first}
from simpleworkflow import *
assert App is swf.App and Retry is swf.Retry and step is swf.step
assert all(hasattr(swf, name) for name in swf.__all__)
from simpleworkflow import testing, IntentPoller, clock, model
assert callable(testing.env) and IntentPoller is swf.IntentPoller and clock.new_id()
print(len(swf.__all__) > 40)
"""
    assert python(code, tmp_path) == "True"


@pytest.mark.parametrize("first", ["", "swf.App; swf.testing.env;", "import simpleworkflow.compat.pgqrs"])
def test_completion_offers_the_public_names_and_no_others(tmp_path: Path, first: str) -> None:
    code = f"""
import simpleworkflow as swf
{first}
print(sorted(name for name in dir(swf) if not name.startswith("__")) == sorted(swf.__all__))
print("TYPE_CHECKING" in vars(swf), len(swf.__all__) == len(set(swf.__all__)), "__version__" in dir(swf))
"""
    assert python(code, tmp_path).split() == ["True", "False", "True", "True"]


def test_a_name_that_does_not_exist_is_an_attribute_error_that_says_so(tmp_path: Path) -> None:
    code = """
import simpleworkflow as swf
try:
    swf.Workflw
except AttributeError as error:
    print(error, error.name, error.obj is swf)
try:
    from simpleworkflow import Ap
except ImportError as error:
    print(type(error).__name__)
"""
    assert python(code, tmp_path).splitlines() == [
        "module 'simpleworkflow' has no attribute 'Workflw' Workflw True",
        "ImportError",
    ]
