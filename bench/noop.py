"""The smallest workflows there are: what remains is the engine's own cost."""

from __future__ import annotations

from typing import Any

import simpleworkflow as swf

app = swf.App()

STEPS = 10


@app.workflow("bench.noop.v1")
async def noop(ctx: swf.Context, order: dict[str, Any]) -> None:
    return None


async def nothing() -> None:
    return None


@app.workflow("bench.ten_steps.v1")
async def ten_steps(ctx: swf.Context, order: dict[str, Any]) -> None:
    for _ in range(STEPS):
        await ctx.step(nothing)
