"""The smallest program: a worker and a trigger in one process.

    python examples/greet.py Ada

Runs are kept in ./simpleworkflow.db (or where SIMPLEWORKFLOW_URL says). The idempotency key makes greeting Ada a thing
that happens once: call it again and you get the first greeting back, with the time of the first call.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime

import simpleworkflow as swf

app = swf.App()


@dataclass
class Greeting:
    text: str
    at: datetime


@app.workflow("demo.greet.v1")
async def greet(ctx: swf.Context, name: str) -> Greeting:
    ctx.log.info("greeting %s", name)
    return Greeting(f"Hello, {name}!", datetime.now().astimezone())


def main(name: str) -> None:
    with app.sync.worker():
        greeting = app.sync.run(greet, name, idempotency_key=f"greet-{name}", timeout="30s")
        print(f"{greeting.text} (said at {greeting.at:%H:%M:%S.%f})")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "Ada")
