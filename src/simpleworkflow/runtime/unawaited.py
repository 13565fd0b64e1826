"""A coroutine of a workflow's own code that was thrown away without ever being awaited.

`pay(ctx, order)` for an `async def pay` of the user's own does nothing, and the run would succeed without the payment.
Python knows: it warns when the object goes away, once per line and process, and without a word about the run. Here the
same news reaches the run whose code was executing.

The danger is to blame the innocent. Coroutines also go away unawaited when an exception takes the code elsewhere, when
a step or a library drops them, and when another run, or the garbage collector, lets go of the last reference. So the
run fails (made_calls.py) only when a statement of its own has thrown the value away: `pay(ctx, order)` alone on its
line, or as a condition. Everything else is named in a warning of the run, and left to Python.

Where this Python has no such hook (python_internals.py), only its own warning remains.
"""

from __future__ import annotations

import gc
import logging
import os
from types import CoroutineType, FrameType
from typing import Any

from ..python_internals import hear_of_unawaited, throws_away
from .branches import BRANCH, IN_STEP
from .labels import about
from .tasks import CURRENT

log = logging.getLogger("simpleworkflow.execute")

_collecting = False


def install() -> None:
    """Once per process; asking again changes nothing."""
    if hear_of_unawaited(_tell_its_run):
        gc.callbacks.append(_note_collection)


def _note_collection(phase: str, _: object) -> None:
    global _collecting
    _collecting = phase == "start"


def _tell_its_run(coroutine: CoroutineType[Any, Any, Any], frame: FrameType | None) -> bool:
    """Whether the run has been told, and will fail for it. `frame`: the code that let the coroutine go."""
    execution: Any = CURRENT.get()
    if execution is None or _collecting or IN_STEP.get() is not None or BRANCH.get() is None or execution.is_over:
        return False
    if frame is None:
        return False
    name = coroutine.__qualname__.rpartition("<locals>.")[2]
    if throws_away(frame):
        place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        execution.durable.memo.made.dropped.append((name, place))
        return True
    told = "run %s (%s): a coroutine went away that was never awaited: %s"
    log.warning(told, execution.lease.id, execution.lease.type, name, extra=about(execution.lease))
    return False
