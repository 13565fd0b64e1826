"""simpleworkflow: durable workflows for Python, on one SQLite file or on PostgreSQL.

import simpleworkflow as swf
app = swf.App()

@app.workflow("demo.greet.v1")
async def greet(ctx: swf.Context, name: str) -> str:
    return f"Hello, {name}!"

with app.sync.worker():
    print(app.sync.run(greet, "Ada"))
"""

from typing import TYPE_CHECKING, Any

from .app import App
from .client.handle import RunHandle
from .client.sync import SyncRunHandle
from .config import Settings
from .model.errors import (
    AlreadyFinished,
    ExecutionStopped,
    IdempotencyConflict,
    InvalidDuration,
    InvalidFilter,
    InvalidInput,
    InvalidName,
    InvalidPolicy,
    InvalidURL,
    InvalidWorkflow,
    MissingExtra,
    MissingMigration,
    NonDeterminismError,
    NotRunnable,
    PayloadError,
    PermanentError,
    ResultTimeout,
    RetryAfter,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunNotFound,
    RunTimedOut,
    SignalTimeout,
    SimpleWorkflowError,
    StepFailed,
    StepTimeout,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from .model.records import Event, Happening, Run, Signal
from .model.retry import Retry
from .model.states import EventType, Status
from .runtime.context import ChildHandle, Context, SyncContext
from .runtime.races import Winner
from .runtime.registry import Workflow
from .runtime.step import StepInfo, step, step_info

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

__version__ = "0.1.0"

__all__ = [
    "AlreadyFinished",
    "App",
    "ChildHandle",
    "Context",
    "Event",
    "EventType",
    "ExecutionStopped",
    "Happening",
    "IdempotencyConflict",
    "InvalidDuration",
    "InvalidFilter",
    "InvalidInput",
    "InvalidName",
    "InvalidPolicy",
    "InvalidURL",
    "InvalidWorkflow",
    "MissingExtra",
    "MissingMigration",
    "NonDeterminismError",
    "NotRunnable",
    "PayloadError",
    "PermanentError",
    "ResultTimeout",
    "Retry",
    "RetryAfter",
    "Run",
    "RunCancelled",
    "RunEnded",
    "RunFailed",
    "RunHandle",
    "RunNotFound",
    "RunTimedOut",
    "Settings",
    "Signal",
    "SignalTimeout",
    "SimpleWorkflowError",
    "Status",
    "StepFailed",
    "StepInfo",
    "StepTimeout",
    "StoreBusy",
    "StoreError",
    "StoreUnavailable",
    "SyncContext",
    "SyncRunHandle",
    "Winner",
    "Workflow",
    "step",
    "step_info",
]

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


def __getattr__(name: str) -> Any:
    if name == "testing":
        import simpleworkflow.testing

        return simpleworkflow.testing
    if name in _INTENTS:
        from .compat import intents

        return getattr(intents, name)
    if name in _PGQRS:
        from .compat import pgqrs

        return getattr(pgqrs, name)
    raise AttributeError(f"module 'simpleworkflow' has no attribute {name!r}")
