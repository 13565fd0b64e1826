"""Why a run stands where it stands: a run is never silently stuck.

From one picture of the database (store/operations/explain.py) to a reason (explain_reason.py), a sentence
(explain_sentence.py) and details (explain_details.py), and the same for the children that are waited for. Nothing here
reads anything: all of it was seen in one snapshot, so that no two parts of an explanation contradict each other.
"""

from __future__ import annotations

from uuid import UUID

from ...model.explanation import Explanation, Picture
from .details import details
from .reason import reason_of
from .sentence import sentence

DEPTH = 8
"""How far down children of children are followed."""


def explain(run_id: UUID, picture: Picture) -> Explanation:
    return _explain(run_id, picture, frozenset())


def _explain(run_id: UUID, picture: Picture, above: frozenset[UUID]) -> Explanation:
    """`above` are the runs that lead here: whatever strangers write into the tables, nothing goes round in circles."""
    run = picture.runs[run_id]
    known = above | {run_id}
    below = [child for child in picture.children.get(run_id, ()) if child in picture.runs and child not in known]
    return Explanation(
        run_id=run.id,
        type=run.type,
        status=run.status,
        reason=reason_of(run, picture),
        sentence=sentence(run, picture),
        details=details(run, picture),
        children=tuple(_explain(child, picture, known) for child in below),
        at=picture.at,
    )
