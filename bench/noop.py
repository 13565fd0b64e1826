"""The smallest workflow there is: what remains is the engine's own cost."""

from __future__ import annotations

from typing import Any

import simpleworkflow as swf

app = swf.App()


@app.workflow("bench.noop.v1")
async def noop(ctx: swf.Context, order: dict[str, Any]) -> None:
    return None
