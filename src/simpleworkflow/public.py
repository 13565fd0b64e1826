"""Every name that `import simpleworkflow as swf` offers, in one place; loaded when the first of them is asked for.

The package itself is empty until then (`__init__.py`), so that `simpleworkflow --help`, shell completion and tools that
only look at the version do not pay for an event loop, a JSON codec and the whole engine. Type checkers read this file
as if it were the package. Programs never import it: `swf.App`, not `swf.public.App`.

simple-workflow's names are here because its programs import them from `simpleworkflow`; pgqrs's are in compat.pgqrs.
"""

from . import testing
from .app import App
from .client.doctor.findings import Finding
from .client.generated.sync import SyncRunHandle
from .client.handle import RunHandle
from .client.namespaces.schedules import Backfill
from .compat.intents import Client, Intent, IntentPoller, WorkflowExecutor, WorkflowRun
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
    InvalidSchedule,
    InvalidURL,
    InvalidWorkflow,
    MissingExtra,
    MissingMigration,
    NonDeterminismError,
    NotRunnable,
    PayloadError,
    PermanentError,
    PortUnavailable,
    ResultTimeout,
    RetryAfter,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunNotFound,
    RunTimedOut,
    ScheduleNotFound,
    SignalTimeout,
    SimpleWorkflowError,
    StepFailed,
    StepTimeout,
    StoreBusy,
    StoreError,
    StoreSlow,
    StoreUnavailable,
)
from .model.explanation import Explanation
from .model.records import Event, HistoryEvent, Run, Signal
from .model.retention import PruneResult, Retention
from .model.retry import Retry
from .model.schedule import Schedule, ScheduledSlot
from .model.states import EventType, Reason, Status
from .runtime.context import ChildHandle, Context, SyncContext
from .runtime.current import current
from .runtime.durable.races import RaceResult
from .runtime.failing import Failure
from .runtime.registry import Workflow
from .runtime.step import StepInfo, step, step_info
from .runtime.tracing import trace_with

__all__ = [
    "AlreadyFinished",
    "App",
    "Backfill",
    "ChildHandle",
    "Client",
    "Context",
    "Event",
    "EventType",
    "ExecutionStopped",
    "Explanation",
    "Failure",
    "Finding",
    "HistoryEvent",
    "IdempotencyConflict",
    "Intent",
    "IntentPoller",
    "InvalidDuration",
    "InvalidFilter",
    "InvalidInput",
    "InvalidName",
    "InvalidPolicy",
    "InvalidSchedule",
    "InvalidURL",
    "InvalidWorkflow",
    "MissingExtra",
    "MissingMigration",
    "NonDeterminismError",
    "NotRunnable",
    "PayloadError",
    "PermanentError",
    "PortUnavailable",
    "PruneResult",
    "RaceResult",
    "Reason",
    "ResultTimeout",
    "Retention",
    "Retry",
    "RetryAfter",
    "Run",
    "RunCancelled",
    "RunEnded",
    "RunFailed",
    "RunHandle",
    "RunNotFound",
    "RunTimedOut",
    "Schedule",
    "ScheduleNotFound",
    "ScheduledSlot",
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
    "StoreSlow",
    "StoreUnavailable",
    "SyncContext",
    "SyncRunHandle",
    "Workflow",
    "WorkflowExecutor",
    "WorkflowRun",
    "current",
    "step",
    "step_info",
    "testing",
    "trace_with",
]
