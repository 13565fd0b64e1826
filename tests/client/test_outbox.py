"""The outbox in what operators read elsewhere: explain names the event that is stuck, doctor warns, metrics count."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from support.ledger import Raw
from support.outbox import put

import simpleworkflow as swf
from simpleworkflow.client.doctor.findings import LIMITS, Finding, Level, Look
from simpleworkflow.client.doctor.outbox import outbox_events
from simpleworkflow.clock import SystemClock
from simpleworkflow.model.outbox import Delivery
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations.queue_depth import queue_depth


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    app = swf.App(url)
    app.sync.doctor.check()
    yield app
    app.sync.close()


def outbox_line(app: swf.App, run_id: UUID) -> str | None:
    told = {detail.label: detail.value for detail in app.sync.handle(run_id).explanation().details}
    return told.get("outbox")


def test_explain_names_the_event_that_has_not_gone_out(app: swf.App, raw: Raw) -> None:
    run_id = app.sync.trigger("shop.order.v1").id
    assert outbox_line(app, run_id) is None
    put(raw, run_id, 2)
    assert (outbox_line(app, run_id) or "").startswith("event 1 (told) waits to be delivered since 20")
    change = "UPDATE workflow.outbox_event SET status = ?, attempt = 2, last_error = 'HTTP 503\x1b'"
    raw.sql(f"{change}, due_at = {raw.now} WHERE sequence = 1", "retrying")
    line = outbox_line(app, run_id) or ""
    assert line.startswith("event 1 (told) was refused 2 times, next try at 20")
    assert line.endswith(": HTTP 503\\x1b")
    raw.sql(f"{change}, due_at = NULL WHERE sequence = 1", "dead")
    assert (outbox_line(app, run_id) or "").startswith("event 1 (told) was given up after 2 attempts and holds back")


async def look(ledger: Ledger) -> list[Finding]:
    return await outbox_events(Look(ledger, swf.Settings(), SystemClock(), LIMITS))


async def test_the_doctor_warns_of_dead_and_of_late_events(ledger: Ledger, raw: Raw) -> None:
    (well,) = await look(ledger)
    assert (well.check, well.level, well.seen) == ("outbox", Level.OK, "0 events on the way, none late")
    put(raw, UUID(int=1 << 64), 2)
    raw.sql(f"UPDATE workflow.outbox_event SET created_at = {raw.now} {raw.back(600)}")
    (late,) = await look(ledger)
    assert late.level is Level.WARNING
    assert late.seen.startswith("2 events not delivered, the oldest for 10m")
    assert "nobody dispatches: simpleworkflow outbox dispatch" in (late.fix or "")
    raw.sql("UPDATE workflow.outbox_event SET status = 'dead' WHERE sequence = 1")
    raw.sql("UPDATE workflow.outbox_event SET status = 'behind' WHERE sequence = 2")
    (dead,) = await look(ledger)
    assert dead.seen == "1 event given up, and 1 event held back behind stuck ones"
    assert "outbox replay --dead" in (dead.fix or "")


async def test_scrapes_see_counts_and_lag(ledger: Ledger, raw: Raw) -> None:
    put(raw, UUID(int=1 << 64), 3)
    raw.sql(f"UPDATE workflow.outbox_event SET created_at = {raw.now} {raw.back(90)}")
    depth = await ledger.run(queue_depth())
    assert depth.outbox == {Delivery.WAITING: 3, Delivery.RETRYING: 0, Delivery.BEHIND: 0, Delivery.DEAD: 0}
    assert 89 < depth.outbox_lag < 150
