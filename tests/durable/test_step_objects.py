"""A step calls exactly the object that it was given, and keeps nothing of it when its run is over."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

import simpleworkflow as swf

RUNS = 3000
A_HANDFUL = 10


@dataclass(frozen=True)
class Send:
    template: str
    to: str = field(compare=False)

    def __call__(self) -> str:
        return f"{self.template} to {self.to}"


class Equal:
    """Equal to all of its kind, whatever it does."""

    def __init__(self, to: str) -> None:
        self.to = to

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 1

    async def send(self) -> str:
        return self.to

    async def __call__(self) -> str:
        return self.to


@pytest.mark.parametrize("make", [lambda to: Send("mail", to), Equal, lambda to: Equal(to).send])
async def test_a_step_calls_the_object_that_it_was_given_and_no_equal_one(
    app: swf.App, make: Callable[[str], Any]
) -> None:
    @app.workflow("t.send.v1")
    async def send(ctx: swf.Context, to: str) -> str:
        sent: str = await ctx.step("send", make(to))
        return sent.removeprefix("mail to ")

    async with app.worker():
        assert [await app.run(send, to) for to in ("ada", "bob", "eve")] == ["ada", "bob", "eve"]


class Blob:
    """What a run works with."""

    def size(self) -> int:
        return 1


def of(blob: Blob, alive: Any = None) -> int:
    return blob.size()


decorated = swf.step(of)


def nested(blob: Blob) -> tuple[Any, ...]:
    def size() -> int:
        return blob.size()

    return (size,)


def named_like_another(blob: Blob) -> tuple[Any, ...]:
    @functools.wraps(of)
    def size(blob: Blob = blob) -> int:
        return blob.size()

    return (size,)


def of_a_local_type(blob: Blob) -> tuple[Any, ...]:
    @dataclass
    class Size:
        value: int

        def known(self) -> int:
            return blob.size()

    def size() -> int:
        return Size(1).value

    size.__annotations__ = {"return": Size | int}
    return (size,)


def failing(blob: Blob) -> tuple[Any, ...]:
    def fail() -> int:
        raise ValueError(f"no size of {blob}")

    return (fail,)


MAKERS: dict[str, Callable[[Blob], tuple[Any, ...]]] = {
    "lambda": lambda blob: ("size", lambda: blob.size()),
    "default": lambda blob: ("size", lambda blob=blob: blob.size()),
    "partial": lambda blob: ("size", functools.partial(of, blob)),
    "method": lambda blob: ("size", blob.size),
    "options": lambda blob: (decorated.options(key=f"{id(blob)}"), blob),
    "decorated inside": lambda blob: (swf.step(name="size")(lambda: blob.size()),),
    "nested": nested,
    "named like another": named_like_another,
    "of a local type": of_a_local_type,
    "failing": failing,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
async def test_nothing_that_a_finished_run_closed_over_stays_alive(
    make: Callable[[Blob], tuple[Any, ...]], tmp_path: Any
) -> None:
    """The cache is in front of every database, so one is enough."""
    quiet = swf.Settings(
        log_errors="type"
    )  # the test tool keeps every line, with the traceback and all of its variables
    app, alive = swf.App(str(tmp_path / "test.db"), settings=quiet), weakref.WeakSet[Blob]()
    await app.migrate()

    @app.workflow("t.blob.v1")
    async def run(ctx: swf.Context) -> int:
        blob = Blob()
        alive.add(blob)
        try:
            size: int = await ctx.step(*make(blob))
        except swf.StepFailed:
            return 1
        return size

    async with app.worker():
        handles = await app.trigger_many(run, [None] * (RUNS // len(MAKERS)))
        assert await handles[-1].result("60s") == 1
        for handle in handles:
            assert await handle.result("60s") == 1
        gc.collect()
        assert len(alive) <= A_HANDFUL
    await app.close()


async def other_charge(*given: Any) -> str:
    return f"other {given[-1]}"


def plain_charge(*given: Any) -> str:
    return f"plain {given[-1]}"


@pytest.mark.parametrize("is_bound", [False, True])
@pytest.mark.parametrize("how", ["call", "ctx.step", "named", "options"])
async def test_a_step_calls_the_function_that_it_holds_now(
    app: swf.App, monkeypatch: pytest.MonkeyPatch, how: str, is_bound: bool
) -> None:
    class Bank:
        @swf.step
        async def charge(self, cents: int) -> Any:
            return f"real {cents}"

    @swf.step
    async def charge(cents: int) -> Any:
        return f"real {cents}"

    step: Any = vars(Bank)["charge"] if is_bound else charge

    @app.workflow("t.patched.v1")
    async def pay(ctx: swf.Context) -> Any:
        charged = Bank().charge if is_bound else charge
        calls: dict[str, Callable[[], Any]] = {
            "call": lambda: charged(1),
            "ctx.step": lambda: ctx.step(charged, 1),
            "named": lambda: ctx.step("other", charged, 1),
            "options": lambda: ctx.step(charged.options(key="k"), 1),
        }
        return await calls[how]()

    seen: list[Any] = []
    async with app.worker():
        seen.append(await app.run(pay, timeout="10s"))
        others = [other_charge] if how == "call" else [other_charge, plain_charge]
        for function in (*others, step.function):
            monkeypatch.setattr(step, "function", function)
            handle = await app.trigger(pay)
            seen.append(await handle.result("10s"))
    assert seen == ["real 1", *(f"{one.__name__.partition('_')[0]} 1" for one in others), "real 1"]
    (record,) = await handle.steps()
    assert record.step_id == {"named": "other#0", "options": "charge#=k"}.get(how, "charge#0")


async def test_a_function_that_stands_in_keeps_name_and_type_of_the_step_however_early_it_came(
    app: swf.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @swf.step
    async def price(sku: str) -> Decimal:
        return Decimal("1.10")

    monkeypatch.setattr(price, "function", lambda sku: "2.20")

    @app.workflow("t.price.v1")
    async def pay(ctx: swf.Context) -> str:
        return repr(await ctx.step(price, "x"))

    async with app.worker():
        handle = await app.trigger(pay)
        assert await handle.result("10s") == "Decimal('2.20')"
    assert [step.step_id for step in await handle.steps()] == ["price#0"]


async def test_a_decorated_method_belongs_to_its_object(app: swf.App) -> None:
    class Bank:
        def __init__(self, name: str) -> None:
            self.name = name

        @swf.step
        async def charge(self, cents: int) -> str:
            return f"{cents} by {self.name}"

    @app.workflow("t.bank.v1")
    async def pay(ctx: swf.Context) -> list[str]:
        return [await ctx.step(Bank("one").charge, 1), await Bank("two").charge(2)]

    async with app.worker():
        handle = await app.trigger(pay)
        assert await handle.result("10s") == ["1 by one", "2 by two"]
    assert [step.step_id for step in await handle.steps()] == ["charge#0", "charge#1"]
