"""An error on record says what it was, also to code that meets it long after."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import simpleworkflow as swf
from simpleworkflow.model import failure, payload
from simpleworkflow.model.errors import StepFailed


class Declined(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"declined: {code}")
        self.code = code

    def __swf_data__(self) -> Any:
        return {"code": self.code}


class Stolen(Declined):
    class Twice(Exception):
        pass


def recorded(error: BaseException) -> StepFailed:
    return StepFailed.recorded("charge", "charge#0", failure.describe(error)[0])


@pytest.mark.parametrize(
    ("kind", "is_one"),
    [
        (Stolen, True),
        (Declined, True),
        (Exception, True),
        (Stolen.Twice, False),
        (ValueError, False),
        ((ValueError, Declined), True),
        ((ValueError, "Declined"), True),
        ((), False),
        ("Stolen", True),
        ("Declined", True),
        (f"{__name__}.Declined", True),
        ("other.Declined", False),
        ("clined", False),
        ("Exception", True),
    ],
    ids=str,
)
def test_a_recorded_error_is_of_its_class_and_of_the_classes_it_is_derived_from(kind: Any, is_one: bool) -> None:
    assert recorded(Stolen(3)).is_a(kind) is is_one


def test_builtin_and_nested_classes_are_known_too() -> None:
    assert recorded(ConnectionResetError()).is_a(OSError)
    assert recorded(swf.StepTimeout()).is_a((TimeoutError,))
    assert recorded(Stolen.Twice()).is_a(Stolen.Twice)
    assert recorded(Stolen.Twice()).is_a("Twice")
    with pytest.raises(TypeError, match="an exception class or its name"):
        recorded(Stolen(3)).is_a(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("story", "kind", "is_one"),
    [
        ({"type": "Declined", "module": __name__, "message": ""}, Declined, True),
        ({"type": "Stolen", "module": __name__}, Declined, False),
        ({"type": "RunTimedOut", "message": "late"}, swf.RunTimedOut, True),
        ({"type": "Declined", "module": "elsewhere"}, Declined, False),
        ({"type": "Declined", "module": "elsewhere", "bases": 3}, "Declined", True),
        ({}, Declined, False),
    ],
    ids=str,
)
def test_a_record_without_bases_is_known_by_its_own_name(story: dict[str, Any], kind: Any, is_one: bool) -> None:
    assert StepFailed("…", error=story).is_a(kind) is is_one


def test_an_exception_may_carry_data_that_comes_back() -> None:
    error = recorded(Stolen(51))
    assert error.data == {"code": 51}
    assert error.error["data"] == {"code": 51}
    assert recorded(ValueError("x")).data is None


def test_what_a_child_only_passes_on_is_known_to_its_parent() -> None:
    passed_on = payload.decode(failure.describe(recorded(Stolen(51)))[0])
    told = swf.RunFailed("child failed", error=failure.brief(passed_on))
    assert told.is_a(Declined)
    assert told.is_a(swf.StepFailed)
    assert told.data == {"code": 51}
    assert "traceback" not in told.error
    own = payload.decode(failure.describe(ValueError("x"))[0])
    assert not swf.RunFailed("child failed", error={**own, "cause": passed_on}).is_a(Declined)


def _raising(error: BaseException) -> type[Exception]:
    class Hostile(Exception):
        def __swf_data__(self) -> Any:
            raise error

    return Hostile


def _giving(data: Any) -> type[Exception]:
    class Giving(Exception):
        def __swf_data__(self) -> Any:
            return data

    return Giving


class Endless(Exception):
    def __swf_data__(self) -> Any:
        loop: list[Any] = []
        loop.append(loop)
        return loop


class NoMethod(Exception):
    __swf_data__ = 3


@pytest.mark.parametrize(
    "kind",
    [
        _raising(ValueError("no")),
        _raising(SystemExit(1)),
        _raising(asyncio.CancelledError()),
        _raising(RecursionError()),
        _giving(object()),
        _giving(float("nan")),
        _giving("x" * 100_000),
        _giving({(1, 2): 3}),
        Endless,
        NoMethod,
    ],
)
def test_data_that_cannot_be_kept_never_stops_a_failure_from_being_recorded(kind: type[Exception]) -> None:
    error = recorded(kind("told"))
    assert error.error["message"] == "told"
    assert error.data is None
    assert error.error["data_error"]


def test_an_error_made_by_hand_is_recorded_whatever_it_holds() -> None:
    described = payload.decode(failure.describe(StepFailed("by hand", error={"type": object()}))[0])
    assert described["message"] == "by hand"
    assert "cause" not in described
