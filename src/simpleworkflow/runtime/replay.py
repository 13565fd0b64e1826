"""How far each branch of a run has come through what is on record.

A branch replays until it has passed everything that an earlier execution recorded in it; `ctx.log` is silent meanwhile,
since all of it has been said before. A call that finds nothing on record is new work: from there on the branch is live,
even when the code has changed and some old records are never asked for. Which ones those are, and whether the code has
gone past their place, is asked before new work begins (renames.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..model.records import Step
from ..model.states import StepKind, StepStatus
from ..model.step_places import NEW, SKIPPED, as_new, name_of, path_of

EFFECTS = frozenset({StepKind.STEP, StepKind.CHILD})
"""What must not be done a second time because it has another name now."""
TOLD = EFFECTS | {StepKind.EMIT}
"""What must not be left behind without a word."""


class Replay:
    def __init__(self, recorded: Mapping[str, Step], redone: Mapping[str, int]) -> None:
        self._recorded = recorded
        self._redone = redone
        """The steps that a retry does again, and how many records came before the failure of each."""
        self._failed: set[str] = set()
        """What has failed in this execution."""
        self._left: dict[str, dict[str, int]] = {}
        self._live: set[str] = set()
        self._order = {step_id: place for place, step_id in enumerate(recorded)}
        self._furthest: dict[str, int] = {}
        """By branch: the latest of its records that has been asked for."""
        for step_id, step in recorded.items():
            # A published value is written over and over: its row counts how often.
            times = step.attempt if step.kind is StepKind.PUBLISH else 1
            if SKIPPED not in step_id and NEW not in step_id:
                self._left.setdefault(path_of(step_id), {})[step_id] = times

    def passed(self, step_id: str) -> None:
        """The code has gone past this record."""
        if self._left:
            path = path_of(step_id)
            left = self._left.get(path, {})
            left[step_id] = left.get(step_id, 0) - 1
            if left[step_id] <= 0:
                del left[step_id]

    def asked(self, step_id: str) -> None:
        """The code has come to the place of this record, finished or not."""
        if self._left:
            path = path_of(step_id)
            self._furthest[path] = max(self._furthest.get(path, -1), self._order.get(step_id, -1))

    def is_new(self, step_id: str) -> None:
        """The code does something that nobody has done before."""
        if self._left:
            self._live.add(path_of(step_id))

    def fails(self, step_id: str) -> None:
        if self._redone:
            self._failed.add(step_id)

    def leave(self, path: str) -> None:
        """Nothing will ask for what is below: its branch has lost a race, and is not run again."""
        for lost in [one for one in self._left if one.startswith(path)]:
            del self._left[lost]

    def excuse(self, step_id: str) -> None:
        """It has been said that nothing asks for this record; that is enough."""
        self._left.get(path_of(step_id), {}).pop(step_id, None)

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

    # What has not been asked for.

    def unasked(self, kinds: frozenset[StepKind] = EFFECTS) -> Iterator[Step]:
        """The finished steps and started children that this execution has not asked for so far, as recorded; without
        those that only a failure led to."""
        for left in self._left.values():
            for step_id in left:
                step = self._recorded.get(step_id)
                if step is not None and step.kind in kinds and step.status in _DONE and not self._is_behind(step):
                    yield step

    def _is_behind(self, step: Step) -> bool:
        """Whether it was recorded behind a failure, in its branch or around it, before a retry did the failed step
        again: code comes there a second time only when that step fails a second time."""
        if not self._redone:
            return False
        place, path = self._order[step.step_id], path_of(step.step_id)
        return any(
            failed_at <= place and path_of(one).startswith(path) and not self._is_over(one, place)
            for one, failed_at in self._redone.items()
        )

    def _is_over(self, redone: str, place: int) -> bool:
        """Whether the step has failed again, or its retry came before this place."""
        again = self._recorded.get(redone)
        if again is not None and again.status is StepStatus.SUCCEEDED:
            return self._order[redone] < place
        return redone in self._failed or (again is not None and again.status is StepStatus.FAILED)

    def is_done_again(self, step_id: str) -> bool:
        """Whether it has failed before, and a retry does it again."""
        return step_id in self._redone

    def has_been_in(self, path: str) -> bool:
        """Whether this execution has asked for something in the branch or below it, or done something new there."""
        return any(one.startswith(path) for one in (*self._furthest, *self._live))

    def names_asked(self) -> set[str]:
        """The names of the finished steps and started children that this execution has asked for."""
        left = {step_id for branch in self._left.values() for step_id in branch}
        return {name_of(one) for one, step in self._recorded.items() if one not in left and step.kind in EFFECTS}

    def knows(self, name: str) -> bool:
        """Whether something of that name is on record, wherever."""
        return any(name_of(step_id) == name for step_id in self._recorded)

    def is_before(self, one: Step, other: Step) -> bool:
        """Whether it was recorded earlier."""
        return self._order[one.step_id] < self._order[other.step_id]

    def is_recorded(self, path: str) -> bool:
        """Whether an earlier execution has left something in the branch or below it."""
        return any(path_of(step_id).startswith(path) for step_id in self._recorded)

    def is_said_to_be_new(self, step_id: str) -> bool:
        return as_new(step_id) in self._recorded

    def is_behind_a_wait(self, step: Step) -> bool:
        """Whether the code has come past a sleep or a signal that its branch has had after this record."""
        path, place = path_of(step.step_id), self._order[step.step_id]
        furthest = self._furthest.get(path, -1)
        return any(
            one.kind in _WAITS and place < self._order[one.step_id] <= furthest and path_of(one.step_id) == path
            for one in self._recorded.values()
        )

    def is_ahead(self, step: Step) -> bool:
        """Whether nothing that was recorded after it in its branch has been asked for yet."""
        return self._order[step.step_id] > self._furthest.get(path_of(step.step_id), -1)


_DONE = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED})
_WAITS = frozenset({StepKind.SLEEP, StepKind.SIGNAL})
