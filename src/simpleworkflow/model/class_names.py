"""Under which name a class is on record: that by which another process would import it.

A module that is run as a program is called `__main__` there and by its own name in a worker that imports it: without
this, `python flows.py` and a worker would know the same exception as two, and one run would take both branches. What
cannot be known here is the package of a file that is run by its path: `python shop/flows.py` gives `flows`, and the
worker imports `shop.flows`.
"""

from __future__ import annotations

import sys
from pathlib import PurePath

_PROGRAMS = ("__main__", "__mp_main__")
"""What a module is called that is run; the second one in the processes of multiprocessing."""


def class_name(kind: type) -> str:
    return f"{home_of(kind)}.{kind.__qualname__}"


def home_of(kind: type) -> str:
    """The module of a class, by the name that an import would have; as it is where it has none, as in a console."""
    module = str(kind.__module__ or "")
    return _imported_name(module) if module in _PROGRAMS else module


def _imported_name(module: str) -> str:
    program = sys.modules.get(module)
    name = getattr(getattr(program, "__spec__", None), "name", None)  # python -m flows
    if isinstance(name, str) and name not in _PROGRAMS:
        return name
    file = getattr(program, "__file__", None)
    return PurePath(file).stem if isinstance(file, str) and file.endswith((".py", ".pyc")) else module
