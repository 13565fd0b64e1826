"""Every pair of edits of a workflow of six steps with branches, under a run that has done the first four.

The law: no effect that is on record is done again unless somebody said so. Beyond that, a run goes on without an
operator when the edits only add, reorder or remove steps, except where a removed step and a new one cannot be told from
a renamed one.

The code of a workflow is data here: what a deploy changes is a list. The places where the names of steps occur in real
code are given to the check by hand; that they are found in real code is what test_code_names.py is about.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import simpleworkflow as swf
from simpleworkflow.model.states import Status
from simpleworkflow.runtime.code_names import StepNames

GO = "go"
Piece = str | tuple[str, ...]
"""One step, or the steps of several branches side by side; the arguments of a step are in its name: "charge:1"."""
Code = tuple[Piece, ...]

OLD: Code = ("a:1", "b:2", ("c:3", "d:4"), GO, "e:5", "f:6")
BEFORE = {"a:1", "b:2", "c:3", "d:4"}
"""What is on record when the newer code comes."""


def edits() -> dict[str, Any]:
    def insert(at: int, piece: str) -> Any:
        return lambda code: (*code[:at], piece, *code[at:])

    def remove(name: str) -> Any:
        return lambda code: tuple(
            piece if isinstance(piece, str) else tuple(one for one in piece if one != name)
            for piece in code
            if piece != name
        )

    def rename(name: str, to: str) -> Any:
        def renamed(piece: Piece) -> Piece:
            if isinstance(piece, str):
                return to if piece == name else piece
            return tuple(to if one == name else one for one in piece)

        return lambda code: tuple(map(renamed, code))

    def swap(one: int, other: int) -> Any:
        def swapped(code: Code) -> Code:
            pieces = list(code)
            if max(one, other) < len(pieces):
                pieces[one], pieces[other] = pieces[other], pieces[one]
            return tuple(pieces)

        return swapped

    return {
        "add at the start": insert(0, "n:0"),
        "add between": insert(2, "m:8"),
        "add at the end": lambda code: (*code, "o:9"),
        "remove a": remove("a:1"),
        "remove b": remove("b:2"),
        "remove d": remove("d:4"),
        "remove f": remove("f:6"),
        "rename a": rename("a:1", "a2:1"),
        "rename b": rename("b:2", "b2:2"),
        "rename c": rename("c:3", "c2:3"),
        "rename e": rename("e:5", "e2:5"),
        "swap a and b": swap(0, 1),
        "swap b and e": swap(1, 4),
    }


PAIRS = [*((name,) for name in edits()), *itertools.permutations(edits(), 2)]
REPEATS = {"rename a": "a2", "rename b": "b2", "rename c": "c2"}
"""What would be done twice: these stand for steps that are on record."""


def edited(names: tuple[str, ...]) -> Code:
    code = OLD
    for name in names:
        code = edits()[name](code)
    return code


def names_of(code: Code) -> Iterator[str]:
    for piece in code:
        for one in [piece] if isinstance(piece, str) else piece:
            yield one.partition(":")[0]


class Program:
    """A workflow whose code is a list."""

    def __init__(self, app: swf.App) -> None:
        self.app = app
        self.did: list[str] = []

    def workflow(self, code: Code) -> Any:
        async def body(argument: str) -> None: ...

        async def do(ctx: swf.Context, one: str) -> None:
            name, _, argument = one.partition(":")

            async def effect(argument: str) -> None:
                self.did.append(name)

            await ctx.step(name, effect, argument)

        async def handler(ctx: swf.Context) -> str:
            for piece in code:
                if piece == GO:
                    await ctx.wait_for_signal(GO)
                elif isinstance(piece, str):
                    await do(ctx, piece)
                else:
                    await asyncio.gather(*(do(ctx, one) for one in piece))
            return "done"

        made = swf.App("unused.db").workflow("t.pairs.v1", retry=swf.Retry(max_attempts=1))(handler)
        known = StepNames({*names_of(code), "do"}, set())
        made.__dict__["names_beside"] = lambda _: known
        return made


@pytest.fixture
async def app(tmp_path: Any) -> Any:
    """What is held and what goes on is decided before any database is asked; one is enough for hundreds of pairs."""
    app = swf.App(str(tmp_path / "pairs.db"), settings=swf.Settings(poll_every=0.1, drain=0.0))
    await app.migrate()
    yield app
    await app.close()


async def test_no_pair_of_edits_repeats_an_effect_unseen(app: swf.App) -> None:
    program = Program(app)
    old = program.workflow(OLD)
    with swf.testing.serving(app, old):
        async with app.worker():
            handles = await app.trigger_many(old, [None] * len(PAIRS))
            for handle in handles:
                while (await app.get(handle.id)).status is not Status.PAUSED:
                    await asyncio.sleep(0.01)
    for handle in handles:
        await handle.hold()
    assert sorted(set(program.did)) == ["a", "b", "c", "d"]
    outcomes = {}
    for names, handle in zip(PAIRS, handles, strict=True):
        outcomes[names] = await outcome_of(app, program, names, handle)
    assert {names: told for names, told in outcomes.items() if told is not None} == {}
    held = [names for names, handle in zip(PAIRS, handles, strict=True) if not (await app.get(handle.id)).is_finished]
    goes_on = [names for names in PAIRS if not any(name.startswith(("rename", "remove")) for name in names)]
    assert set(goes_on).isdisjoint(held)
    assert {("remove a",), ("remove b",), ("remove d",), ("remove f",), ("rename e",)}.isdisjoint(held)
    assert {("rename a",), ("rename b",), ("rename c",)} <= set(held)


async def outcome_of(app: swf.App, program: Program, names: tuple[str, ...], handle: Any) -> str | None:
    """None when all is well with this pair."""
    program.did.clear()
    code = edited(names)
    with swf.testing.serving(app, program.workflow(code)):
        async with app.worker():
            await handle.resume()
            await handle.signal(GO)
            while not (run := await app.get(handle.id)).is_finished and run.held_at is None:
                await asyncio.sleep(0.005)
    renamed = {REPEATS[name] for name in names if name in REPEATS}
    again = [name for name in program.did if name in {"a", "b", "c", "d", *renamed}]
    if again:
        return f"{again} done again"
    if run.is_finished and run.status is not Status.SUCCEEDED:
        return str(run.last_error)
    return None
