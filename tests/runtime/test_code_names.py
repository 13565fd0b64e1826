"""The names that a workflow's code can give to steps and children are found where people write them."""

from __future__ import annotations

import functools
import types
from typing import Any

import pytest

import simpleworkflow as swf
from simpleworkflow.runtime.code_names import codes_of, names_in

app = swf.App("unused.db")
steps = types.ModuleType("steps")


def plain() -> None: ...


@swf.step
def decorated() -> None: ...


@swf.step(name="given name", formerly=("older", "oldest"))
def renamed() -> None: ...


@app.workflow("t.child.v1")
async def child(ctx: swf.Context) -> None: ...


async def in_module() -> None: ...


async def of_a_helper() -> None: ...


async def helper(ctx: swf.Context) -> None:
    await ctx.step(of_a_helper)


class Bank:
    async def charge(self) -> None: ...

    @swf.step(name="a method that is a step")
    async def book(self) -> None: ...

    async def pay(self, ctx: swf.Context) -> None:
        await ctx.step("in a method", self.charge)


class Branch(Bank):
    async def open(self, ctx: swf.Context) -> None:
        await ctx.step("in a method of an object", plain)


steps.in_module = in_module  # type: ignore[attr-defined]
branch = Branch()
BY_KIND = {"one": decorated, "two": functools.partial(plain)}


def workflow(nearby: Any) -> Any:
    async def in_a_closure() -> None: ...

    async def handler(ctx: swf.Context, kind: int) -> None:
        async def pack() -> None: ...

        charge_variable = await ctx.step(BY_KIND["one"])
        await ctx.step(renamed)
        await ctx.step("a constant", lambda: charge_variable)
        await ctx.step(f"parcel {kind}", plain)
        await ctx.step(steps.in_module)  # type: ignore[attr-defined]
        await ctx.step(nearby)
        await ctx.step(in_a_closure)
        await ctx.run(child)
        await ctx.run("t.by_name.v1")
        await helper(ctx)
        await branch.open(ctx)
        await branch.pay(ctx)
        await branch.book()
        await pack()

    return handler


FOUND = [
    "decorated", "plain", "given name", "older", "oldest", "a constant", "parcel 17", "in_module", "in_a_closure",
    "t.child.v1", "t.by_name.v1", "in a method", "charge", "pack", "workflow.<locals>.handler.<locals>.pack",
    "of_a_helper", "in a method of an object", "a method that is a step",
]  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_a_name_that_the_code_mentions_can_be_asked_for(name: str) -> None:
    assert names_in(workflow(plain)).can_ask_for(name)


@pytest.mark.parametrize("name", ["decorated", "given name", "charge", "a method that is a step", "t.child.v1"])
def test_a_name_that_the_code_refers_to_is_no_mere_word(name: str) -> None:
    assert names_in(workflow(plain)).refers_to(name)


@pytest.mark.parametrize("name", ["a constant", "t.by_name.v1", "parcel 17", "sleep"])
def test_a_text_and_an_attribute_may_be_mere_words(name: str) -> None:
    assert not names_in(workflow(plain)).refers_to(name)


@pytest.mark.parametrize(
    "name", ["renamed", "charge_variable", "charge_card", "gone", "t.child.v2", "dumps", "step_info"]
)
def test_a_name_that_is_nowhere_in_the_code_is_gone(name: str) -> None:
    """A variable of that name is no step, and a step that has another name is not asked for by its function's."""
    assert not names_in(workflow(plain)).can_ask_for(name)


class Shop:
    @swf.step
    async def charge(self) -> None: ...

    async def old_way(self, ctx: swf.Context) -> None:
        await ctx.step("said in a method that nobody calls", plain)

    async def card(self, ctx: swf.Context) -> None:
        await ctx.step("said in a method that is called", plain)

    async def by_kind(self, kind: str) -> None:
        await getattr(self, kind)()


shop = Shop()


async def calls_one_method(ctx: swf.Context) -> None:
    await shop.card(ctx)


async def makes_names_of_methods(ctx: swf.Context) -> None:
    await shop.by_kind("charge"[:])


def test_a_method_counts_only_where_the_code_has_its_name() -> None:
    names = names_in(calls_one_method)
    assert names.can_ask_for("said in a method that is called")
    assert not names.can_ask_for("said in a method that nobody calls")
    assert not names.can_ask_for("charge")


def test_every_method_counts_where_the_code_makes_names_of_methods() -> None:
    assert names_in(makes_names_of_methods).can_ask_for("said in a method that nobody calls")


async def delegating() -> None:
    await in_module()


async def calls_the_delegating(ctx: swf.Context) -> None:
    await ctx.step(delegating)


def test_what_a_step_refers_to_itself_is_no_step() -> None:
    assert names_in(calls_the_delegating).can_ask_for("in_module")
    beside = names_in(calls_the_delegating, codes_of(functools.partial(delegating)))
    assert beside.can_ask_for("delegating")
    assert not beside.can_ask_for("in_module")
