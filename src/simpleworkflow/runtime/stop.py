"""Why an execution is stopped."""

from __future__ import annotations

from enum import Enum


class Stop(Enum):
    """Why an execution is being stopped, and so how it ends."""

    LOST = "lost"
    HELD = "held"
    DRAIN = "drain"
    DEADLINE = "deadline"
    CROWDED = "crowded"
    SUSPEND = "suspend"
    MISFIT = "misfit"
    """What is on record does not fit the code."""
