"""How far each branch of a run has come through what is on record.

A branch replays until it has passed everything that an earlier execution recorded in it; `ctx.log` is silent meanwhile,
since all of it has been said before. A call that finds nothing on record is new work: from there on the branch is live,
even when the code has changed and some old records are never asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model.records import Step
from ..model.states import StepKind


class Replay:
    def __init__(self, recorded: Mapping[str, Step]) -> None:
        self._left: dict[str, dict[str, int]] = {}
        self._live: set[str] = set()
        for step_id, step in recorded.items():
            # A published value is written over and over: its row counts how often.
            times = step.attempt if step.kind is StepKind.PUBLISH else 1
            self._left.setdefault(path_of(step_id), {})[step_id] = times

    def passed(self, step_id: str) -> None:
        """The code has gone past this record."""
        if self._left:
            left = self._left.get(path_of(step_id), {})
            left[step_id] = left.get(step_id, 0) - 1
            if left[step_id] <= 0:
                del left[step_id]

    def is_new(self, step_id: str) -> None:
        """The code does something that nobody has done before."""
        if self._left:
            self._live.add(path_of(step_id))

    def is_under_way(self, path: str) -> bool:
        """Whether the branch still does what was done before; a new branch follows the one that made it."""
        if not self._left:
            return False
        while path not in self._live:
            if self._left.get(path):
                return True
            if not path:
                return False
            path = path_of(path.removesuffix("/"))
        return False


def path_of(step_id: str) -> str:
    """The branch that a record belongs to; keys after the # may hold slashes of their own."""
    head = step_id.partition("#")[0]
    return head[: head.rfind("/") + 1]
