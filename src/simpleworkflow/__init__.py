"""simpleworkflow: durable workflows for Python, on one SQLite file or on PostgreSQL.

import simpleworkflow as swf
app = swf.App()

@app.workflow("demo.greet.v1")
async def greet(ctx: swf.Context, name: str) -> str:
    return f"Hello, {name}!"

with app.sync.worker():
    print(app.sync.run(greet, "Ada"))

Nothing is loaded until a name is used: then all of public.py is. Names of the seeds' spellings come from `compat`.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

_INTENTS = {"Client", "Intent", "IntentPoller", "WorkflowExecutor", "WorkflowRun"}
_PGQRS = {
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

if TYPE_CHECKING:
    from . import testing as testing

    # The seeds' spellings, for those who come from simple-workflow and pgqrs; see docs/coming-from.md.
    from .compat.intents import Client as Client
    from .compat.intents import Intent as Intent
    from .compat.intents import IntentPoller as IntentPoller
    from .compat.intents import WorkflowExecutor as WorkflowExecutor
    from .compat.intents import WorkflowRun as WorkflowRun
    from .compat.pgqrs import Consumer as Consumer
    from .compat.pgqrs import Pause as Pause
    from .compat.pgqrs import RunRecord as RunRecord
    from .compat.pgqrs import RunStatus as RunStatus
    from .compat.pgqrs import Store as Store
    from .compat.pgqrs import SyncWorkflowContext as SyncWorkflowContext
    from .compat.pgqrs import TransientError as TransientError
    from .compat.pgqrs import TransientStepError as TransientStepError
    from .compat.pgqrs import WorkflowContext as WorkflowContext
    from .compat.pgqrs import consumer as consumer
    from .compat.pgqrs import open_store as open_store
    from .compat.pgqrs import poll_all as poll_all
    from .compat.pgqrs import workflow as workflow
    from .public import *  # noqa: F403 - that is what it is for
    from .public import __all__ as __all__
else:  # hidden from type checkers, which would believe that every name exists

    def __getattr__(name: str) -> object:
        found = _look_up(name)
        globals()[name] = found  # the next one finds it without asking
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_public_names(), *_INTENTS, *_PGQRS, "testing"})

    def _look_up(name: str) -> object:
        # Never `from . import x` here: that asks this package for x, which ends here again.
        if name == "testing":
            import simpleworkflow.testing as found

            return found
        if name in _INTENTS:
            from .compat import intents

            return getattr(intents, name)
        if name in _PGQRS:
            from .compat import pgqrs

            return getattr(pgqrs, name)
        # What tools probe for (__path__, __wrapped__) loads nothing.
        if name == "__all__" or (not name.startswith("_") and name in _public_names()):
            import simpleworkflow.public as public

            return getattr(public, name)
        raise AttributeError(f"module 'simpleworkflow' has no attribute {name!r}")

    def _public_names() -> list[str]:
        import simpleworkflow.public as public

        return getattr(public, "__all__", [])  # none while it is still being loaded
