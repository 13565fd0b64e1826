"""How often to look for what nobody may tell us of: soon after something happened, seldom at rest.

Hints can be lost, a pooler passes none on, and a SQLite file tells nobody that it was written to. So there are looks,
and looks have two prices: those that find nothing, and the wait of whoever came just after one. A fixed pause pays one
of them all day. This one grows with the silence: whoever comes waits for an eighth of the rest before at most, what
happens alone is followed by forty to fifty looks, and nobody has to draw a line between busy and idle.
"""

from __future__ import annotations

from .clock import monotonic

PART = 1 / 8


class Pace:
    """`shortest` is the pause, in seconds, between looks that follow each other most closely."""

    def __init__(self, shortest: float) -> None:
        self._shortest = shortest
        self._since = float("-inf")

    def happened(self) -> None:
        """Something did: more may come soon."""
        self._since = monotonic()

    def pause(self, longest: float) -> float:
        """Seconds until the next look, unless something calls for one before."""
        return min(max((monotonic() - self._since) * PART, self._shortest), longest)
