"""The calls of App that start runs.

Bad input is refused before anything is sent. Inside a workflow a trigger is a durable call: it starts a child once,
however often the code runs (inside.py). A trigger with connection= is written in the caller's own transaction
(caller_connection.py); every other one goes through the engine, which writes it together with others that come at the
same time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar, Unpack, overload

from ..model.duration import Duration
from ..model.errors import InvalidInput, SimpleWorkflowError, StoreError
from ..model.records import Created, NewRun
from ..runtime import tracing
from ..runtime.execute import Execution
from ..runtime.registry import Workflow
from ..store.operations import workers
from .caller_connection import create_on
from .checks import check_served, similar_name
from .client import Client
from .handle import RunHandle
from .inside import awaited, remember_created, start_children, workflow_here
from .request import TriggerOptions, check_options, new_run, target_of

log = logging.getLogger("simpleworkflow.client")

I = TypeVar("I")  # noqa: E741 - input and output
O = TypeVar("O")  # noqa: E741


class TriggerCalls:
    _client: Client

    @cached_property
    def _looked_up(self) -> set[str]:
        """Types that were triggered by name and have been looked at."""
        return set()

    @overload
    async def trigger(self, workflow: Workflow[None, O], /, **options: Unpack[TriggerOptions]) -> RunHandle[O]: ...

    @overload
    async def trigger(
        self, workflow: Workflow[I, O], input: I, /, **options: Unpack[TriggerOptions]
    ) -> RunHandle[O]: ...

    @overload
    async def trigger(
        self, workflow: str, input: Any = None, /, **options: Unpack[TriggerOptions]
    ) -> RunHandle[Any]: ...

    @awaited("app.trigger")
    async def trigger(self, workflow: Any, input: Any = None, /, **options: Unpack[TriggerOptions]) -> RunHandle[Any]:
        """Accept one run; when this returns it survives the loss of everything but the database's disk."""
        check_options(options)
        target = target_of(workflow, self._client.registry)
        new = new_run(target, input, options, limit=self._client.settings.max_payload)
        (created,) = await self._accept([new], options)
        if isinstance(workflow, str) and workflow not in self._looked_up and options.get("connection") is None:
            await self._look_at_name(workflow)
        return RunHandle(self._client, created.id, target.output_type, is_new=created.is_new)

    async def _look_at_name(self, name: str) -> None:
        """A name that nobody knows, and that is much like one of ours, is most likely mistyped. Asked once per name."""
        self._looked_up.add(name)
        held = [one.name for one in self._client.definitions()]
        meant = None if name in held else similar_name(name, held)
        if meant is None or workflow_here(self._client.home) is not None:
            return
        with suppress(StoreError):  # the run is there, whatever becomes of this question
            if await self._client.run(workers.definitions([name])):
                return
            log.warning("nobody has ever served %s, which was triggered: did you mean %r?", name, meant)

    @overload
    async def trigger_many(
        self, workflow: Workflow[I, O], inputs: Iterable[I], /, **options: Unpack[TriggerOptions]
    ) -> list[RunHandle[O]]: ...

    @overload
    async def trigger_many(
        self, workflow: str, inputs: Iterable[Any], /, **options: Unpack[TriggerOptions]
    ) -> list[RunHandle[Any]]: ...

    @awaited("app.trigger_many")
    async def trigger_many(
        self, workflow: Any, inputs: Iterable[Any], /, **options: Unpack[TriggerOptions]
    ) -> list[RunHandle[Any]]:
        """Accept one run per input, in few statements, in the order given.

        Every input is checked before the first run is created. Many hundreds are sent in several statements: when the
        database fails in between, some of them exist. Inside your own transaction (connection=) it is all or none.
        """
        check_options(options)
        if options.get("id") is not None or options.get("idempotency_key") is not None:
            raise InvalidInput("trigger_many makes many runs: id= and idempotency_key= belong to trigger")
        target = target_of(workflow, self._client.registry)
        new = [new_run(target, one, options, limit=self._client.settings.max_payload) for one in inputs]
        accepted = await self._accept(new, options) if new else []
        return [RunHandle(self._client, created.id, target.output_type, is_new=created.is_new) for created in accepted]

    @overload
    async def run(
        self, workflow: Workflow[None, O], /, *, timeout: Duration | None = None, **options: Unpack[TriggerOptions]
    ) -> O: ...

    @overload
    async def run(
        self,
        workflow: Workflow[I, O],
        input: I,
        /,
        *,
        timeout: Duration | None = None,
        **options: Unpack[TriggerOptions],
    ) -> O: ...

    @overload
    async def run(
        self, workflow: str, input: Any = None, /, *, timeout: Duration | None = None, **options: Unpack[TriggerOptions]
    ) -> Any: ...

    @awaited("app.run")
    async def run(
        self, workflow: Any, input: Any = None, /, *, timeout: Duration | None = None, **options: Unpack[TriggerOptions]
    ) -> Any:
        """Trigger, wait, and return the output."""
        if options.get("connection") is not None:
            raise InvalidInput("run(connection=) would wait for a run that exists only after your commit; use trigger")
        handle = await self.trigger(workflow, input, **options)
        return await handle.result(timeout)

    def _accept(self, new: Sequence[NewRun], options: TriggerOptions) -> Awaitable[list[Created]]:
        """Plain functions as far as nothing is awaited: this is the hot path of programs that trigger much."""
        here = workflow_here(self._client.home)
        return self._create(new) if here is None and not options else self._accept_with(new, options, here)

    async def _accept_with(
        self, new: Sequence[NewRun], options: TriggerOptions, here: Execution | None
    ) -> list[Created]:
        connection, require = options.get("connection"), options.get("require")
        if connection is not None:
            return await self._create(new, connection)
        if require is not None and here is None:
            await check_served(self._client.engine, new[0].type, require)
        if here is None:
            return await self._create(new)
        if options.get("idempotency_key") is None and options.get("id") is None:
            return await start_children(here, new)
        return [await remember_created(here, new[0].type, lambda: self._create_one(new[0]))]

    async def _create_one(self, new: NewRun) -> Created:
        (created,) = await self._create([new])
        return created

    def _create(self, new: Sequence[NewRun], connection: Any = None) -> Awaitable[list[Created]]:
        """Now, and not as a child of a workflow: this is where a trace begins, or goes on."""
        traced = tracing.look()
        return self._insert(new, connection) if traced is None else self._create_traced(traced, new, connection)

    async def _create_traced(self, traced: tracing.Tracing, new: Sequence[NewRun], connection: Any) -> list[Created]:
        with traced.trigger(new[0].type, len(new)) as span:
            made = await self._insert([one._replace(traceparent=span.carried) for one in new], connection)
            span.made(made)
            return made

    async def _insert(self, new: Sequence[NewRun], connection: Any) -> list[Created]:
        if connection is None:
            answers = await self._client.engine.create(new)
        else:
            answers = await create_on(connection, self._client.address, new, self._client.clock)
        return [_accepted(answer) for answer in answers]


def _accepted(answer: Created | SimpleWorkflowError) -> Created:
    if isinstance(answer, SimpleWorkflowError):
        raise answer
    return answer
