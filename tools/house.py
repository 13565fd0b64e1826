"""What the house looks like in numbers: the same script before and after a change of its structure.

    python tools/house.py            # a table
    python tools/house.py --json     # the same for machines

`make map` draws what these numbers are about.

Sizes and depths come from the syntax trees, the roads of a trigger and of a step from a tracer: every file of ours that
has been called between the call of the user and the statement that reaches the database, without the law (model/).
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import json
import re
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from plan.classes import Classes
from plan.reading import PACKAGE

ENGINE = ("runtime", "worker", "client", "store")
CUPBOARD = "python_internals.py"
PRIVATE = re.compile(
    r"\b(_fut_waiter|_scheduled|_ready|_callbacks|_waiters|_getframe|_warn_unawaited_coroutine|getcoroutinelocals|"
    r"f_locals|cr_frame|gi_frame|ag_frame|cr_await|gi_yieldfrom|cell_contents|__closure__|co_freevars)\b"
)
"""Fields of asyncio that it does not promise, locals of frames, and closures."""
IDIOMS = re.compile(
    r"how-manieth|whoever|nobody's|somebody's|in the book|beside the code|minds |hands on|comes? along|takes? along|"
    r"\bstory\b|the last word|unburned|of its own making|\bknock|the bell|"
    r"the door\b|the stage\b|the crew\b|the ledger\b",
    re.IGNORECASE,
)
"""Words that a non-native reader has to guess at."""
ENTRIES = {"record": r"record_\w+", "ending": r"(settle|finish)_\w+", "pause": r"pause_\w+"}


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), path.read_text()


def room_of(name: str) -> str:
    return name.partition("/")[0] if "/" in name else "."


def spread(values: list[int]) -> dict[str, int]:
    ordered = sorted(values)
    return {"median": int(statistics.median(ordered)), "p90": ordered[int(len(ordered) * 0.9)], "max": ordered[-1]}


def rooms() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name, text in sources():
        room = found.setdefault(room_of(name), {"files": 0, "lines": 0})
        room["files"] += 1
        room["lines"] += text.count("\n")
    return found


def functions() -> list[int]:
    return [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for _, text in sources()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def depths() -> dict[str, int]:
    """Chains of two classes or less are left out."""
    return {name: depth for name, depth in Classes().chains().items() if depth > 2}


def members() -> dict[str, int]:
    """Names without an underscore: methods and properties, and what `__init__` puts on the instance. A namespace of App
    counts as one; `app.schedules.create` is a name of Schedules."""
    import simpleworkflow as swf

    return {cls.__name__: len(_of_class(cls) | _of_instance(cls)) for cls in (swf.App, swf.Context)}


def _of_class(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def _of_instance(cls: type) -> set[str]:
    return {
        node.attr
        for one in cls.__mro__
        if one.__module__.startswith(PACKAGE.name)
        for node in ast.walk(ast.parse(inspect.getsource(one)))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if ast.unparse(node.value) == "self" and not node.attr.startswith("_")
    }


def sql() -> dict[str, int]:
    text = "\n".join(path.read_text() for path in (PACKAGE / "store/sql/queries").glob("*.sql"))
    names = set(re.findall(r"^-- name: (\w+)", text, re.MULTILINE))
    blocks = re.split(r"^-- name: ", text, flags=re.MULTILINE)
    found = {
        f"statements for a {kind}": sum(bool(re.fullmatch(p, name)) for name in names) for kind, p in ENTRIES.items()
    }
    found["statements"] = len(names)
    found["blocks made by replacing text"] = sum("-- replacing:" in block for block in blocks)
    return found


def matches(pattern: re.Pattern[str], *, but: str = "") -> dict[str, int]:
    found = {name: len(pattern.findall(text)) for name, text in sources() if name != but}
    return {name: count for name, count in found.items() if count}


class Tracer:
    """Files of ours that are called, in every thread, from `begin` until a statement is handed to the database."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._is_on = False

    def begin(self) -> None:
        self.files, self._is_on = set(), True

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self._is_on and event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            file = str(Path(frame.f_code.co_filename).relative_to(PACKAGE))
            self.files.add(file)
            self._is_on = not (file.startswith("store/drivers/") and frame.f_code.co_name == "_fetch")


QUIET: dict[str, Any] = {
    "poll_every": 3600.0,
    "sweep_every": 3600.0,
    "local_check_every": 3600.0,
    "prune_every": 3600.0,
    "lease": 36000.0,
}
"""No role of a worker comes by meanwhile."""


async def roads() -> dict[str, list[str]]:
    import simpleworkflow as swf

    tracer, found = Tracer(), {}
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    with tempfile.TemporaryDirectory() as folder:
        app = swf.App(f"{folder}/road.db", settings=swf.Settings(**QUIET))

        async def work() -> int:
            return 1

        @app.workflow("house.road.v1")
        async def road(ctx: swf.Context) -> None:
            await ctx.step(work)
            await asyncio.sleep(0.5)  # until nothing else happens
            tracer.begin()
            await ctx.step(work)
            found["step"] = sorted(tracer.files)

        await app.trigger("house.nobody.v1")
        await asyncio.sleep(0.5)
        tracer.begin()
        await app.trigger("house.nobody.v1")
        found["trigger"] = sorted(tracer.files)
        async with app.worker(schedules=False):
            await app.run(road)
        await app.close()
    sys.setprofile(None)
    threading.setprofile(None)
    return found


def measure() -> dict[str, Any]:
    by_room = rooms()
    return {
        "rooms": by_room,
        "lines of runtime, worker, client and store": sum(by_room[room]["lines"] for room in ENGINE),
        "lines of a file": spread([text.count("\n") for _, text in sources()]),
        "lines of a function": spread(functions()),
        "chains of classes": depths(),
        "public members": members(),
        "sql": sql(),
        "private names of asyncio and frames": matches(PRIVATE, but=CUPBOARD),
        "idioms": sum(matches(IDIOMS).values()),
        "roads": {
            name: [file for file in road if "/" in file and not file.startswith("model/")]
            for name, road in asyncio.run(roads()).items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    told = measure()
    if parser.parse_args().json:
        print(json.dumps(told, indent=1))
        return
    for key, value in told.items():
        if isinstance(value, dict):
            print(f"{key}:")
            for name, one in value.items():
                print(f"  {name:<28} {len(one) if isinstance(one, list) else one}")
        else:
            print(f"{key}: {value}")


if __name__ == "__main__":
    main()
