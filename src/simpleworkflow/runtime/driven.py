"""Going on with a coroutine that somebody else has started, in a context of its own.

A task steps its coroutine in one context for life. Here the task was made before the run whose code it carries, so each
step of that code is taken in the run's context by hand. What the code yields, and what the task sends or throws in
answer, is handed through untouched.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from ..python_internals import add_driver


class Driven:
    """Awaits the rest of `code`, whose first step has yielded `waits_for`; every further one is taken in `context`."""

    __slots__ = ("_code", "_context", "_waits_for")

    def __init__(self, code: Coroutine[Any, Any, Any], waits_for: Any, context: contextvars.Context) -> None:
        self._code = code
        self._waits_for = waits_for
        self._context = context

    def __await__(self) -> Generator[Any, Any, Any]:
        code, run, waits_for = self._code, self._context.run, self._waits_for
        step: Callable[[Any], Any]
        while True:
            try:
                answer = yield waits_for
            except GeneratorExit:
                code.close()
                raise
            except BaseException as error:
                step, argument = code.throw, error
            else:
                step, argument = code.send, answer
            try:
                waits_for = run(step, argument)
            except StopIteration as stop:
                return stop.value


add_driver(Driven.__await__, "code")
