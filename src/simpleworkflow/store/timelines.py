"""Which history of the database the connections of one driver see.

A standby that takes over counts one timeline further, and may lack the last commits of the server before. Leases may be
taken on the timeline that has been accepted; another one is accepted when whatever was held has been verified there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary


class Timelines:
    def __init__(self) -> None:
        self.current: str | None = None
        """Seen last; None where no server says so."""
        self.on_new: Callable[[], None] = lambda: None
        self._accepted: str | None = None
        self._of: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    @property
    def is_accepted(self) -> bool:
        return self.current == self._accepted

    def accept(self, timeline: str | None) -> None:
        self._accepted = timeline

    def saw(self, connection: Any, timeline: str | None) -> bool:
        """Whether it is another one than before. None: a standby, or a server that does not say."""
        if timeline is None:
            return False
        self._of[connection] = timeline
        if timeline == self.current:
            return False
        is_first, self.current = self.current is None, timeline
        if is_first:
            self._accepted = timeline
        return not is_first

    def is_of_now(self, connection: Any) -> bool:
        """Whether its server is not one whose place another has taken."""
        return self._of.get(connection) == self.current
