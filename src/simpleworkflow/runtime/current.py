"""The workflow whose own code is calling: its ctx without passing it on, and its steps called as plain functions.

    ctx = swf.current()          # in a helper or a library hook that gets no ctx passed
    receipt = await charge(1)    # a decorated step: the same as ctx.step(charge, 1)

Inside a step there is none: a step is one piece, and what it calls is not recorded by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.errors import InvalidWorkflow
from .branches import BRANCH, IN_STEP
from .tasks import CURRENT

if TYPE_CHECKING:
    from .context import Context, SyncContext
    from .step import StepFunction


def current_execution() -> Any:
    """None inside a step and outside of workflows."""
    execution = CURRENT.get()
    return execution if execution is not None and IN_STEP.get() is None and BRANCH.get() is not None else None


def current() -> Context | SyncContext | None:
    """The ctx of the workflow whose own code is calling; None inside a step and outside of workflows.

    A Context in an `async def` workflow, a SyncContext in a plain `def` one.
    """
    execution = current_execution()
    ctx: Context | SyncContext | None = None if execution is None else execution.ctx
    return ctx


def call_step(execution: Any, step: StepFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A decorated step that a workflow calls as if it were a function."""
    in_async, is_async = execution.workflow.is_async, step.facts.is_async
    if is_async != in_async:
        kinds = "a plain def", "an async def"
        told = f"{step} is {kinds[is_async]} step and its workflow {kinds[in_async]}"
        refusal = InvalidWorkflow(f"{told}; write {'await ' if in_async else ''}ctx.step({step}, …)")
        execution.durable.memo.made.refused = refusal  # also when the code catches it: the step has not run
        raise refusal
    if in_async:
        return execution.durable.steps.step(step, args, kwargs, above=3)
    return execution.block(lambda: execution.durable.steps.step(step, args, kwargs))
