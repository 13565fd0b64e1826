"""A gate that is closed while the process forks.

SQLite keeps its locks and mutexes in memory that fork() copies: a child born in the middle of a transaction
would believe for ever that the file is locked by itself. So everything that touches a connection goes through this
gate, and a fork waits, briefly, until nobody is inside.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 5.0


class ForkGate:
    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """In a forked child: nobody is inside, whatever the parent's threads were doing."""
        self._change = threading.Condition()
        self._inside = 0
        self._forking = False

    def through(self, work: Callable[..., T], *args: Any) -> T:
        with self._change:
            self._change.wait_for(lambda: not self._forking)
            self._inside += 1
        try:
            return work(*args)
        finally:
            with self._change:
                self._inside -= 1
                self._change.notify_all()

    def close(self) -> None:
        with self._change:
            self._forking = True
            self._change.wait_for(lambda: self._inside == 0, timeout=PATIENCE)

    def open(self) -> None:
        with self._change:
            self._forking = False
            self._change.notify_all()


GATE = ForkGate()
os.register_at_fork(before=GATE.close, after_in_parent=GATE.open, after_in_child=GATE.renew)
