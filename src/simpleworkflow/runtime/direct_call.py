"""A workflow called like a function, `await ship(order)`: no run would exist, and nothing in it would be durable.

Right in a unit test that passes a context that it has made itself, so any object goes that may stand for one. Refused
is what cannot: no context at all, a plain value, an input in its place, or a wrong number of arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..model.errors import InvalidWorkflow

if TYPE_CHECKING:
    from .registry import Workflow

_PLAIN = (bool, int, float, str, bytes, list, tuple, dict, set, frozenset)


def check_call(workflow: Workflow[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """The plain function, when it is called with a context first; else InvalidWorkflow says how to run it."""
    handler = workflow.handler
    if handler is None:
        raise InvalidWorkflow(f"{workflow.name} is only declared here; its code lives in another service")
    signature = inspect.signature(handler)
    parameters = list(signature.parameters)
    try:
        context = signature.bind(*args, **kwargs).arguments[parameters[0]]
    except TypeError:
        fits = False
    else:
        fits = not isinstance(context, _PLAIN) and workflow.input_type not in type(context).__mro__[:-1]
    if not fits:
        raise InvalidWorkflow(_how_to_run(workflow, [getattr(handler, "__name__", "workflow"), *parameters[1:2]]))
    return handler


def _how_to_run(workflow: Workflow[Any, Any], words: Sequence[str]) -> str:
    name, *input = words
    given = ", ".join(words)
    in_a_test = ", ".join(["ctx", *input])
    wait, app = ("await ", "app") if workflow.is_async else ("", "app.sync")
    return (
        f"{workflow.name} is a workflow: write {wait}{app}.run({given}), or in another workflow "
        f"{wait}ctx.run({given}); a test that calls its function passes a context first: {name}({in_a_test})"
    )
