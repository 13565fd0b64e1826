"""Workflows: a name, a handler, and what the handler's signature says about input and output.

A function is looked at once, when it is decorated, and refused there if it cannot be a workflow: a mistake in the
code must not become a failed run at night. Names that come from the database only ever select from this registry;
nothing is imported because of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, get_type_hints

from ..model.duration import Duration, seconds
from ..model.errors import InvalidPolicy, InvalidWorkflow
from ..model.names import check_type
from ..model.records import Definition
from ..model.retry import DEFAULT_RETRY, Retry
from .context import Context, SyncContext

I = TypeVar("I")  # noqa: E741 - input and output
O = TypeVar("O")  # noqa: E741

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
    description: str | None = field(default=None, repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the plain function, as a test may want to."""
        if self.handler is None:
            raise InvalidWorkflow(f"{self.name} is only declared here; its code lives in another service")
        return self.handler(*args, **kwargs)

    @property
    def definition(self) -> Definition:
        return Definition(
            self.name, description=self.description, on_cancel=self.on_cancel, dead_letter=self.dead_letter
        )


@dataclass(frozen=True, slots=True)
class Options:
    """What a workflow may be told about how to run it."""

    retry: Retry = DEFAULT_RETRY
    timeout: Duration | None = None
    lease: Duration | None = None
    concurrency: int | None = None
    dead_letter: str | None = None
    on_cancel: str | None = None


def make_workflow(name: str | None, handler: Any, options: Options, locals_: dict[str, Any]) -> Workflow[Any, Any]:
    """Check the function and its options; every refusal says what to write instead."""
    label = _check_callable(name, handler)
    type_name = check_type(name or handler.__name__)
    is_async = inspect.iscoroutinefunction(handler)
    hints = _hints(label, handler, locals_)
    parameters = _check_parameters(label, handler, is_async, hints)
    takes_input = len(parameters) == 2
    if options.concurrency is not None and options.concurrency < 1:
        raise InvalidPolicy(f"{label}: concurrency must be at least 1, not {options.concurrency}")
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
        timeout=None if options.timeout is None else seconds(options.timeout, what=f"timeout of {label}"),
        lease=None if options.lease is None else _lease(options.lease, label),
        concurrency=options.concurrency,
        dead_letter=None if options.dead_letter is None else check_type(options.dead_letter),
        on_cancel=None if options.on_cancel is None else check_type(options.on_cancel),
        description=inspect.getdoc(handler),
    )


def _lease(value: Duration, label: str) -> float:
    lease = seconds(value, what=f"lease of {label}")
    if lease < 0.3:
        raise InvalidPolicy(f"{label}: a lease under 300ms cannot be renewed in time")
    return lease


def _check_callable(name: str | None, handler: Any) -> str:
    label = getattr(handler, "__qualname__", repr(handler))
    if inspect.isclass(handler) or not callable(handler):
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
    kind = "async def" if is_async else "def"
    example = f"{kind} {getattr(handler, '__name__', 'handler')}(ctx: swf.{'Context' if is_async else 'SyncContext'}, order: Order)"
    if not needed:
        raise InvalidWorkflow(
            f"{label} takes no ctx: the first parameter of a workflow is its context; write {example}"
        )
    if len(needed) > 2 or odd:
        raise InvalidWorkflow(
            f"{label} takes {len(needed) - 1 + len(odd)} inputs: a workflow has at most one, and it is the payload; "
            f"put the values into one dataclass or dict: {example}"
        )
    wrong = SyncContext if is_async else Context
    if hints.get(needed[0].name) is wrong:
        right = "Context" if is_async else "SyncContext"
        raise InvalidWorkflow(f"{label} is written with {kind}, so its ctx is a swf.{right}, not swf.{wrong.__name__}")
    return needed


def _hints(label: str, handler: Any, locals_: dict[str, Any]) -> dict[str, Any]:
    try:
        return get_type_hints(handler, localns=locals_, include_extras=True)
    except NameError as error:
        raise InvalidWorkflow(
            f"{label}: an annotation cannot be resolved ({error}); import or define it first"
        ) from error
    except TypeError:
        return {}


class Registry:
    """The workflows of one App, by name."""

    def __init__(self) -> None:
        self._workflows: dict[str, Workflow[Any, Any]] = {}

    def add(self, workflow: Workflow[Any, Any]) -> None:
        known = self._workflows.get(workflow.name)
        if known is not None and known.handler is not None and workflow.handler is not None:
            raise InvalidWorkflow(f"{workflow.name} is registered twice; give one of the two functions another name")
        if known is None or known.handler is None:
            self._workflows[workflow.name] = workflow

    def find(self, name: str) -> Workflow[Any, Any] | None:
        return self._workflows.get(name)

    def served(self) -> Iterator[Workflow[Any, Any]]:
        """The workflows that have a handler here."""
        return (workflow for workflow in self._workflows.values() if workflow.handler is not None)
