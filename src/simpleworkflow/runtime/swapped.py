"""Does a call ask for the record of another one? The arguments tell.

A record is found by its place, and a place counts the uses of a name. When calls of one name come in another order (a
loop over a set, a call that a deploy has put before the others), each of them finds the record of another one: their
outcomes would be mixed up, and the last call would do again what is on record already. So the arguments are compared:

1. *Mixed up*: a call finds a record with other arguments, and exactly its own are on record for another call of that
   name, which nobody has asked for with them.
2. *Done again*: a call has no record, and exactly its arguments are on record where another call, with other arguments,
   has asked. It has the same name, or is in the same branch.

Other arguments alone say nothing: the code was mended, or they come from a clock. Arguments that are not on record
(none at all, large ones, what is no JSON, the object of a method) are never compared.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model import payload
from ..model.records import Step
from ..model.states import StepStatus
from ..model.step_places import name_of, path_of

_DONE = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED})


class Swapped:
    """What one execution has given to the calls whose records it has asked for."""

    def __init__(self, recorded: Mapping[str, Step]) -> None:
        self._recorded = recorded
        self._fitting: set[str] = set()
        self._other: dict[str, Step] = {}
        """The records that were asked for with other arguments."""

    def fits(self, step: Step, arguments: str | None) -> bool:
        """Whether this record was made with these arguments, as far as that is known."""
        if step.input_json is None or arguments is None:
            return True
        if payload.same_json(step.input_json, arguments):
            self._fitting.add(step.step_id)
            return True
        self._other[step.step_id] = step
        return False

    def owner(self, step: Step, arguments: str) -> Step | None:
        """The record that a call with these arguments should have found instead of this one."""
        name = name_of(step.step_id)
        others = (
            one
            for one in self._recorded.values()
            if one.kind is step.kind and one.status in _DONE and name_of(one.step_id) == name
        )
        return next((one for one in others if one is not step and self._is_free(one, arguments)), None)

    def _is_free(self, step: Step, arguments: str) -> bool:
        if step.step_id in self._fitting or step.input_json is None:
            return False
        return payload.same_json(step.input_json, arguments)

    def taken(self, step_id: str, arguments: str | None) -> Step | None:
        """The record of these arguments that a call with other ones has found before this call, which has none."""
        if arguments is None or not self._other:
            return None
        name, path = name_of(step_id), path_of(step_id)
        return next(
            (
                one
                for one in self._other.values()
                if (name_of(one.step_id) == name or path_of(one.step_id) == path) and self._is_free(one, arguments)
            ),
            None,
        )
