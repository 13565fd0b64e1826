"""A stub of a method stands in for it wherever a workflow gets the object from."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import pytest

import simpleworkflow as swf


class Bank:
    def __init__(self, name: str = "bank") -> None:
        self.name = name

    @swf.step
    async def pay(self, cents: int, currency: str = "EUR") -> str:
        return "real"

    async def refund(self, cents: int) -> str:
        return "real"

    @classmethod
    @swf.step
    async def open(cls, name: str) -> str:
        return "real"

    @staticmethod
    @swf.step
    async def rate(currency: str) -> str:
        return "real"


class Branch(Bank):
    """Inherits every step."""


class Abroad(Bank):
    @swf.step
    async def pay(self, cents: int, currency: str = "EUR") -> str:
        return "abroad"


bank = Bank()


@swf.step
async def opening(cls: type[Bank], name: str) -> str:
    return "real"


@pytest.fixture
def app(tmp_path: Path) -> swf.App:
    return swf.App(str(tmp_path / "untouched.db"))


def run(
    app: swf.App, call: Callable[[swf.Context], Any], target: Any, name: str = "t.bank.v1"
) -> tuple[Any, list[Any]]:
    """What a workflow gets from this call while the target is stubbed, and what the stub saw."""

    async def handler(ctx: swf.Context) -> Any:
        return await call(ctx)

    workflow = app.workflow(name)(handler)
    with swf.testing.env(app) as env:
        stub = env.stub(target, returns="stub")
        return env.run(workflow), stub.calls


CALLS: dict[str, Callable[[swf.Context], Any]] = {
    "an object of the module": lambda ctx: bank.pay(1),
    "an object of the workflow": lambda ctx: Bank().pay(1),
    "an object of a subclass": lambda ctx: Branch().pay(1),
    "ctx.step": lambda ctx: ctx.step(Bank().pay, 1),
    "a given name": lambda ctx: ctx.step("pays", Bank().pay, 1),
    "options": lambda ctx: Bank().pay.options(key="k")(1),
    "a partial": lambda ctx: ctx.step(functools.partial(Bank().pay, 1)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("target", [Bank.pay, Branch.pay, Bank.__dict__["pay"]])
def test_a_stub_of_a_method_stands_in_on_every_object(app: swf.App, call: Any, target: Any) -> None:
    assert run(app, call, target) == ("stub", [((1,), {})])  # the object is not among the arguments


def test_a_stub_of_an_undecorated_method_stands_in_on_every_object(app: swf.App) -> None:
    assert run(app, lambda ctx: ctx.step(Bank().refund, 1), Bank.refund) == ("stub", [((1,), {})])


@pytest.mark.parametrize("call", [lambda ctx: Bank.open("x"), lambda ctx: Branch.open("x"), lambda ctx: bank.open("x")])
def test_a_stub_of_a_class_method_stands_in_for_subclasses_as_well(app: swf.App, call: Any) -> None:
    assert run(app, call, Bank.open) == ("stub", [(("x",), {})])


@pytest.mark.parametrize(
    "call", [lambda ctx: MethodType(opening, Branch)("x"), lambda ctx: ctx.step(MethodType(opening, Branch), "x")]
)
def test_a_stub_of_a_class_method_that_binds_the_step_itself_stands_in(app: swf.App, call: Any) -> None:
    """From Python 3.13 on a classmethod no longer asks the step to bind itself."""
    assert run(app, call, MethodType(opening, Bank)) == ("stub", [(("x",), {})])


@pytest.mark.parametrize("target", [Bank.rate, bank.rate, Bank.__dict__["rate"]])
@pytest.mark.parametrize("call", [lambda ctx: Bank.rate("x"), lambda ctx: Branch().rate("x")])
def test_a_stub_of_a_static_method_stands_in_wherever_it_is_taken_from(app: swf.App, call: Any, target: Any) -> None:
    assert run(app, call, target) == ("stub", [(("x",), {})])


def test_a_method_that_a_subclass_overrides_is_another_step(app: swf.App) -> None:
    assert run(app, lambda ctx: Abroad().pay(1), Bank.pay) == ("abroad", [])


def test_a_stub_of_one_object_goes_before_that_of_its_class_and_leaves_the_others_alone(app: swf.App) -> None:
    other = Bank("other")

    @app.workflow("t.banks.v1")
    async def pay(ctx: swf.Context) -> list[str]:
        return [await bank.pay(1), await other.pay(2, currency="CHF")]

    with swf.testing.env(app) as env:
        one = env.stub(bank.pay, returns="one")
        assert env.run(pay) == ["one", "real"]
        every = env.stub(Bank.pay, returns="every")
        assert env.run(pay) == ["one", "every"]
        assert one.calls == [((1,), {}), ((1,), {})]
        assert every.calls == [((2,), {"currency": "CHF"})]


def test_a_stub_of_an_object_that_no_workflow_uses_is_mentioned_with_the_line_to_write(app: swf.App) -> None:
    with pytest.warns(UserWarning, match=r"no call reached .*Branch\.pay.*env\.stub\(Bank\.pay, "):
        assert run(app, lambda ctx: Branch("x").pay(1), Branch("x").pay) == ("real", [])


def test_a_stub_of_an_object_that_was_called_is_not_mentioned(app: swf.App) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(app, lambda ctx: bank.pay(1), bank.pay) == ("stub", [((1,), {})])
        assert run(app, lambda ctx: ctx.sleep(1), Bank("x").pay, "t.nap.v1")[1] == []
