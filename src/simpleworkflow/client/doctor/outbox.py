"""What a doctor looks at in the outbox: events that nobody takes out, and events that were given up."""

from __future__ import annotations

from ...store.operations import outbox
from .findings import Finding, Level, Look, ago, amount


async def outbox_events(look: Look) -> list[Finding]:
    status = await look.ask(outbox.status(silence=look.settings.lease))
    found = []
    if status.dead:
        behind = amount(status.behind, "event", status.most)
        seen = f"{amount(status.dead, 'event', status.most)} given up, and {behind} held back behind stuck ones"
        fix = (
            f"simpleworkflow outbox list {look.at} says why; when that is mended: simpleworkflow outbox replay --dead, "
            "or let later ones pass: simpleworkflow outbox skip RUN NUMBER"
        )
        found.append(Finding("outbox", Level.WARNING, seen, fix))
    open_ones = status.waiting + status.retrying
    if status.lag > look.limits.outbox_lag:
        is_served = any(lane.is_held for lane in status.lanes)
        seen = f"{amount(open_ones, 'event', status.most)} not delivered, the oldest for {ago(status.lag)}"
        fix = (
            "look into the logs of the dispatchers (simpleworkflow.relay): does the sink refuse them?"
            if is_served
            else f"nobody dispatches: simpleworkflow outbox dispatch --sink … {look.at}, or worker --sink …"
        )
        found.append(Finding("outbox", Level.WARNING, seen, fix))
    return found or [Finding("outbox", Level.OK, f"{amount(open_ones, 'event', status.most)} on the way, none late")]
