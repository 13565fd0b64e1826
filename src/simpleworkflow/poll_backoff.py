"""How often to look for what nobody may tell us of: soon after something happened, seldom at rest.

Hints can be lost, a pooler passes none on, and a SQLite file tells nobody that it was written to. So there are looks,
and looks have two prices: those that find nothing, and the wait of what came just after one. A fixed pause pays one
of them all day. This one grows with the silence: what comes next waits for an eighth of the rest before, or for the
shortest pause, at most; what happens alone is followed by some forty to fifty looks at the usual bounds; and nobody has
to draw a line between busy and idle. Looks that take long come less often, and after one that failed there is no hurry.

What a look took is time on the wall: far from the database it is mostly the way, near a busy one mostly work. Nobody
here can tell them apart, so the pause is some times as long, not many times.
"""

from __future__ import annotations

from .clock import monotonic

PART = 1 / 8
REST = 4
"""A pause is at least so many times as long as the look before it took, unless something calls for one sooner."""


class PollBackoff:
    """`shortest` is the pause, in seconds, between looks that follow each other most closely. While one look after the
    other finds something it grows up to `busy`: what comes all the time may gather."""

    def __init__(self, shortest: float, *, busy: float = 0.0) -> None:
        self._shortest = self._floor = shortest
        self._busy = max(busy, shortest)
        self._since = float("-inf")
        self._has_news = self._had_news = False

    def happened(self) -> None:
        """Something did: more may come soon."""
        self._since = monotonic()
        self._has_news = True

    def failed(self) -> None:
        """A look was in vain because nothing can be seen now: there is no hurry."""
        self._since = float("-inf")

    def pause(self, longest: float, took: float = 0.0) -> float:
        """Seconds until the next look, unless something calls for one before; `took`: what the last one took."""
        is_busy, self._had_news, self._has_news = self._has_news and self._had_news, self._has_news, False
        self._floor = min(2 * self._floor, self._busy) if is_busy else self._shortest
        return min(max((monotonic() - self._since) * PART, took * REST, self._floor), longest)
