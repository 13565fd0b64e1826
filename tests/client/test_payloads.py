"""What a payload may hold: everything JSON can, nothing else, and never more than the limit."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import Any

import pytest

import simpleworkflow as swf


async def count(app: swf.App) -> int:
    return sum(c.runs for c in await app.activity.counts())


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, float("nan")]}, "a[1]"),
        ({"a": float("inf")}, "a"),
        ({"a": {"b": "x\x00y"}}, "a.b"),
        ({"a": "\ud800"}, "a"),
        ({"a": 2**64}, "a"),
        ({"a": deep(70)}, "a[0]"),
        ({"a": {1, 2, object()}}, "a"),
        ({"a": object()}, "a"),
        ({"a": threading.Lock()}, "a"),
        ({("x", 1): 1}, "payload"),
    ],
    ids=[
        "nan",
        "infinity",
        "nul",
        "surrogate",
        "huge integer",
        "deep",
        "set of objects",
        "object",
        "lock",
        "tuple key",
    ],
)
async def test_what_json_cannot_hold_is_refused_with_its_place(app: swf.App, value: Any, where: str) -> None:
    with pytest.raises(swf.PayloadError) as caught:
        await app.trigger("a.b.v1", value)
    assert where in str(caught.value)
    assert await count(app) == 0


async def test_what_json_can_hold_comes_back_equal(app: swf.App) -> None:
    value = {"é😀": [None, True, -(2**63), 2**63 - 1, 1.5, "", [], {}], "d": Decimal("1.10"), "t": (1, 2)}
    run = await (await app.trigger("a.b.v1", value)).get()
    assert run.payload == {**value, "d": run.payload["d"], "t": [1, 2]}


async def test_a_payload_over_the_limit_is_refused(app: swf.App, url: str) -> None:
    with pytest.raises(swf.PayloadError, match=r"1 MiB|1,048,576|1048576"):
        await app.trigger("a.b.v1", "x" * 2**20)
    assert await count(app) == 0
    assert (await app.trigger("a.b.v1", "x" * (2**20 - 2))).is_new
    small = swf.App(url, settings=swf.Settings(max_payload=10))
    with pytest.raises(swf.PayloadError):
        await small.trigger("a.b.v1", "0123456789")
    await small.close()
