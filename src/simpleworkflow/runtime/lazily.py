"""Parts of an execution that most runs never need are made when they are first asked for.

A worker that does nothing else than start and end small runs spends its time on building them: ten empty containers
each cost as much as the handler's own call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Lazily(Generic[T]):
    """An attribute that is made at the first look and stays; of two threads that look first, both get the same."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        value: T = instance.__dict__.setdefault(self._name, self._make(instance))
        return value
