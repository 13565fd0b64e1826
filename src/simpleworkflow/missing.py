"""What `swf.NAME` says of a name that the package does not have: where it is, when we know.

pgqrs's names live in simpleworkflow.compat.pgqrs. `workflow` is the one that people type without knowing pgqrs, beside
`@swf.step()`: a workflow belongs to an App.
"""

from __future__ import annotations

import sys

_OF_PGQRS = {
    "Consumer",
    "Pause",
    "RunRecord",
    "RunStatus",
    "Store",
    "SyncWorkflowContext",
    "TransientError",
    "TransientStepError",
    "WorkflowContext",
    "consumer",
    "open_store",
    "poll_all",
    "workflow",
}
_WORKFLOW = (
    'a workflow belongs to an App: app = swf.App(), then @app.workflow("orders.fulfil.v1"); '
    "pgqrs's workflow(...) is in simpleworkflow.compat.pgqrs"
)


def missing(name: str) -> AttributeError | ImportError:
    """The error for a name that is not there; the caller is the package's `__getattr__`."""
    if name not in _OF_PGQRS:
        package = sys.modules["simpleworkflow"]
        return AttributeError(f"module 'simpleworkflow' has no attribute {name!r}", name=name, obj=package)
    sentence = _WORKFLOW if name == "workflow" else f"write: from simpleworkflow.compat.pgqrs import {name}"
    sentence = f"simpleworkflow has no {name}: {sentence}"
    # `from simpleworkflow import X` asks by hasattr, which would swallow the sentence of an AttributeError.
    if _importlib_asks():
        return ImportError(sentence, name="simpleworkflow")
    return AttributeError(sentence)


def _importlib_asks() -> bool:
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return frame.f_code.co_filename.startswith("<frozen importlib")
