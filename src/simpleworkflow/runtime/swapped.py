"""Do calls ask for each other's records? The arguments tell.

A record is found by its place, and a place counts the uses of a name. When calls of one name come in another order (a
loop over a set, a call that a deploy has put before the others), each of them finds the record of another one: outcomes
are mixed up, and the last call would do again what is on record already. So arguments are compared, among calls of one
kind and name:

1. *Mixed up*: a call finds a record with other arguments, and a call before it has asked with those of the record.
2. *Done again*: a call has no record, and its arguments are those of a record that another call has found.

Other arguments alone say nothing: the code was mended, or they come from a clock. So the first of several calls that
are mixed up gets the outcome of another one; a warning says so, and the run is held as soon as the arguments prove it.
Arguments that are not on record (large ones, what is no JSON, the object of a method) are never compared, nor is None.
"""

from __future__ import annotations

import json
from collections import defaultdict

from ..model import payload
from ..model.records import Step
from ..model.states import StepKind
from ..model.step_places import name_of

NOTHING = (None, "null")
"""Arguments that are not known, or say nothing."""
_Calls = tuple[StepKind, str]
"""The kind and the name that calls share."""


class Swapped:
    """What one execution has given to calls with other arguments."""

    def __init__(self) -> None:
        self._asked: defaultdict[_Calls, dict[str, str]] = defaultdict(dict)
        """The arguments of such calls, and where each was made."""
        self._given: defaultdict[_Calls, dict[str, str]] = defaultdict(dict)
        """The arguments of the records that they have found, and the places of these."""

    def fits(self, step: Step, arguments: str | None) -> bool:
        """Whether this record was made with these arguments, as far as that is known."""
        if step.input_json in NOTHING or arguments in NOTHING or payload.same_json(step.input_json, arguments):
            return True
        calls = step.kind, name_of(step.step_id)
        self._asked[calls].setdefault(_plain(arguments), step.step_id)
        self._given[calls].setdefault(_plain(step.input_json), step.step_id)
        return False

    def asked_at(self, step: Step) -> str | None:
        """Where a call has asked with the arguments of this record, which does not fit its own call."""
        return self._asked[step.kind, name_of(step.step_id)].get(_plain(step.input_json or ""))

    def given_at(self, step_id: str, kind: StepKind, arguments: str | None) -> str | None:
        """The place of a record with these arguments that a call with other ones has found."""
        if arguments in NOTHING or not self._given:
            return None
        return self._given[kind, name_of(step_id)].get(_plain(arguments))


def _plain(text: str) -> str:
    """One text for all spellings of a value."""
    return json.dumps(payload.decode(text), sort_keys=True)
