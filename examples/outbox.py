"""Events for others: what a workflow emits, and the ends of its runs, delivered in order.

    python examples/outbox.py

A worker with a sink delivers them; `simpleworkflow outbox dispatch --sink https://…` does so as a process of its own.
"""

import threading
from collections.abc import Sequence

import simpleworkflow as swf
from simpleworkflow.sinks.protocol import CloudEvent, Refusal

app = swf.App()
app.outbox.emit_lifecycle("outbox.*", "succeeded", "failed")


@app.workflow("outbox.order.v1")
async def order(ctx: swf.Context, item: str) -> str:
    await ctx.emit("order.placed", {"item": item})
    if item == "nothing":
        raise swf.PermanentError("there is nothing to order")
    await ctx.emit("order.shipped", {"item": item})
    return f"{item} is on its way"


class Printing:
    """A sink answers for each event: None when it has been taken, a Refusal when it must come again."""

    def __init__(self) -> None:
        self.ended = threading.Semaphore(0)

    async def publish(self, events: Sequence[CloudEvent]) -> Sequence[Refusal | None]:
        for event in events:
            print(event.sequence, event.type)
            if event.type.startswith("simpleworkflow.run."):
                self.ended.release()
        return [None] * len(events)

    async def close(self) -> None:
        """Nothing is kept open."""


if __name__ == "__main__":
    sink = Printing()
    with app.sync.worker(sink=sink):
        for item in ("a lamp", "nothing"):
            app.sync.trigger(order, item)
            sink.ended.acquire(timeout=30)
    app.sync.close()
