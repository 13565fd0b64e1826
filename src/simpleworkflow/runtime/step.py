"""Steps: functions whose outcome is remembered, and how to run them.

    @swf.step(retry=swf.Retry(max_attempts=5), timeout="30s")
    async def charge(order: Order) -> str: ...

In a workflow, `await charge(order)` means `await ctx.step(charge, order)`; inside a step and outside of workflows a
decorated step is the plain function that it was. Options live on the step, or on a copy made by
`charge.options(key=...)`, never beside the function's own arguments.

The danger is memory of the wrong object. What is learned about a function (its name, its output type) is kept on the
step itself, or, for a plain function, only if it lives as long as its module: a closure or a partial belongs to one run
and must go with it. Nothing is ever looked up by equality: the object that was given is the object that is called.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import (
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)
from uuid import UUID

from ..model import payload
from ..model.duration import Duration, seconds
from ..model.errors import InvalidInput, InvalidName, InvalidPolicy, InvalidWorkflow
from ..model.retry import Retry
from ..model.type_cache import lives_as_long_as_its_module
from .branches import IN_STEP, check_name
from .current import call_step, current_execution

P = ParamSpec("P")
Q = ParamSpec("Q")
R_co = TypeVar("R_co", covariant=True)

ONCE = Retry(max_attempts=1)
"""Steps run once unless told otherwise: the run itself has attempts, and three times three would surprise."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    name: str | None = None
    key: str | None = None
    retry: Retry = ONCE
    timeout: float | None = None
    formerly: tuple[str, ...] = ()
    """Names that this step had before: what is on record under them is its own."""


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
    """A function that a workflow runs as a step, with options of its own; elsewhere it is the plain function."""

    def __init__(self, function: Callable[P, R_co], options: StepOptions, original: Original | None = None) -> None:
        self.function = function
        """What is called. Who puts another one here keeps the name and the output type of the decorated one."""
        self.step_options = options
        self._original = Original(function) if original is None else original
        self._call: Call | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        execution = current_execution()
        if execution is None:
            return self.function(*args, **kwargs)
        outcome: R_co = call_step(execution, self, args, kwargs)
        return outcome

    def __str__(self) -> str:
        return _shown(self.function)

    @overload
    def __get__(self, instance: None, owner: type) -> StepFunction[P, R_co]: ...
    @overload
    def __get__(
        self: StepFunction[Concatenate[Any, Q], R_co], instance: object, owner: type | None = None
    ) -> StepFunction[Q, R_co]: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> StepFunction[..., R_co]:
        """A decorated method belongs to its object, as any method does."""
        if instance is None:
            return self
        return StepFunction(types.MethodType(self.function, instance), self.step_options, self._original)

    @property
    def facts(self) -> Facts:
        facts, original = self._original.facts, self._original.function
        if self.function is original or getattr(self.function, "__func__", None) is original:
            return facts
        return facts._replace(is_async=is_async(plain(self.function)))

    @property
    def call(self) -> Call:
        """Made once, and again when the function is another one; it belongs to this step and goes with it."""
        if self._call is None or self._call.function is not self.function:
            self._call = _make_call(self.function, self.step_options, self.facts, self.step_options.name)
        return self._call

    def options(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
    ) -> StepFunction[P, R_co]:
        """The same step with other options, for one call."""
        changes: dict[str, Any] = {"name": name, "key": key, "retry": retry and _retry(retry)}
        changes["timeout"] = None if timeout is None else seconds(timeout, what="timeout of a step")
        chosen = {name: value for name, value in changes.items() if value is not None}
        return StepFunction(self.function, replace(self.step_options, **chosen), self._original)


class Original:
    """The function that was decorated, and what is learned about it when a step is first called."""

    __slots__ = ("_facts", "function")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._facts: Facts | None = None

    @property
    def facts(self) -> Facts:
        if self._facts is None:
            self._facts = facts_of(self.function)
        return self._facts


class StepDecorator:
    def __init__(self, options: StepOptions) -> None:
        self._options = options

    def __call__(self, function: Callable[P, R_co], /) -> StepFunction[P, R_co]:
        if isinstance(function, StepFunction):
            raise InvalidWorkflow(f"{_shown(function)} is a step already; decorate it once, or write .options(…)")
        if isinstance(function, staticmethod | classmethod):
            kind = type(function).__name__
            raise InvalidWorkflow(f"write @{kind} above @swf.step: a {kind} is no function yet")
        _refuse_workflow(function, "cannot be a step as well; decorate a plain function")
        if not callable(function):
            raise InvalidWorkflow(f"swf.step decorates a function; {function!r} cannot be called")
        return StepFunction(function, self._options)


@overload
def step(function: Callable[P, R_co], /) -> StepFunction[P, R_co]: ...
@overload
def step(
    *,
    name: str | None = None,
    key: str | None = None,
    retry: Retry = ONCE,
    timeout: Duration | None = None,
    formerly: Iterable[str] = (),
) -> StepDecorator: ...
def step(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    key: str | None = None,
    retry: Retry = ONCE,
    timeout: Duration | None = None,
    formerly: Iterable[str] = (),
) -> Any:
    """Make a function a step: @swf.step, or @swf.step(retry=swf.Retry(max_attempts=5), timeout="30s").

    name: how its records are called; the function's name unless given.
    key: takes the place of the count in the identity of its records.
    retry: how often and how soon a failed attempt is tried again; one attempt unless given.
    timeout: how long an attempt may take.
    formerly: names that it had before, so that records of runs under way are found after a rename.
    """
    limit = None if timeout is None else seconds(timeout, what="timeout of a step")
    if isinstance(function, str):
        raise InvalidWorkflow(f"write @swf.step(name={function!r})")
    if not isinstance(formerly, Iterable):
        raise InvalidName(f"formerly= of a step takes a name or several, not {formerly!r}")
    names = (formerly,) if isinstance(formerly, str) else tuple(formerly)
    former = tuple(check_name(one, "former step") for one in names)
    options = StepOptions(None if name is None else check_name(name), key, _retry(retry), limit, former)
    decorate = StepDecorator(options)
    return decorate if function is None else decorate(function)


def _retry(value: Any) -> Retry:
    if not isinstance(value, Retry):
        told = f"write retry=swf.Retry(max_attempts={value})" if type(value) is int else "write swf.Retry(…)"
        raise InvalidPolicy(f"retry= of a step takes a Retry, not {value!r}; {told}")
    return value


class Facts(NamedTuple):
    """What is learned by looking at a function."""

    name: str | None
    is_async: bool
    output: Any
    """The annotated type of what it returns, so that an output is of that type also when it comes from its record."""


class Call:
    """One durable call of a function: what to run, under which name, and how to read what it returned."""

    __slots__ = ("function", "is_async", "is_simple", "keeper", "name", "options", "own_name", "read", "shown", "what")

    def __init__(self, name: str, function: Callable[..., Any], options: StepOptions, facts: Facts) -> None:
        self.name = name
        self.own_name = facts.name
        """That of the function, whatever name the step was given."""
        self.function = function
        self.options = options
        self.shown = f"step({name})"
        self.what = f"output of step {name}"
        """What its output is called in messages."""
        self.read: Callable[[str], Any] = payload.reader(facts.output, what=self.what)
        """Its output as the annotated type."""
        self.keeper = payload.keeper(facts.output)
        """Writes its output so that it can be read as that."""
        self.runs(function, facts.is_async)

    def runs(self, function: Callable[..., Any], is_async: bool) -> None:
        self.function = function
        self.is_async = is_async
        self.is_simple = is_async and self.options.timeout is None
        """Nothing but awaiting it."""


def resolve(first: Any, rest: tuple[Any, ...]) -> tuple[Call, tuple[Any, ...]]:
    """(what to call, its positional arguments) from `ctx.step(fn, *args)` or `ctx.step("name", fn, *args)`."""
    given = None
    if isinstance(first, str):
        if not rest:
            raise InvalidWorkflow(f"ctx.step({first!r}) names a step but gives no function to run")
        given, first, rest = first, rest[0], rest[1:]
    call = _MODULE_FUNCTIONS.get(first) if given is None and type(first) is types.FunctionType else None
    if call is not None:
        pass  # a function of a module: it has been looked at
    elif isinstance(first, StepFunction) or isinstance(first := bound(first), StepFunction):
        call = first.call if given is None else _make_call(first.function, first.step_options, first.facts, given)
    else:
        _refuse_workflow(first, f"is a workflow: write ctx.run({_shown(first)}, …)")
        if inspect.iscoroutine(first):
            told = "ctx.step takes a function and its arguments, and got the call itself"
            raise InvalidWorkflow(
                f"{told}: write ctx.step(fn, *args); a decorated step may be awaited as await fn(*args)"
            )
        if not callable(first):
            raise InvalidWorkflow(f"ctx.step runs functions; {first!r} cannot be called (write ctx.step(fn, *args))")
        call = _call_of_a_function(first, given)
    for replaced in replacements:
        call = replaced(call)
    return call, rest


NO_OPTIONS = StepOptions()
MOST_REMEMBERED = 10_000


def _call_of_a_function(function: Any, given: str | None) -> Call:
    made = _make_call(function, NO_OPTIONS, facts_of(function), given)
    if given is None and type(function) is types.FunctionType and lives_as_long_as_its_module(function):
        if len(_MODULE_FUNCTIONS) >= MOST_REMEMBERED:
            _MODULE_FUNCTIONS.clear()  # a notebook that defines its functions again and again
        _MODULE_FUNCTIONS[function] = made
    return made


def _make_call(function: Any, options: StepOptions, facts: Facts, given: str | None) -> Call:
    name = given if given is not None else options.name or facts.name
    if name is None or name == "<lambda>":
        what = "a lambda" if name else f"a {type(function).__name__}"
        raise InvalidName(f'{what} has no name to remember it by; write ctx.step("name", …)')
    return Call(check_name(name), function, options, facts)


def _refuse_workflow(function: Any, told: str) -> None:
    if hasattr(function, "takes_input") and hasattr(function, "handler"):
        raise InvalidWorkflow(f"{_shown(function)} {told}")


def refuse_function(given: Any, *, is_inside: bool) -> None:
    """Where a workflow is wanted, a step or another function gets the line to write. `is_inside`: it was ctx.run."""
    if isinstance(given, type) or not callable(given):
        return
    name, is_step = _shown(given), isinstance(bound(given), StepFunction)
    if is_inside:
        remedy = f"write ctx.step({name}, …)" + ("" if is_step else ", or decorate it with @app.workflow")
    elif is_step:
        remedy = "call it in a function that is decorated with @app.workflow, and give that"
    else:
        remedy = "decorate it with @app.workflow"
    refusal = InvalidWorkflow if is_inside else InvalidInput
    raise refusal(f"{name} is a {'step' if is_step else 'function'} and no workflow: {remedy}")


def _shown(function: Any) -> str:
    return str(getattr(getattr(function, "handler", None) or function, "__name__", function))


_MODULE_FUNCTIONS: dict[types.FunctionType, Call] = {}
"""Only functions that live as long as their module: a closure, a partial or a bound method may belong to one run, and
whatever it refers to would stay in memory with it. Functions are equal only to themselves."""


def facts_of(function: Any) -> Facts:
    found = plain(function)
    if isinstance(found, type):
        return Facts(found.__name__, False, found)  # what a class returns is one of its own
    return Facts(getattr(found, "__name__", None), is_async(found), _output_type(found))


replacements: list[Callable[[Call], Call]] = []
"""For tests: each may put another function into a call that a workflow makes."""


def bound(function: Any) -> Any:
    """From Python 3.13 on a classmethod no longer asks the step to bind itself: the step of that class is meant."""
    if isinstance(function, types.MethodType) and isinstance(function.__func__, StepFunction):
        return function.__func__.__get__(function.__self__)
    return function


def plain(function: Any) -> Any:
    """The function inside partials, static methods and decorated steps."""
    while True:
        function = bound(function)
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, StepFunction):
            function = function.function
        elif isinstance(function, staticmethod):
            function = function.__func__
        else:
            return function


def is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _output_type(plain: Any) -> Any:
    target = plain if inspect.isroutine(plain) else getattr(plain, "__call__", plain)  # noqa: B004
    if not getattr(target, "__annotations__", None):
        return Any
    try:
        hint = get_type_hints(target, include_extras=True).get("return", Any)
    except (NameError, TypeError, AttributeError) as error:
        return payload.Unresolved(str(error)) if "return" in target.__annotations__ else Any
    return get_args(hint)[-1] if get_origin(hint) in (Awaitable, Coroutine) else hint
