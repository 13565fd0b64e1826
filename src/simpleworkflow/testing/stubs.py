"""Stand-ins for steps and for workflows that live elsewhere, and a record of how they were called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Stub:
    """What stands in: a function, a value to return, or an error to raise."""

    name: str
    does: Callable[..., Any] | None = None
    returns: Any = None
    raises: BaseException | type[BaseException] | None = None
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    """(args, kwargs) of each call, in order, as the call has them: the object of a method is not among them."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        if self.raises is not None:
            raise self.raises
        if self.does is None:
            return self.returns
        value = self.does(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value
