"""Steps: functions whose outcome is remembered, and how to run them.

    @swf.step(retry=swf.Retry(max_attempts=5), timeout="30s")
    async def charge(order: Order) -> str: ...

A decorated step is still a plain function when called directly. Options live on the step, or on a copy made by
`charge.options(key=...)`, never beside the function's own arguments.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, ParamSpec, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

from ..model import payload
from ..model.duration import Duration, seconds
from ..model.errors import InvalidName, InvalidWorkflow
from ..model.retry import Retry
from .branches import IN_STEP, check_name

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

ONCE = Retry(max_attempts=1)
"""Steps run once unless told otherwise: the run itself has attempts, and three times three would surprise."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    name: str | None = None
    key: str | None = None
    retry: Retry = ONCE
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class StepInfo:
    """What the body of a step may know about itself."""

    name: str
    run_id: UUID
    idempotency_key: str
    """The same for every execution of this step: hand it to systems that can recognise a repetition."""
    epoch: int
    """Grows with every execution of the run: hand it to systems that can refuse an older one."""
    attempt: int
    """Failed attempts of this step before: 0 the first time."""


def step_info() -> StepInfo:
    """Inside a step: who it is."""
    body = IN_STEP.get()
    if body is None:
        raise InvalidWorkflow("step_info() tells a step about itself; it was called outside of one")
    return StepInfo(body.name, body.lease.id, f"{body.lease.id}:{body.step_id}", body.lease.epoch, body.attempt)


class StepFunction(Generic[P, R_co]):
    """A function that `ctx.step` runs with its own options; called directly it is the plain function."""

    def __init__(self, function: Callable[P, R_co], options: StepOptions) -> None:
        self.function = function
        self.step_options = options
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.function(*args, **kwargs)

    def options(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
    ) -> StepFunction[P, R_co]:
        """The same step with other options, for one call."""
        changes: dict[str, Any] = {"name": name, "key": key, "retry": retry}
        changes["timeout"] = None if timeout is None else seconds(timeout, what="timeout of a step")
        chosen = {name: value for name, value in changes.items() if value is not None}
        return StepFunction(self.function, replace(self.step_options, **chosen))


class StepDecorator:
    def __init__(self, options: StepOptions) -> None:
        self._options = options

    def __call__(self, function: Callable[P, R_co], /) -> StepFunction[P, R_co]:
        return StepFunction(function, self._options)


def step(
    *, name: str | None = None, key: str | None = None, retry: Retry = ONCE, timeout: Duration | None = None
) -> StepDecorator:
    """Give a function the options with which ctx.step shall run it."""
    limit = None if timeout is None else seconds(timeout, what="timeout of a step")
    return StepDecorator(StepOptions(None if name is None else check_name(name), key, retry, limit))


@dataclass(frozen=True, slots=True)
class Call:
    """One durable call of a function: resolved once, where ctx.step was written."""

    name: str
    function: Callable[..., Any]
    options: StepOptions
    is_async: bool
    what: str
    """What its output is called in messages."""
    read: Callable[[str], Any]
    """Its output as the annotated type."""
    is_simple: bool = field(init=False)
    """Nothing but awaiting it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_simple", self.is_async and self.options.timeout is None)


def resolve(first: Any, rest: tuple[Any, ...]) -> tuple[Call, tuple[Any, ...]]:
    """(what to call, its positional arguments) from `ctx.step(fn, *args)` or `ctx.step("name", fn, *args)`."""
    given = None
    if isinstance(first, str):
        if not rest:
            raise InvalidWorkflow(f"ctx.step({first!r}) names a step but gives no function to run")
        given, first, rest = first, rest[0], rest[1:]
    if not callable(first):
        raise InvalidWorkflow(f"ctx.step runs functions; {first!r} cannot be called (write ctx.step(fn, *args))")
    try:
        call = _call(first, given)
    except TypeError:  # it cannot be hashed
        call = _call.__wrapped__(first, given)
    if _STAND_INS:
        other = next((other for real, other in _STAND_INS.items() if real is _plain(call.function)), None)
        if other is not None:
            call = replace(call, function=other, is_async=_is_async(other))
    return call, rest


@functools.lru_cache(maxsize=1024)
def _call(first: Any, given: str | None) -> Call:
    """The same function is looked at once, not at every call."""
    options = first.step_options if isinstance(first, StepFunction) else StepOptions()
    function = first.function if isinstance(first, StepFunction) else first
    name = given if given is not None else options.name or getattr(_plain(function), "__name__", None)
    if name is None or name == "<lambda>":
        what = "a lambda" if name else f"a {type(function).__name__}"
        raise InvalidName(f'{what} has no name to remember it by; write ctx.step("name", …)')
    what = f"output of step {name}"
    read = payload.reader(output_type(_plain(function)), what=what)
    return Call(check_name(name), function, options, _is_async(function), what, read)


_STAND_INS: dict[Any, Callable[..., Any]] = {}


@contextmanager
def stand_in(function: Any, other: Callable[..., Any]) -> Iterator[None]:
    """For tests: whenever a workflow runs this function as a step, the other one is called instead."""
    key = _plain(function)
    before = _STAND_INS.get(key)
    _STAND_INS[key] = other
    try:
        yield
    finally:
        if before is None:
            _STAND_INS.pop(key, None)
        else:
            _STAND_INS[key] = before


def _plain(function: Any) -> Any:
    """The function inside partials and decorated steps."""
    while isinstance(function, functools.partial | StepFunction):
        function = function.func if isinstance(function, functools.partial) else function.function
    return function


def _is_async(function: Any) -> bool:
    target = _plain(function)
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(getattr(target, "__call__", None))  # noqa: B004


def output_type(function: Any) -> Any:
    """The annotated return type, so that an output has it on first execution and after a crash alike."""
    try:
        return _output_type(function)
    except TypeError:  # it cannot be hashed
        return _output_type.__wrapped__(function)


@functools.lru_cache(maxsize=1024)
def _output_type(function: Any) -> Any:
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        hint = get_type_hints(target, include_extras=True).get("return", Any)
    except (NameError, TypeError, AttributeError):
        return Any
    return get_args(hint)[-1] if get_origin(hint) in (Awaitable, Coroutine) else hint
