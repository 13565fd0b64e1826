"""The durable calls of one execution, a part for each kind; each part is made when it is first used.

All parts stand on one memo (memo.py): where a call has its place, what is on record there, and how to add to it. Steps,
signals and children are known by the names that people gave them, so that one turned into another is noticed; the names
of all other pieces start with @.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..branches import BRANCH, IN_STEP
from ..lazily import Lazily
from .children import Children
from .memo import Memo
from .races import Races
from .signals import Signals
from .steps import Steps
from .telling import Telling
from .timers import Timers
from .values import Values

if TYPE_CHECKING:
    from ..stage import Stage


class DurableCalls:
    steps = Lazily[Steps](lambda self: Steps(self.memo))
    timers = Lazily[Timers](lambda self: Timers(self.memo))
    signals = Lazily[Signals](lambda self: Signals(self.memo))
    values = Lazily[Values](lambda self: Values(self.memo))
    children = Lazily[Children](lambda self: Children(self.memo))
    races = Lazily[Races](lambda self: Races(self.memo, lambda: self.__dict__.get("children")))
    telling = Lazily[Telling](lambda self: Telling(self.memo))

    def __init__(self, stage: Stage) -> None:
        self.memo = Memo(stage)

    def is_replaying(self) -> bool:
        """Whether the calling code only repeats what an earlier execution has done."""
        branch = BRANCH.get()
        return branch is not None and IN_STEP.get() is None and self.memo.replay.is_under_way(branch.path)

    def close(self) -> None:
        """The code is over. References in circles are cut, so that memory is free at once."""
        self.memo.close()
        self.__dict__.clear()
