"""The program of the benchmark without its measures: bench/__main__.py as a module, and a server that is none."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

PROGRAM = Path(__file__).resolve().parents[2] / "bench" / "__main__.py"


def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FakeGround:
    def __init__(self, quick: bool, about: dict[str, Any]) -> None:
        self.quick = quick
        self._about = about

    def about(self) -> dict[str, Any]:
        return self._about


def fake_ground(about: dict[str, Any]) -> Callable[..., AbstractContextManager[FakeGround]]:
    """In place of `ground`."""

    @contextlib.contextmanager
    def opened(*, quick: bool) -> Iterator[FakeGround]:
        yield FakeGround(quick, about)

    return opened
