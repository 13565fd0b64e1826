"""Workflows: a name, a handler, and what the handler's signature says about input and output.

A function is looked at once, when it is decorated, and refused there if it cannot be a workflow: a mistake in the
code must not become a failed run at night. Names that come from the database only ever select from this registry;
nothing is imported because of them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from types import CodeType
from typing import Any, Generic, Literal, TypeVar, get_type_hints

from ..model import payload
from ..model.duration import Duration, seconds
from ..model.errors import (
    InvalidInput,
    InvalidPolicy,
    InvalidSchedule,
    InvalidWorkflow,
    Misfit,
    PayloadError,
    PermanentError,
)
from ..model.names import AFTERMATH, check_type
from ..model.outbox import OutboxRule
from ..model.policies import ON_CHANGED, ON_MISFIT, OnChanged, OnMisfit, check_choice
from ..model.records import Definition
from ..model.retry import DEFAULT_RETRY, Retry
from ..model.schedule import NewSchedule
from .code_names import StepNames, codes_of, names_in
from .context import Context, SyncContext
from .direct_call import check_call
from .failing import ErrorHook

I = TypeVar("I")  # noqa: E741 - input and output
O = TypeVar("O")  # noqa: E741

MOST_CALLEES = 256
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, eq=False)
class Workflow(Generic[I, O]):
    """A workflow by name. Made by `@app.workflow` (with a handler) or `app.declare` (it lives elsewhere)."""

    name: str
    input_type: Any = Any
    output_type: Any = Any
    takes_input: bool = True
    handler: Callable[..., Any] | None = None
    is_async: bool = True
    retry: Retry = DEFAULT_RETRY
    timeout: float | None = None
    lease: float | None = None
    concurrency: int | None = None
    dead_letter: str | None = None
    on_cancel: str | None = None
    on_exhausted: Literal["fail", "hold"] = "fail"
    on_changed: OnChanged | None = None
    on_misfit: OnMisfit | None = None
    description: str | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """What it was made of, without what it has remembered since: that cannot be pickled."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @functools.cached_property
    def result_name(self) -> str:
        """What its result is called in messages."""
        return f"result of {self.name}"

    @functools.cached_property
    def _check_input(self) -> Callable[[str], Any]:
        return payload.reader(self.input_type, what=f"payload of {self.name}")

    @functools.cached_property
    def _read_input(self) -> Callable[[str], Any]:
        return payload.reader(self.input_type)

    @functools.cached_property
    def _read_output(self) -> Callable[[str], Any]:
        return payload.reader(self.output_type, what=self.result_name)

    @functools.cached_property
    def _keep_input(self) -> payload.Keeper:
        """Where the handler is elsewhere, what it makes of its input is for the other side to say."""
        return payload.keeper(self.input_type, "input")

    @functools.cached_property
    def _keep_output(self) -> payload.Keeper:
        return payload.keeper(self.output_type)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the plain function, as a test may want to: with a context of its own."""
        return check_call(self, args, kwargs)(*args, **kwargs)

    def encode_input(self, input: Any, *, limit: int) -> str:
        """The payload of a run, checked as the handler will read it; a refusal has created nothing."""
        if not self.takes_input and not _is_nothing(input):
            raise InvalidInput(f"{self.name} takes no input, but got {type(input).__name__}")
        what = f"payload of {self.name}"
        if self.handler is None and self.input_type in (Any, None):
            text = payload.encode(input, limit=limit, what=what)
        else:
            text = self._keep_input.write(input, limit=limit, what=what)
        if self.takes_input:
            self._check_input(text)
        return text

    def arguments(self, text: str, key: str | None = None, *, again: str = "resume") -> tuple[Any, ...]:
        """What the handler is called with, beside its context. `key` is the run's idempotency key; `again` is what is
        done with a run of a payload that does not fit, once there is code that does."""
        if not self.takes_input:
            self._refuse_input(text, key or "")
            return ()
        try:
            return (self._read_input(text),)
        except (InvalidInput, PayloadError) as error:
            raise Misfit(
                f"its payload does not fit {self.name}: {error}. Deploy code that fits it, then {again} it"
            ) from error

    def _refuse_input(self, text: str, key: str) -> None:
        """Data that the handler would never see. One that cleans up after another run need not take that run's data."""
        if text == "null" or key.startswith(AFTERMATH) or _is_nothing(payload.decode(text)):
            return
        raise Misfit(f"{self.name} takes no input, but this run has a payload; add a parameter, or send none")

    def encode_output(self, result: Any, *, limit: int) -> str:
        """What the handler returned, checked as its callers will read it."""
        try:
            text = self._keep_output.write(result, limit=limit, what=self.result_name)
            self._read_output(text)
        except PayloadError as error:
            raise PermanentError(f"its result cannot be stored: {error}") from error
        except InvalidInput as error:
            raise PermanentError(f"its result does not fit its annotation: {error}") from error
        return text

    @functools.cached_property
    def _names_beside(self) -> dict[frozenset[CodeType], StepNames]:
        return {}

    def names_beside(self, callee: Any) -> StepNames:
        """The names that its code can give to steps and children, apart from what this step refers to itself."""
        known, codes = self._names_beside, codes_of(callee)
        if codes not in known:
            if len(known) >= MOST_CALLEES:
                known.clear()
            known[codes] = names_in(self.handler, codes)
        return known[codes]

    @property
    def definition(self) -> Definition:
        return Definition(
            self.name,
            description=self.description,
            on_cancel=self.on_cancel,
            dead_letter=self.dead_letter,
            on_exhausted=None if self.on_exhausted == "fail" else self.on_exhausted,
        )


def _is_nothing(value: Any) -> bool:
    """No input; also as producers in other languages write it."""
    return value is None or (type(value) is dict and not value)


@dataclass(frozen=True, slots=True)
class Options:
    """What a workflow may be told about how to run it."""

    retry: Retry = DEFAULT_RETRY
    timeout: Duration | None = None
    lease: Duration | None = None
    concurrency: int | None = None
    on_failure: Workflow[Any, Any] | str | None = None
    on_cancel: Workflow[Any, Any] | str | None = None
    on_exhausted: Literal["fail", "hold"] = "fail"
    on_changed: OnChanged | None = None
    on_misfit: OnMisfit | None = None


def make_workflow(name: str | None, handler: Any, options: Options, locals_: dict[str, Any]) -> Workflow[Any, Any]:
    """Check the function and its options; every refusal says what to write instead."""
    label = _check_callable(name, handler)
    type_name = check_type(name or handler.__name__)
    is_async = inspect.iscoroutinefunction(handler)
    hints = _hints(label, handler, locals_)
    parameters = _check_parameters(label, handler, is_async, hints)
    takes_input = len(parameters) == 2
    if not isinstance(options.retry, Retry):
        raise InvalidPolicy(f"{label}: retry must be a Retry(...), not {options.retry!r}")
    return Workflow(
        name=type_name,
        input_type=hints.get(parameters[1].name, Any) if takes_input else None,
        output_type=hints.get("return", Any),
        takes_input=takes_input,
        handler=handler,
        is_async=is_async,
        retry=options.retry,
        timeout=None if options.timeout is None else _timeout(options.timeout, label),
        lease=None if options.lease is None else _lease(options.lease, label),
        concurrency=None if options.concurrency is None else _concurrency(options.concurrency, label),
        dead_letter=_other("on_failure", options.on_failure, type_name),
        on_cancel=_other("on_cancel", options.on_cancel, type_name),
        on_exhausted=_exhausted(options.on_exhausted, label),
        on_changed=options.on_changed and check_choice(f"{label}: on_changed", options.on_changed, ON_CHANGED),
        on_misfit=options.on_misfit and check_choice(f"{label}: on_misfit", options.on_misfit, ON_MISFIT),
        description=inspect.getdoc(handler),
    )


def _timeout(value: Duration, label: str) -> float:
    timeout = seconds(value, what=f"timeout of {label}")
    if timeout == 0:
        raise InvalidPolicy(f"{label}: a timeout of zero ends every run before it starts; leave it out for none")
    return timeout


def _lease(value: Duration, label: str) -> float:
    lease = seconds(value, what=f"lease of {label}")
    if lease < 0.3:
        raise InvalidPolicy(f"{label}: a lease under 300ms cannot be renewed in time")
    return lease


def _concurrency(value: Any, label: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidPolicy(f"{label}: concurrency must be a whole number of at least 1, not {value!r}")
    return value


def _exhausted(value: Any, label: str) -> Literal["fail", "hold"]:
    if value not in {"fail", "hold"}:
        raise InvalidPolicy(f"{label}: on_exhausted must be 'fail' or 'hold', not {value!r}")
    return "hold" if value == "hold" else "fail"


def _other(option: str, other: Any, own: str) -> str | None:
    """The name of the workflow that is started when a run of this one ends so."""
    if other is None:
        return None
    name = other.name if isinstance(other, Workflow) else other
    if not isinstance(name, str):
        given = f"the step {other}" if hasattr(other, "step_options") else repr(other)
        raise InvalidPolicy(f"{own}: {option} takes a workflow or its name, not {given}")
    if check_type(name) == own:
        raise InvalidPolicy(f"{own}: {option} names the workflow itself; its failures would start it for ever")
    return name


def _check_callable(name: str | None, handler: Any) -> str:
    label = getattr(handler, "__qualname__", repr(handler))
    if hasattr(handler, "step_options"):
        raise InvalidWorkflow(f"{label} is a step: a function is either a workflow or a step; take @swf.step away")
    if not inspect.isroutine(handler) and not isinstance(handler, functools.partial):
        raise InvalidWorkflow(f"{label} cannot be a workflow: write a function, async def or def, that takes ctx first")
    if getattr(handler, "__name__", "") == "<lambda>":
        raise InvalidWorkflow("a lambda cannot be a workflow: it has no name to find it by after a restart; use def")
    if inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler):
        raise InvalidWorkflow(f"{label} yields; a workflow returns its result once: use return instead of yield")
    if name is None and not hasattr(handler, "__name__"):
        raise InvalidWorkflow(f"{label} has no name of its own; write @app.workflow('domain.action.v1')")
    return str(label)


def _check_parameters(label: str, handler: Any, is_async: bool, hints: dict[str, Any]) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(handler).parameters.values())
    needed = [p for p in parameters if p.kind in _POSITIONAL]
    odd = [p for p in parameters if p.kind not in _POSITIONAL and p.default is inspect.Parameter.empty]
    example = _example(handler, is_async)
    if not needed:
        raise InvalidWorkflow(
            f"{label} takes no ctx: the first parameter of a workflow is its context; write {example}"
        )
    if any(hints.get(p.name) in (Context, SyncContext) for p in needed[1:]):
        raise InvalidWorkflow(f"{label}: ctx must come first (a method cannot be a workflow); write {example}")
    if len(needed) > 2 or odd:
        raise InvalidWorkflow(
            f"{label} takes {len(needed) - 1 + len(odd)} inputs: a workflow has at most one, and it is the payload; "
            f"put the values into one dataclass or dict: {example}"
        )
    if len(needed) == 2 and needed[1].default is not inspect.Parameter.empty:
        raise InvalidWorkflow(
            f"{label}: {needed[1].name} has a default, but the input of a run is always stored; drop the default"
        )
    _check_context(label, needed[0].name, hints, is_async, example)
    return needed


def _example(handler: Any, is_async: bool) -> str:
    name = getattr(handler, "__name__", "handler")
    return f"async def {name}(ctx: swf.Context, order: Order)" if is_async else f"def {name}(ctx: swf.SyncContext)"


def _check_context(label: str, name: str, hints: dict[str, Any], is_async: bool, example: str) -> None:
    """Unannotated is believed; annotated as anything that is no context is a handler that forgot its ctx."""
    right, wrong = (Context, SyncContext) if is_async else (SyncContext, Context)
    hint = hints.get(name, Any)
    if hint is wrong:
        kind = "async def" if is_async else "def"
        raise InvalidWorkflow(
            f"{label} is written with {kind}, so its ctx is a swf.{right.__name__}, not swf.{wrong.__name__}"
        )
    if hint is not Any and not (isinstance(hint, type) and issubclass(right, hint)):
        shown = getattr(hint, "__name__", hint)
        raise InvalidWorkflow(
            f"{label} takes no ctx: its first parameter is {name}: {shown}, but the first parameter of a workflow is "
            f"its context; write {example}"
        )


def _hints(label: str, handler: Any, locals_: dict[str, Any]) -> dict[str, Any]:
    function = handler.func if isinstance(handler, functools.partial) else handler
    try:
        return get_type_hints(function, localns=locals_, include_extras=True)
    except (NameError, AttributeError, SyntaxError) as error:
        raise InvalidWorkflow(
            f"{label}: an annotation cannot be resolved ({error}); import or define it first, outside TYPE_CHECKING"
        ) from error
    except TypeError:
        return {}


class Registry:
    """The workflows of one App, by name."""

    def __init__(self) -> None:
        self._workflows: dict[str, Workflow[Any, Any]] = {}
        self._schedules: dict[str, NewSchedule] = {}
        self.changes = 0
        """Grows whenever a workflow is added or removed, so that caches know."""
        self.outbox_rules: list[OutboxRule] = []
        """Which lifecycle events go to the outbox; a worker tells the database when it starts."""
        self.error_hooks: list[ErrorHook] = []
        """What to call with every failure."""

    def add_error_hook(self, hook: ErrorHook) -> None:
        if not callable(hook) or any(map(inspect.iscoroutinefunction, (hook, type(hook).__call__))):
            raise InvalidWorkflow(
                "an error hook is a plain def that takes a Failure; it is called in the worker's loop"
            )
        self.error_hooks.append(hook)

    def add(self, workflow: Workflow[Any, Any]) -> None:
        known = self._workflows.get(workflow.name)
        if known is not None and known.handler is not None and workflow.handler is not None:
            raise InvalidWorkflow(f"{workflow.name} is registered twice; give one of the two functions another name")
        if known is None or known.handler is None:
            self._workflows[workflow.name] = workflow
            self.changes += 1

    def replace(self, workflow: Workflow[Any, Any]) -> Workflow[Any, Any] | None:
        """Put this one in the place of another of the same name; returns the other."""
        before = self._workflows.get(workflow.name)
        self._workflows[workflow.name] = workflow
        self.changes += 1
        return before

    def find(self, name: str) -> Workflow[Any, Any] | None:
        return self._workflows.get(name)

    def by_name(self, name: str) -> Workflow[Any, Any]:
        """What is known here under that name; else a workflow whose types are somebody else's."""
        known = self.find(name) if isinstance(name, str) else None
        return Workflow(check_type(name)) if known is None else known

    def add_schedule(self, schedule: NewSchedule) -> None:
        if schedule.name in self._schedules:
            raise InvalidSchedule(
                f"there are two schedules of the name {schedule.name}; give each its own: @app.schedule(..., name=)"
            )
        self._schedules[schedule.name] = schedule

    def schedules_of(self, workflows: Iterable[Workflow[Any, Any]]) -> list[NewSchedule]:
        """The schedules that stand beside these workflows."""
        types = {workflow.name for workflow in workflows}
        return [schedule for schedule in self._schedules.values() if schedule.type in types]

    def served(self) -> Iterator[Workflow[Any, Any]]:
        """The workflows that have a handler here."""
        return (workflow for workflow in self._workflows.values() if workflow.handler is not None)
