"""A coroutine of a workflow's own code that was thrown away without ever being awaited.

`pay(ctx, order)` for an `async def pay` of the user's own does nothing, and the run would succeed without the payment.
Python knows: it warns when the object goes away, once per line and process, and without a word about the run. Here the
same news reaches the run whose code has thrown the coroutine away, which fails with the line (made.py).

Python finds the function that warns by its name in the module `warnings`, which is no promise: where it is missing,
only Python's own warning remains. The danger is to blame another run: what the garbage collector finds may belong to
any, so what goes away during a collection is left to Python; so is what a library has thrown away by itself.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from types import CoroutineType, FrameType
from typing import Any

from .branches import BRANCH, IN_STEP
from .tasks import CURRENT

_NAME = "_warn_unawaited_coroutine"
_OURS = __package__.partition(".")[0]
_collecting = False


def install() -> None:
    """Once per process; asking again changes nothing."""
    usual = getattr(warnings, _NAME, None)
    if usual is None or getattr(usual, "is_ours", False):
        return

    def warn(coroutine: CoroutineType[Any, Any, Any]) -> None:
        if not _tell_its_run(coroutine, sys._getframe(1)):
            usual(coroutine)

    warn.is_ours = True  # type: ignore[attr-defined]
    setattr(warnings, _NAME, warn)
    gc.callbacks.append(_note_collection)


def _note_collection(phase: str, _: object) -> None:
    global _collecting
    _collecting = phase == "start"


def _tell_its_run(coroutine: CoroutineType[Any, Any, Any], frame: FrameType) -> bool:
    execution: Any = CURRENT.get()
    if execution is None or _collecting or IN_STEP.get() is not None or BRANCH.get() is None or execution.is_over:
        return False
    package = _package_of(getattr(execution.workflow.handler, "__module__", None))
    made_in = coroutine.cr_frame.f_globals.get("__name__") if coroutine.cr_frame is not None else None
    dropped_in = _package_of(frame.f_globals.get("__name__"))
    if package not in (dropped_in, _package_of(made_in)) and dropped_in != _OURS:
        return False
    name = coroutine.__qualname__.rpartition("<locals>.")[2]
    place = "" if dropped_in == _OURS else f" at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
    execution.durable.made.dropped.append((name, place))
    return True


def _package_of(module: Any) -> str:
    return str(module or "").partition(".")[0]
