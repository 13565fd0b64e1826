"""What may be done with a run whose records and whose code do not fit each other.

A new deploy meets runs that older code began. Holding such a run costs an operator a look; ending it costs its effects
and its children, and going on may repeat an effect that has been paid for. So a run is held unless somebody said
otherwise, and goes on with the code that fits.
"""

from __future__ import annotations

from typing import Literal, TypeVar, get_args

from .errors import InvalidPolicy

OnChanged = Literal["hold", "warn", "run"]
"""A step is new, and one that is on record is not asked for any more."""
OnMisfit = Literal["hold", "fail"]
"""The input or a record cannot be read as the code's types, or is of another kind than the code asks for."""
OnSignalMisfit = Literal["raise", "skip"]
"""A signal does not fit the type that the code waits for."""

ON_CHANGED, ON_MISFIT, ON_SIGNAL_MISFIT = get_args(OnChanged), get_args(OnMisfit), get_args(OnSignalMisfit)

C = TypeVar("C", bound=str)


def check_choice(what: str, value: C, choices: tuple[str, ...]) -> C:
    if value not in choices:
        known = ", ".join(map(repr, choices[:-1]))
        raise InvalidPolicy(f"{what} must be {known} or {choices[-1]!r}, not {value!r}")
    return value
