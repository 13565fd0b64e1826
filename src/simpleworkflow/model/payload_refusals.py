"""What stops a value from being stored, and the path to it. See payload.py for the rules and the reasons."""

from __future__ import annotations

import json
from typing import Any

CODE_OF_OBJECTS = ("__post_init__", "__attrs_pre_init__", "__attrs_post_init__")
"""What a class may run whenever an object of it is made."""
_LONGEST_KEY_SHOWN = 200


class Refused(Exception):
    """A part that cannot be stored. Each container on the way out appends its step: paths cost nothing until then."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def path(self) -> str:
        return "$" + "".join(reversed(self.steps))

    def inside(self, step: str) -> Refused:
        self.steps.append(step)
        return self


class Lost(Refused):
    """A part that could be stored, and would come back as something else."""

    def __init__(self, reason: str, *, remedy: str | None = None, annotate: str | None = None) -> None:
        super().__init__(reason)
        self.remedy = remedy if annotate is None else f"annotate the field as {annotate}"
        """What to do; None where an annotation that names the type is all it takes."""
        self.annotate = annotate
        """As what the place is to be annotated: a field, or the return or the parameter when it is the whole value."""


def dropped(key: object, kind: type | None) -> Lost:
    """A key of a dict that its annotation does not name; `kind` is the class that it is read as."""
    name = "its annotation" if kind is None else type_name(kind)
    lost = Lost(f"{name} does not name this key, so it would be dropped", remedy="name it there, or leave it out")
    lost.inside(step(str(key)))
    return lost


def class_remedy(kind: Any, field: str) -> str | None:
    """What to do about a field that the code of its class changes when an object is read; None without such code."""
    known = getattr(kind, "__dataclass_fields__", {}).get(field)
    if known is not None and not known.init:
        return "drop init=False, so that reading sets the field, or leave it at what the class gives it"
    hook = next((name for name in CODE_OF_OBJECTS if hasattr(kind, name)), None)
    return hook and (
        f"{hook} runs at each reading: let it leave alone what it has changed once, "
        "or compute the value in a property or a classmethod"
    )


def by_name(enum: str) -> str:
    """What to do with an Enum that no JSON can be read into."""
    return f"store the name of the member (`.name`), annotated `str`, and look it up where it is read (`{enum}[name]`)"


class Endless(Exception):
    """The walk has already seen more bytes than the limit allows."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def step(key: str) -> str:
    if key.isidentifier():
        return f".{key}"
    shown = key if len(key) <= _LONGEST_KEY_SHOWN else key[:_LONGEST_KEY_SHOWN] + "…"
    return f"[{json.dumps(shown)}]"  # ASCII only: a message with a lone surrogate could not be logged


def type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
