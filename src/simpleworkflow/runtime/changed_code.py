"""A run whose code has changed while it was under way: it is held before something of it is repeated or mixed up.

What is asked before something runs that is not on record is in renames.py and swapped.py; what became of it is said
here, in a sentence that names both calls and what to do. The workflow chooses (`on_changed`): hold the run, warn and go
on, or go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..model.errors import ExecutionStopped, NonDeterminismError
from ..model.records import Step
from ..model.states import StepKind
from ..model.step_places import name_of, path_of
from .branches import BRANCH
from .labels import about
from .renames import LeftBehind, NewCall
from .replay import TOLD, Replay
from .swapped import Swapped

if TYPE_CHECKING:
    from .stage import Stage

log = logging.getLogger("simpleworkflow.execute")

MOST_TOLD = 5
NOT_RUN, NOT_GIVEN = "It was not run", "It was given nothing"


class ChangedCode:
    def __init__(self, stage: Stage, replay: Replay, is_written: Callable[[str], bool]) -> None:
        """`is_written`: whether the code has written the call of this place and not begun it yet."""
        self._stage = stage
        self._replay = replay
        self._is_written = is_written
        self._swapped = Swapped()

    def compare(self, step: Step, arguments: str | None) -> None:
        """A call has found this record: was it made with the same arguments?"""
        if self._swapped.fits(step, arguments):
            return
        place = None if self._is_settled(step.step_id) else self._swapped.asked_at(step)
        if place is not None and place != step.step_id:
            told = f"{step.step_id} is on record with other arguments, for which {place} has asked: calls of"
            told += f" {name_of(step.step_id)} come in another order than they did"
            remedy = f"{_in_order(step.kind)}; if what {step.step_id} has on record is right for this call"
            self._refuse(step.step_id, told, NOT_GIVEN, remedy)
            return
        lease = self._stage.lease
        log.warning(
            "run %s (%s): %s is on record with other arguments; what is on record counts",
            *(lease.id, lease.type, step.step_id),
            extra=about(lease, step=step.step_id),
        )

    def check_effect(self, step_id: str, kind: StepKind, arguments: str | None) -> None:
        """Before an effect that is not on record: its arguments may be, and another call may have found the record."""
        place = None if self._is_settled(step_id) else self._swapped.given_at(step_id, kind, arguments)
        if place is not None:
            told = f"{step_id} is not on record, and its arguments are on record at {place}, which a call with other"
            told += " arguments has asked for: it seems to be done already"
            self._refuse(step_id, told, NOT_RUN, f"{_in_order(kind)}; if it is new")

    def check_new(self, call: NewCall, kind: StepKind) -> None:
        """Before something runs that is not on record: it may be on record under another name."""
        if self._is_settled(call.step_id):
            return
        self.check_effect(call.step_id, kind, call.arguments)
        branch = BRANCH.get()
        if branch is not None and (branch.callers is not None or branch.needs_key):
            call = replace(call, in_order=False)
        stage = self._stage
        looker = LeftBehind(self._replay, stage.workflow.names_beside(call.callee), stage.trunk.made)
        found = looker.look(call, lambda step: self._is_written(step.step_id))
        if found:
            told = _left_behind(call.step_id, [step.step_id for step in found])
            self._refuse(call.step_id, told, NOT_RUN, _remedy(call.step_id, found), found)

    def _is_settled(self, step_id: str) -> bool:
        """Whether nobody needs to ask: the workflow says so, an operator has, or a retry does it again."""
        replay = self._replay
        return self._stage.on_changed == "run" or replay.is_said_to_be_new(step_id) or replay.is_done_again(step_id)

    def _refuse(self, step_id: str, told: str, stopped: str, remedy: str, found: Sequence[Step] = ()) -> None:
        """Hold the run, or warn, as the workflow has it."""
        lease = self._stage.lease
        if self._stage.on_changed == "warn":
            runs = "it runs" if stopped == NOT_RUN else "what is on record counts"
            log.warning("run %s (%s): %s; %s", lease.id, lease.type, told, runs, extra=about(lease, step=step_id))
            for step in found:
                self._replay.excuse(step.step_id)
            return
        told += f". {stopped}. {remedy}: simpleworkflow runs resume --run-new {lease.id}"
        self._stage.set_aside(NonDeterminismError(told, new=step_id))
        raise ExecutionStopped

    def warn_of_unasked(self) -> None:
        """The code has returned and left records behind: perhaps it has done something twice."""
        if self._stage.on_changed == "run":
            return
        made = self._stage.trunk.made
        # A branch that was made and not entered has been dismissed before it began.
        left = [
            step.step_id
            for step in self._replay.unasked(TOLD)
            if (path := path_of(step.step_id)) not in made or self._replay.has_been_in(path)
        ]
        if left:
            lease = self._stage.lease
            log.warning(
                "run %s (%s) has ended without asking for %s, which is on record: its code has changed meanwhile",
                *(lease.id, lease.type, _listed(left)),
                extra=about(lease),
            )


def _listed(places: Sequence[str]) -> str:
    return ", ".join(places[:MOST_TOLD]) + (", …" if len(places) > MOST_TOLD else "")


def _in_order(kind: StepKind) -> str:
    key = "ctx.run(…, key=…)" if kind is StepKind.CHILD else ".options(key=…)"
    remedy = "" if kind is StepKind.EMIT else f" (a loop over a set or a changing list needs {key})"
    return f"Deploy code that makes them in the order of the record{remedy}"


def _left_behind(step_id: str, old: Sequence[str]) -> str:
    what = "renamed" if name_of(old[0]) != name_of(step_id) else "moved"
    if what == "moved" and path_of(old[0]) == path_of(step_id):
        what = "given another key"
    if len(old) == 1:
        told = f"{old[0]}, which is, is not asked for any more: it seems"
    else:
        told = f"{_listed(old)} are, and are not asked for any more: one of them seems"
    return f"{step_id} is not on record, and {told} to be {what}"


def _remedy(step_id: str, found: Sequence[Step]) -> str:
    """What to do, up to the command that says that the call is new."""
    new, former, place = name_of(step_id), name_of(found[0].step_id), found[0].step_id
    is_name = all(_is_other_name(old, step_id) for old in found)
    if len(found) > 1:
        told = f"write @swf.step(name={new!r}, formerly=…) with its name" if is_name else "deploy code that asks for it"
        same = f"one of them, {told}"
    elif is_name:
        same = f"the same, write @swf.step(name={new!r}, formerly={former!r})"
    else:
        same = f"the same, deploy code that asks for it as {place} while such runs are under way"
    return f"If it is {same} and resume the run; if it is new"


def _is_other_name(old: Step, step_id: str) -> bool:
    """Whether formerly= would find this record."""
    in_place = path_of(old.step_id) == path_of(step_id)
    return in_place and name_of(old.step_id) != name_of(step_id) and old.kind is StepKind.STEP
