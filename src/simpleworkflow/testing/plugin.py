"""What pytest gets from us, through an entry point: a fixture, a guard, and short tracebacks.

    def test_an_order_is_fulfilled(workflow_env):
        env = workflow_env(app)
        assert env.run(fulfil, order) == ["label-1"]

The guard: a test that forgets its environment would write to the database that SIMPLEWORKFLOW_URL names, which may be
the real one. So while pytest runs, an App without a URL of its own does not open the database that was named when
pytest started, unless the configuration or a marker of the test allows it.

Tracebacks: of a SimpleWorkflowError the sentence and the line of the test count, so the lines of this package are left
out; --full-trace shows them. The rest of the package is imported only when a test asks for it.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

from ..config import URL_VARIABLE, DefaultURL, default_url, guards
from ..model.errors import InvalidURL, SimpleWorkflowError

if TYPE_CHECKING:
    from ..app import App
    from .env import SyncEnv

ALLOWED = "simpleworkflow_real_database"
"""The option of the configuration and the marker of a test."""

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_STDLIB = sysconfig.get_path("stdlib")
HIDDEN = (_PACKAGE, f"{_STDLIB}{os.sep}asyncio{os.sep}", f"{_STDLIB}{os.sep}concurrent{os.sep}")


def _place(url: str) -> str:
    return url if "://" in url or url == ":memory:" else os.path.abspath(url)


_REAL = _place(default_url())
"""As it was named before any conftest.py could name one for the tests."""


class Guard:
    """Refuses the real database while a test runs, or is collected, that is not allowed to open it."""

    def __init__(self, *, is_off: bool) -> None:
        self._is_off = is_off
        self._is_allowed = False

    def __call__(self, url: DefaultURL) -> None:
        if self._is_off or self._is_allowed or _place(url) != _REAL or url == ":memory:":
            return
        named = f"that {URL_VARIABLE} names" if os.environ.get(URL_VARIABLE) else f"of programs in {os.getcwd()}"
        raise InvalidURL(
            f"this test would use the real database, the one {named}; use `with swf.testing.env(app) as env:`, or "
            f"give the App a URL of its own, or allow it: @pytest.mark.{ALLOWED}, or {ALLOWED} = true for all tests"
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._is_allowed = item.get_closest_marker(ALLOWED) is not None
        try:
            return (yield)
        finally:
            self._is_allowed = False

    def pytest_unconfigure(self) -> None:
        guards.remove(self)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(ALLOWED, f"whether tests may use the database that {URL_VARIABLE} names", "bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{ALLOWED}: the test may use the database that {URL_VARIABLE} names")
    guard = Guard(is_off=config.getini(ALLOWED))
    config.pluginmanager.register(guard, "simpleworkflow-guard")
    guards.append(guard)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """Before the report is made of it: our own lines leave the traceback of what is told in a sentence."""
    info = call.excinfo
    if info is None or not isinstance(info.value, SimpleWorkflowError) or item.config.getoption("fulltrace", False):
        return
    _shorten(info.tb)


def _shorten(entry: TracebackType | None) -> None:
    while entry is not None:
        following = entry.tb_next
        while following is not None and following.tb_frame.f_code.co_filename.startswith(HIDDEN):
            following = following.tb_next
        entry.tb_next = following
        entry = following


@pytest.fixture
def workflow_env() -> Iterator[Callable[..., SyncEnv]]:
    """Give it an App and get an environment in memory with a clock that the test owns."""
    with ExitStack() as opened:

        def opening(app: App, **options: Any) -> SyncEnv:
            from .env import env

            return opened.enter_context(env(app, **options))

        yield opening
