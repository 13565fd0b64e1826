"""Calls of the App that a workflow's own code makes.

The code of a workflow runs again after every resume, and a trigger made by it must not. So inside a workflow (not
inside one of its steps) a trigger of the same database becomes what ctx.trigger does: a child run, started once.
Waiting for such a child gives up the slot, as ctx.run does. A trigger with an idempotency key or an id of the caller's
own may find a run that is somebody else's, so it starts no child: its answer is remembered, and the key keeps it
single. Who waits for such a run stays in memory, without a slot. A signal gets an id that is the same on every replay.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast
from uuid import UUID

from ..model.duration import Duration
from ..model.errors import NonDeterminismError, ResultTimeout
from ..model.records import Created, NewRun
from ..runtime.branches import BRANCH, IN_STEP
from ..runtime.execute import Execution
from ..runtime.labels import about
from ..runtime.made_calls import caller
from ..runtime.tasks import CURRENT

log = logging.getLogger("simpleworkflow.client")

F = TypeVar("F", bound=Callable[..., Any])


def workflow_here(home: Callable[[], object]) -> Execution | None:
    """The execution whose own code is calling, when its runs live in this database."""
    owner = CURRENT.get()
    if not isinstance(owner, Execution) or IN_STEP.get() is not None or owner.services.home != home():
        return None
    return owner


def awaited(what: str) -> Callable[[F], F]:
    """For methods that are durable calls in a workflow's own code: a run must not succeed while one of them has not
    been awaited. `what` is how people write the call."""

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            made = method(self, *args, **kwargs)
            if CURRENT.get() is not None and (here := workflow_here(self._client.home)) is not None:
                here.durable.memo.made.add(f"{what} {id(made)}", made, what, caller(), BRANCH.get())
            return made

        return cast(F, call)

    return decorate


async def start_children(here: Execution, new: Sequence[NewRun]) -> list[Created]:
    """Start these as children."""

    async def start() -> list[UUID]:
        adopted = [here.durable.children.adopt(one, None) for one in new]
        await asyncio.gather(*(here.durable.children.start(*one) for one in adopted))
        return [child.id for child, _ in adopted]

    return [Created(child_id, True) for child_id in await here.call(start)]


async def remember_created(here: Execution, type: str, create: Callable[[], Coroutine[Any, Any, Created]]) -> Created:
    """A keyed trigger: made once, and the id that it gave is the same on every replay."""

    async def created() -> list[Any]:
        answer = await create()
        return [str(answer.id), answer.is_new]

    told = await here.call(lambda: here.durable.values.remember(f"trigger {type}", created, list[Any]))
    return Created(UUID(told[0]), bool(told[1]))


async def check_same_signal(here: Execution, was: str | None, now: str) -> None:
    """An earlier execution has sent a signal from the place of this one, which is not sent again: fine when only its
    payload is another one now. Another signal says that the code has changed."""
    if was == now:
        told = "run %s (%s): the signal %s was sent before with another payload, which counts"
        log.warning(told, here.lease.id, here.lease.type, now, extra=about(here.lease))
        return
    sent = "a signal of another run" if was is None else f"the signal {was}"
    told = (
        f"app.signal({now}) was not sent: an earlier execution has sent {sent} from this place. Deploy code that sends"
    )
    error = NonDeterminismError(f"{told} signals in the order in which it did, and resume the run")

    async def hold() -> BaseException:
        return here.durable.memo.misfit(error)

    raise await here.call(hold)


async def child_result(here: Execution, child_id: UUID, output_type: Any, timeout: Duration | None) -> Any:
    """Wait durably for a child that this workflow has started."""

    async def wait() -> Any:
        durable = here.durable
        if timeout is None:
            return await durable.children.child_result(child_id, output_type)
        contenders = [durable.children.child_result(child_id, output_type), durable.timers.sleep(timeout)]
        first = await durable.races.race(contenders)
        if first.index == 1:
            raise ResultTimeout(f"child run {child_id} has not finished within {timeout}")
        return first.value

    return await here.call(wait)
