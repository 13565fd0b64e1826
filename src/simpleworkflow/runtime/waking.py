"""Those who wait for one commit are woken together.

A future tells everybody who awaits it by a turn of the loop of their own: a handle is made, queued, and run. Behind a
commit of fifty steps that is fifty handles, which a worker that does little else can feel. A `Sleeper` keeps whoever
awaits it apart, and the `Waker` runs all of them in one turn, each in its own context, as the loop would have. To tasks
a Sleeper is a future like any other: it can be cancelled, and a second one who awaits it is told in the usual way.

Danger: whatever somebody raises while being woken must not leave those behind him asleep.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from .batch import resolve

T = TypeVar("T")

_NOBODYS = contextvars.Context()


class Sleeper(asyncio.Future[T]):
    """A future whose first listener is told by the Waker."""

    __slots__ = ("_context", "_listener", "_waker")
    _waker: Waker[T]
    _listener: Callable[[Any], object] | None
    _context: contextvars.Context

    def add_done_callback(
        self, listener: Callable[[Self], object], /, *, context: contextvars.Context | None = None
    ) -> None:
        if self._listener is None and not self.done():
            self._listener = listener
            self._context = contextvars.copy_context() if context is None else context  # an empty one is false
        else:
            super().add_done_callback(listener, context=context)

    def remove_done_callback(self, listener: Callable[[Self], object], /) -> int:
        is_first = self._listener == listener
        if is_first:
            self._listener = None
        return is_first + super().remove_done_callback(listener)

    def cancel(self, msg: Any | None = None) -> bool:
        is_new = super().cancel(msg)
        if is_new:
            self._waker.rouse(self)
        return is_new

    def set_result(self, result: T, /) -> None:
        super().set_result(result)
        self._waker.rouse(self)

    def set_exception(self, exception: type | BaseException, /) -> None:
        super().set_exception(exception)
        self._waker.rouse(self)

    hear = resolve
    """The answer, or why there is none: a `Reply` for whoever writes."""


class Waker(Generic[T]):
    def __init__(self) -> None:
        self._awake: deque[Sleeper[T]] = deque()

    def sleeper(self) -> Sleeper[T]:
        sleeper: Sleeper[T] = Sleeper(loop=asyncio.get_running_loop())
        sleeper._waker, sleeper._listener = self, None
        return sleeper

    def rouse(self, sleeper: Sleeper[T]) -> None:
        """In the next turn of the loop, with all others who are roused until then."""
        if sleeper._listener is None:
            return
        if not self._awake:
            sleeper.get_loop().call_soon(self._wake, context=contextvars.Context())
        self._awake.append(sleeper)

    def _wake(self) -> None:
        awake, self._awake = self._awake, deque()
        loop = asyncio.get_running_loop()
        try:
            while awake:
                sleeper = awake.popleft()
                # Forgotten at once: the answer may be kept for longer than the run whose task it was.
                listener, sleeper._listener = sleeper._listener, None
                context, sleeper._context = sleeper._context, _NOBODYS
                try:
                    if listener is not None:
                        context.run(listener, sleeper)
                except Exception as error:
                    loop.call_exception_handler({"message": "somebody who was woken went wrong", "exception": error})
        finally:
            if awake:  # what was raised ends the loop; if somebody goes on with it, nobody has been forgotten
                self._awake.extendleft(reversed(awake))
                loop.call_soon(self._wake, context=contextvars.Context())
