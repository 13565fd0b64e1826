"""Which run a person means: a whole id, or enough of its beginning to mean one run.

Ids are long, and people copy what fits on their screen. The beginning of an id is a range on the primary key, so
finding its runs costs nothing. Ids begin with the time of their creation: runs that were created within about a minute
share their first eight digits, so a short beginning is often ambiguous, and then the candidates are listed. What can
be no id at all is a mistake of the caller (exit code 2); an id that no run has is told by whoever looks it up (exit
code 1).
"""

from __future__ import annotations

from string import hexdigits
from typing import TYPE_CHECKING
from uuid import UUID

from .common import CALLED_WRONGLY, fail

if TYPE_CHECKING:
    from ..app import App

FEWEST_DIGITS = 8
MOST_LISTED = 10


def run_id_of(app: App, text: str) -> UUID:
    """The id of the run that is meant; ends the command when none or several are."""
    digits = text.strip().replace("-", "")
    if len(digits) > 32 or not set(digits) <= set(hexdigits) or len(digits) < FEWEST_DIGITS:
        shown = ascii(text if len(text) <= 60 else text[:60] + "…")
        wanted = f"give the whole id or at least its first {FEWEST_DIGITS} digits (0-9, a-f)"
        fail(f"{shown} is not the id of a run; {wanted}", CALLED_WRONGLY)
    if len(digits) == 32:
        return UUID(digits)
    found = app.sync.find(digits, limit=MOST_LISTED + 1)
    if not found:
        fail(f"there is no run whose id begins with {digits.lower()}")
    if len(found) > 1:
        shown = "".join(f"\n  {run.id}  {run.type}  {run.status}" for run in found[:MOST_LISTED])
        more = "\n  and more" if len(found) > MOST_LISTED else ""
        fail(f"several runs have ids that begin with {digits.lower()}; which one?{shown}{more}")
    return found[0].id
