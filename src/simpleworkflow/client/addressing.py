"""Which run a call is about: by its id, or by the business key it was triggered with (`idempotency_key=`).

A key is looked up in one place, by one statement on its unique index; a call by id asks nothing. A key belongs to one
run at a time: deleting the run frees it. So a handle keeps the run that its key named when it was first used, and
inside a workflow the answer is on record, so that a replay means the same run, also if another has the key then.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, cast
from uuid import UUID

from ..model.errors import InvalidInput, RunNotFound
from ..model.names import check_key
from ..store.operations import runs
from .base import Base
from .inside import workflow_here
from .request import RunId, run_uuid

SHOWN = 60


class Addressing(Base):
    async def _meant(self, run_id: RunId | None, key: str | None) -> UUID:
        """The run that is meant."""
        wanted = check_address(run_id, key)
        if key is None or wanted is not None:
            return cast("UUID", wanted)
        here = workflow_here(self._home)
        if here is None:
            return await self._with_key(key)

        async def found() -> str:
            return str(await self._with_key(key))

        name = f"run of key {_as_name(key)}"
        told: str = await here.call(lambda: here.durable.remember(name, found, str))
        return UUID(told)

    async def _with_key(self, key: str) -> UUID:
        run_id = await self._engine.run(runs.with_key(key))
        if run_id is None:
            raise RunNotFound(f"there is no run with the key {key!r}; the key of a deleted run is free again")
        return run_id


def check_address(run_id: RunId | None, key: str | None) -> UUID | None:
    """Exactly one of id and key says which run; the id, if it is that one."""
    if key is None:
        if run_id is None:
            raise InvalidInput("say which run: give its id, or key= with the idempotency key it was triggered with")
        return run_uuid(run_id)
    if run_id is not None:
        raise InvalidInput(f"give the id of a run or key=, not both (id={str(run_id)!r}, key={key!r})")
    check_key(key, "key")
    return None


def by_key(run_id: Any, name: Any, last: Any, missing: Any) -> tuple[Any, Any]:
    """The arguments behind the run when a key says which run: signal("approved", payload, key="order-4711")."""
    if run_id is None:
        return name, last
    if _is_id(run_id) or (name is not None and last is not missing):
        raise InvalidInput(f"give the id of a run or key=, not both (id={str(run_id)!r})")
    return (run_id, last) if name is None else (run_id, name)


def _is_id(value: Any) -> bool:
    try:
        UUID(str(value))
    except ValueError:
        return False
    return True


def _as_name(key: str) -> str:
    """A key may hold anything printable; the name of a record may not, and two keys never share one."""
    plain = "".join("_" if char in "#/" else char for char in key[:SHOWN])
    return f"{plain} {sha256(key.encode()).hexdigest()[:12]}"
