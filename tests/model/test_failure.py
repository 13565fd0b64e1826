"""An error on record says what it was, also to code that meets it long after."""

from __future__ import annotations

import asyncio
import importlib.machinery
import sys
import types
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


class OutOfStock(Exception):
    pass


def from_a_cause(error: BaseException, cause: BaseException) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def while_handling(error: BaseException, other: BaseException) -> BaseException:
    try:
        try:
            raise other
        except BaseException:
            raise error  # noqa: B904 (on purpose)
    except BaseException as caught:
        return caught


@pytest.mark.parametrize("kind", [Declined, Exception, BaseException, "Declined", OutOfStock, ExceptionGroup], ids=str)
def test_a_group_is_known_by_its_members_too(kind: Any) -> None:
    error = recorded(ExceptionGroup("two", [ExceptionGroup("one", [OutOfStock("bolts"), recorded(Declined(5))])]))
    assert error.is_a(kind)
    assert not error.is_a(ValueError)
    assert error.data == {"code": 5}


def test_a_group_in_a_child_is_known_to_its_parents() -> None:
    child = swf.RunFailed(error=failure.brief(recorded(ExceptionGroup("one", [Declined(5)])).error))
    parent = recorded(child)
    assert (parent.is_a(Declined), parent.data) == (True, {"code": 5})


@pytest.mark.parametrize("wrapper", [swf.PermanentError("no"), swf.RetryAfter("1s")], ids=repr)
def test_our_wrappers_are_known_by_what_they_were_raised_from(wrapper: Exception) -> None:
    error = recorded(from_a_cause(wrapper, Declined(5)))
    assert (error.is_a(Declined), error.is_a(type(wrapper)), error.data) == (True, True, {"code": 5})


def test_an_error_is_not_known_by_what_was_merely_at_hand_or_by_the_cause_of_an_error_of_yours() -> None:
    assert not recorded(while_handling(swf.PermanentError("no"), Declined(5))).is_a(Declined)
    assert recorded(while_handling(swf.PermanentError("no"), Declined(5))).data is None
    assert not recorded(from_a_cause(OutOfStock(), Declined(5))).is_a(Declined)

    class Mine(swf.PermanentError):
        pass

    assert not recorded(from_a_cause(Mine(), Declined(5))).is_a(Declined)


def test_every_error_on_record_is_a_base_exception() -> None:
    assert recorded(Declined(1)).is_a(BaseException)
    assert recorded(asyncio.CancelledError()).is_a(BaseException)
    assert not recorded(asyncio.CancelledError()).is_a(Exception)
    assert not swf.RunCancelled().is_a(BaseException)


class Huge(Exception):
    def __swf_data__(self) -> Any:
        return "x" * 60_000


def test_a_group_of_many_large_errors_is_recorded() -> None:
    errors: list[Exception] = []
    for _ in range(300):
        error: BaseException = Huge("ž" * 3000)
        for _ in range(8):
            error = from_a_cause(Huge("ž" * 3000), error)
        errors.append(ExceptionGroup("g", [error]))  # type: ignore[list-item]
    group: BaseException = ExceptionGroup("many", errors)
    for _ in range(8):
        group = from_a_cause(Huge(), ExceptionGroup("outer", [*errors, group]))  # type: ignore[list-item]
    assert recorded(group).is_a(Huge)


def test_a_class_derived_from_ours_needs_no_docstring() -> None:
    class Mine(swf.PermanentError):
        pass

    assert str(Mine()) == str(swf.PermanentError())


@pytest.mark.parametrize(
    ("spec", "file", "name"),
    [
        (None, "/srv/shop/flows.py", "flows"),
        (None, None, None),
        (None, "<stdin>", None),
        ("shop.flows", "/srv/shop/flows.py", "shop.flows"),
        ("shop.__main__", "/srv/shop/__main__.py", "shop.__main__"),
    ],
)
@pytest.mark.parametrize("program", ["__main__", "__mp_main__"])
def test_a_class_of_a_program_is_on_record_by_the_name_that_an_import_has(
    monkeypatch: pytest.MonkeyPatch, program: str, spec: str | None, file: str | None, name: str | None
) -> None:
    name = name or program
    module = types.ModuleType(program)
    module.__spec__ = spec and importlib.machinery.ModuleSpec(spec, None)  # type: ignore[assignment]
    module.__file__ = file
    monkeypatch.setitem(sys.modules, program, module)
    of_program = type("Refused", (ValueError,), {"__module__": program})
    its_child = type("Declined", (of_program,), {"__module__": program})
    error = recorded(its_child("no"))
    assert error.error["module"] == name
    assert f"{name}.Refused" in error.error["bases"]
    imported = type("Refused", (ValueError,), {"__module__": name})
    assert all(error.is_a(kind) for kind in (its_child, of_program, imported, f"{name}.Declined"))
    assert not error.is_a(type("Refused", (ValueError,), {"__module__": "other"}))


def test_a_childs_error_keeps_what_it_said_itself_and_not_its_places() -> None:
    error = {"type": "A", "message": "no", "code": "x", "data_error": "y", "steps": ["a#0"], "permanent": True}
    assert failure.brief(error) == {"type": "A", "message": "no", "code": "x", "data_error": "y"}
