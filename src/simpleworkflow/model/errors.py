"""Every exception that users can meet, in one tree.

    SimpleWorkflowError
    ├── InvalidName, InvalidDuration, InvalidPolicy, InvalidURL, InvalidWorkflow, InvalidFilter   (also ValueError)
    ├── InvalidSchedule         its zone, expression, name, payload or policy cannot be (also ValueError)
    ├── PayloadError            a value that JSON storage refuses
    ├── InvalidInput            JSON that does not fit the annotated type
    ├── MissingExtra            an optional package is not installed (also ImportError)
    ├── PortUnavailable         metrics cannot be served there (also OSError)
    ├── StoreError
    │   ├── StoreUnavailable    the database cannot be reached within the deadline
    │   │   └── StoreBusy       somebody's open transaction is in the way
    │   └── MissingMigration    the database has not been migrated for this version
    ├── RunNotFound, ScheduleNotFound   (also LookupError)
    ├── AlreadyFinished         a control call came too late
    ├── IdempotencyConflict     one key, two different requests
    ├── NotRunnable             require= found nothing that could run it, or the definition is disabled
    ├── RunEnded
    │   ├── RunFailed, RunCancelled, RunTimedOut
    ├── ResultTimeout           (also TimeoutError)
    ├── PermanentError          raised by handlers: do not retry
    ├── RetryAfter              raised by handlers: retry, but not before this long
    ├── StepFailed              a step has spent its attempts
    ├── StepTimeout, SignalTimeout  (also TimeoutError)
    └── Misfit                  what is on record does not fit the code (a PermanentError)
        └── NonDeterminismError     the code asks for another kind of thing than is on record, or leaves it out

    ExecutionStopped (BaseException)  the worker no longer owns the run; nothing you do now will be recorded

A class docstring is its default message, so that documentation and runtime say the same sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .class_names import class_name

_PASSING_ON = frozenset({"StepFailed", "RunFailed", "PermanentError", "RetryAfter"})
_DEEPEST = 5


class SimpleWorkflowError(Exception):
    """Something in simpleworkflow went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or _first_line_about(type(self)))


def _first_line_about(kind: type) -> str:
    """Of its docstring, or of what it is derived from: a class of the user's need not have one."""
    return next(text for one in kind.__mro__ if (text := (one.__doc__ or "").strip().partition("\n")[0]))


class InvalidName(SimpleWorkflowError, ValueError):
    """That is not a usable name."""


class InvalidDuration(SimpleWorkflowError, ValueError):
    """That is not a duration; write 30, "30s", "1h30m", "3 days" or a timedelta."""


class InvalidPolicy(SimpleWorkflowError, ValueError):
    """That retry policy or setting contradicts itself."""


class InvalidURL(SimpleWorkflowError, ValueError):
    """That is not a database URL that simpleworkflow knows."""


class InvalidWorkflow(SimpleWorkflowError, ValueError):
    """That function cannot be a workflow."""


class InvalidFilter(SimpleWorkflowError, ValueError):
    """That filter cannot select runs."""


class InvalidSchedule(SimpleWorkflowError, ValueError):
    """That cannot be a schedule."""


class PayloadError(SimpleWorkflowError, ValueError):
    """That value cannot be stored as JSON."""


class InvalidInput(SimpleWorkflowError, ValueError):
    """That JSON does not fit the annotated type."""

    def __init__(self, message: str | None = None, *, step_id: str = "") -> None:
        super().__init__(message)
        self.step_id = step_id
        """Where a workflow received it as a signal."""


class MissingExtra(SimpleWorkflowError, ImportError):
    """An optional package is missing."""


class PortUnavailable(SimpleWorkflowError, OSError):
    """Metrics cannot be served on that address."""


class StoreError(SimpleWorkflowError):
    """The database refused a statement."""


class StoreUnavailable(StoreError):
    """The database cannot be reached; a trigger may be repeated with the same id or idempotency key."""

    is_told = False
    """Whether the log has said already that the database is away."""


class StoreSlow(StoreUnavailable):
    """The database did not answer in time what it had been asked; it may have been too much at once."""


class StoreBusy(StoreUnavailable):
    """Somebody's open transaction holds what this call needs."""


class MissingMigration(StoreError):
    """The database has not been migrated; run: simpleworkflow migrate up"""


class RunNotFound(SimpleWorkflowError, LookupError):
    """There is no run with that id."""


class ScheduleNotFound(SimpleWorkflowError, LookupError):
    """There is no schedule of that name."""


class AlreadyFinished(SimpleWorkflowError):
    """The run has finished already; its outcome stands."""


class IdempotencyConflict(SimpleWorkflowError):
    """That key or id already belongs to a run with another type or payload."""


class NotRunnable(SimpleWorkflowError):
    """Nothing could run that workflow now."""


class Recorded(SimpleWorkflowError):
    """An error as it is on record."""

    error: dict[str, Any]
    """What was recorded of it: type, module, bases, message, traceback, and what else there was to say."""

    def is_a(self, kind: type[BaseException] | str | tuple[type[BaseException] | str, ...]) -> bool:
        """Whether the recorded error was of this class, or of one that is derived from it; of any of several.

        The original is not here, on no execution: it may have been raised long ago and elsewhere. Classes are known by
        module and qualified name, base classes included; text means either, or the plain name. An exception group is
        known by its members as well; an error that a child run only passed on (its own StepFailed), and a
        PermanentError or RetryAfter that was raised from another error, by that one.
        """
        kinds = kind if isinstance(kind, tuple) else (kind,)
        errors_inside = list(_each_error(self.error, _DEEPEST))
        return any(_is_named(one, details) for one in kinds for details in errors_inside)

    @property
    def data(self) -> Any:
        """What the exception had to say in JSON, by its method `__swf_data__`; None if it had nothing."""
        return next(
            (details["data"] for details in _each_error(self.error, _DEEPEST) if details.get("data") is not None), None
        )


def _each_error(details: Any, depth: int) -> Iterator[dict[str, Any]]:
    """A recorded error, the members of a group, and behind errors that only pass on another one, that one."""
    if not isinstance(details, dict) or depth <= 0:
        return
    yield details
    members = details.get("members")
    for member in members if isinstance(members, list) else []:
        yield from _each_error(member, depth - 1)
    if _passes_on(details):
        yield from _each_error(details.get("cause"), depth - 1)


def _is_named(kind: type[BaseException] | str, details: dict[str, Any]) -> bool:
    own, module, bases = str(details.get("type") or ""), details.get("module"), details.get("bases")
    names = [f"{module}.{own}" if module else own, *(bases if isinstance(bases, list) else ())]
    if kind is BaseException:
        return bool(own)
    if isinstance(kind, str):
        return any(name == kind or str(name).endswith(f".{kind}") for name in names)
    if not isinstance(kind, type):
        raise TypeError(f"is_a takes an exception class or its name, not {kind!r}")
    return class_name(kind) in names or (not module and own == kind.__qualname__)


def _passes_on(details: dict[str, Any]) -> bool:
    """Our own errors that say what another one did, on purpose."""
    is_ours = details.get("module") == __name__ and details.get("type") in _PASSING_ON
    return is_ours and not details.get("while_handling")


class RunEnded(Recorded):
    """The run ended without a result."""

    def __init__(
        self, message: str | None = None, *, run: Any = None, step_id: str = "", error: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.run = run
        self.error = error or (run.error if run is not None and run.error else {})
        self.step_id = step_id
        """Where a workflow waited for this run as its child."""


class RunFailed(RunEnded):
    """The run failed."""


class RunCancelled(RunEnded):
    """The run was cancelled."""


class RunTimedOut(RunEnded):
    """The run passed its deadline."""


class ResultTimeout(SimpleWorkflowError, TimeoutError):
    """The run has not finished yet."""


class PermanentError(SimpleWorkflowError):
    """The handler asked for no further attempts."""


class RetryAfter(SimpleWorkflowError):
    """The handler asked to be retried later."""

    def __init__(self, delay: Any, message: str | None = None) -> None:
        from .duration import human, seconds

        self.delay: float = seconds(delay, what="RetryAfter")
        super().__init__(message or f"asked to be retried in {human(self.delay)}")


class StepFailed(Recorded):
    """A step has spent its attempts; its error is on record and is the same on every replay."""

    def __init__(
        self, message: str | None = None, *, step: str = "", step_id: str = "", error: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.step = step
        self.step_id = step_id
        self.error = error or {}

    @property
    def is_permanent(self) -> bool:
        """Whether the step said that trying again would not help."""
        return bool(self.error.get("permanent"))

    @classmethod
    def recorded(cls, step: str, step_id: str, error_json: str | None) -> StepFailed:
        from .payload import decode

        error = decode(error_json or "{}", what="error")
        told = f"step {step} failed: {error.get('type')}: {error.get('message')}"
        return cls(told, step=step, step_id=step_id, error=error)


class StepTimeout(SimpleWorkflowError, TimeoutError):
    """The step took too long."""


class SignalTimeout(SimpleWorkflowError, TimeoutError):
    """No signal came in time."""

    def __init__(self, message: str | None = None, *, step_id: str = "") -> None:
        super().__init__(message)
        self.step_id = step_id


class Misfit(PermanentError):
    """What is on record does not fit the code."""

    def __init__(self, message: str | None = None, *, new: str | None = None) -> None:
        super().__init__(message)
        self.new = new
        """The place of a call that is not on record, and that may be one that is."""


class NonDeterminismError(Misfit):
    """What the code asks for is not what was recorded there."""


class ExecutionStopped(BaseException):
    """This worker no longer owns the run: stop, nothing you do now will be recorded."""
