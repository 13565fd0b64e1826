"""The identity of a recorded piece, `branch/inner/name#count` or `branch/name#=key`, and its parts.

Names that begin with @ are not the code's: what they mark is beside the record of a call of the same branch.
"""

from __future__ import annotations

import re

SKIPPED = "@skipped "
"""Signals that did not fit and were passed over: the code never asks for these records."""
NEW = "@new "
"""Calls of which somebody has said that they are new, whatever else is on record: the code does not ask for these."""

_SUPERSEDED = re.compile(r"^@superseded \d+ ")
"""Before the identity of a failed step that a retry of the run does again, with the epoch of the failure."""


def unmarked(step_id: str) -> str:
    """The identity as the code knows it."""
    return _SUPERSEDED.sub("", step_id)


def path_of(step_id: str) -> str:
    """The branch that a record belongs to; keys after the # may hold slashes of their own."""
    head = step_id.partition("#")[0]
    return head[: head.rfind("/") + 1]


def name_of(step_id: str) -> str:
    """What the piece is called inside its branch."""
    return step_id.partition("#")[0].rpartition("/")[2]


def as_new(step_id: str) -> str:
    """Where it is on record that the call at this place is new."""
    path = path_of(step_id)
    return f"{path}{NEW}{step_id.removeprefix(path)}"
