"""The durable calls that a run's code has made: each of them must be awaited before the code returns.

A forgotten `await` is the most expensive slip in a workflow: `ctx.step(charge, order)` alone on its line makes a
coroutine that never runs, the run succeeds, and nobody was charged. Python's own warning comes when the object is
thrown away, which may be at the exit of the process. So an execution remembers every call with the line that made it.
A call whose coroutine is not finished when the code returns fails the run with that line; one that only we still refer
to can never be awaited, and is refused as soon as the run begins to wait for something else.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Collection
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ..model.errors import InvalidWorkflow
from ..python_internals import frame_above, has_ended, module_of, reference_count
from .branches import Branch

Call = Any
"""A coroutine; one that is finished or closed has no frame any more."""
_Entry = tuple[Call, str, CodeType, int, Branch | None]
"""What was called, its name for people, the code and the instruction that made it, and in which branch."""

PRUNE_AT = 100
OF_THE_APP = ("app.", "handle.")
"""How the calls begin that are not made on a ctx."""
_OURS = f"{__package__.partition('.')[0]}."
_OUR_FILES = os.path.dirname(os.path.dirname(__file__)) + os.sep
"""A blocking workflow calls from its own thread, whose lines are not seen from the loop."""


class Made(NamedTuple):
    call: Call
    what: str
    code: CodeType
    instruction: int

    @property
    def has_begun(self) -> bool:
        return inspect.getcoroutinestate(self.call) != inspect.CORO_CREATED

    @property
    def spoken(self) -> str:
        return self.what if self.what.startswith(OF_THE_APP) else f"ctx.{self.what}"

    def __str__(self) -> str:
        file = os.path.basename(self.code.co_filename)
        return self.spoken if self.code.co_filename.startswith(_OUR_FILES) else f"{self.spoken} at {file}:{self._line}"

    @property
    def _line(self) -> int:
        lines = (line for start, end, line in self.code.co_lines() if start <= self.instruction < end)
        return next(lines, None) or self.code.co_firstlineno


class MadeCalls:
    """What one execution has made, by place."""

    def __init__(self) -> None:
        self._made: dict[str, _Entry] = {}
        self._prune_at = PRUNE_AT
        self.refused: Exception | None = None
        """Of a plain step that an async workflow called as a function: it has not run, even if the code catches it."""
        self.dropped: list[tuple[str, str]] = []
        """Coroutines of the code's own that nobody can await any more, and where they went (unawaited.py)."""

    def add(self, place: str, call: Call, what: str, frame: FrameType, branch: Branch | None) -> None:
        made = self._made
        if len(made) >= self._prune_at:
            entries = list(made.items())  # at once: a plain def workflow adds calls of its App from its own thread
            self._made = made = {place: one for place, one in entries if not has_ended(one[0])}
            self._prune_at = PRUNE_AT + 2 * len(made)
        made[place] = call, what, frame.f_code, frame.f_lasti, branch

    @property
    def is_finished(self) -> bool:
        return (
            not self.dropped
            and self.refused is None
            and all(has_ended(call) or _is_lost(branch) for call, _, _, _, branch in self._made.values())
        )

    def refuse_unfinished(self) -> None:
        """The code has returned: what is not finished now would never be."""
        if self.refused is not None:
            raise self.refused
        if self.dropped:
            raise self.mistake()
        unfinished = [one for one in self._made.values() if not has_ended(one[0]) and not _is_lost(one[-1])]
        if unfinished:
            raise InvalidWorkflow(_told(unfinished))

    def refuse_dropped(self, written: Collection[str]) -> None:
        """Of the calls at these places, which have not begun: those that nothing refers to but we."""
        if self.dropped:
            raise self.mistake()
        dropped = [place for place in written if place in self._made and _is_dropped(self._made, place)]
        if dropped:
            raise InvalidWorkflow(_told([self._made[place] for place in dropped]))

    def mistake(self) -> InvalidWorkflow:
        """Of a coroutine that was thrown away."""
        (name, place), *others = self.dropped
        left = f"; so were {len(others)} more" if others else ""
        return InvalidWorkflow(f"{name}(…) at {place} was not awaited{left}: it has not run; write await {name}(…)")

    def close(self) -> None:
        """Without Python's warning for each that was never awaited: what is to be said of them has been said."""
        for call, *_ in self._made.values():
            if inspect.getcoroutinestate(call) == inspect.CORO_CREATED:
                call.close()
        self._made.clear()


def _told(calls: list[_Entry]) -> str:
    first, *others = (Made(*one[:4]) for one in calls)
    left = f"; so were {len(others)} more" if others else ""
    if first.has_begun:
        return f"{first} was still under way when the workflow returned{left}: await it, or the task that it runs in"
    return f"{first} was not awaited{left}: it has not run; write await {first.spoken.partition('(')[0]}(…)"


def caller() -> FrameType:
    """The nearest frame that is not ours."""
    frame = frame_above(1)
    while frame.f_back is not None and module_of(frame).startswith(_OURS):
        frame = frame.f_back
    return frame


def _is_lost(branch: Branch | None) -> bool:
    """Whether it was made by a contender of a race that another one has won: nothing more is expected of that."""
    return branch is not None and branch.is_lost


def _is_dropped(made: dict[str, _Entry], place: str) -> bool:
    return reference_count(made[place][0]) == _ALONE and not _is_lost(made[place][-1])


async def _nothing() -> None: ...


def _count_of_a_dropped_call() -> int:
    """As many references as a call has that its maker has dropped: ours here and the one of the places in memo.py."""
    call = _nothing()
    made, written = {"": (call, "", _nothing.__code__, 0, None)}, {"": call}
    del call
    count = reference_count(made[""][0])
    written.popitem()[1].close()
    return count


_ALONE = _count_of_a_dropped_call()
