"""What a worker counts, and that counting follows what the database has confirmed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from support.ledger import Raw
from support.scraping import Scraped, free_port, get, scrape
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.clock import new_id
from simpleworkflow.model import moves
from simpleworkflow.model.errors import StoreUnavailable
from simpleworkflow.model.moves import Outcome, Record
from simpleworkflow.model.records import Lease
from simpleworkflow.model.states import StepKind, StepStatus
from simpleworkflow.runtime import journal
from simpleworkflow.runtime.meter import Histogram, Meter
from simpleworkflow.store import Ledger
from simpleworkflow.worker import metrics, metrics_database, metrics_server
from simpleworkflow.worker.metrics_database import QueueReader, Reading

TYPE = "test.work.v1"


def lease(attempt: int = 0, waited: float = 0.0) -> Lease:
    now = datetime.now(UTC)
    due = now - timedelta(seconds=waited)
    return Lease(new_id(), TYPE, 1, attempt, 0, 50, 100, "null", 30.0, None, None, 0, None, due, now)


class Desk:
    """A meter, the leases it can look up, and what it would export."""

    def __init__(self, *leases: Lease) -> None:
        self.held: dict[UUID, Lease] = {one.id: one for one in leases}
        self.meter = Meter(self.held.get)

    def exported(self) -> dict[tuple[str, ...], float]:
        samples = metrics.read(self.meter, "w1", lambda: metrics.Vitals(1, 0, 0, 0, 0), Reading())
        return {
            (name, *labels): value.count if isinstance(value, Histogram) else value for name, labels, value in samples
        }

    def value(self, name: str, *labels: str) -> float:
        return self.exported().get((name, *labels), 0)


# The counters themselves.


def test_a_value_on_a_bound_belongs_below_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 1.0, 2.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.sum == pytest.approx(3.65)
    many = Histogram((0.1, 1.0))
    many.observe_all([0.05, 0.1, 0.5, 1.0, 2.0])
    assert (many.counts, many.sum) == (histogram.counts, histogram.sum)


def test_the_text_has_cumulative_buckets() -> None:
    histogram = Histogram((0.1, 1.0))
    histogram.observe_all([0.05, 0.5, 7.0])
    assert metrics_server._buckets(histogram) == ([("0.1", 1.0), ("1", 2.0), ("+Inf", 3.0)], pytest.approx(7.55))


def test_an_ending_counts_when_it_is_durable_and_only_then() -> None:
    one = lease()
    desk = Desk(one)
    ending = moves.succeed(one, "1", elapsed=0.5)
    for outcome in (Outcome.BUSY, Outcome.WOKEN):
        desk.meter.flushed([ending], [outcome], 0.01)
    assert desk.value("workflow_run_completed_total", TYPE, "w1", "succeeded") == 0
    desk.meter.flushed([ending], [Outcome.DONE], 0.01)
    assert desk.value("workflow_run_completed_total", TYPE, "w1", "succeeded") == 1
    assert desk.value("workflow_run_execution_duration_seconds", TYPE, "w1", "succeeded") == 1
    desk.meter.flushed([ending], [Outcome.LOST], 0.01)
    assert desk.value("workflow_run_completed_total", TYPE, "w1", "succeeded") == 1
    assert desk.value("workflow_run_yielded_total", TYPE, "w1", "lost") == 1
    assert desk.value("workflow_journal_flush_duration_seconds", "w1") == 4


def test_every_move_that_ends_an_execution_is_told_by_its_name() -> None:
    one = lease()
    desk = Desk(one)
    told: dict[str, tuple[Any, tuple[str, ...]]] = {
        "succeed": (moves.succeed(one, "1", elapsed=1.0), ("workflow_run_completed_total", TYPE, "w1", "succeeded")),
        "fail": (moves.fail(one, "{}", "x", elapsed=1.0), ("workflow_run_completed_total", TYPE, "w1", "failed")),
        "overrun": (
            moves.overrun(one, "{}", "x", elapsed=1.0),
            ("workflow_run_completed_total", TYPE, "w1", "timed_out"),
        ),
        "retry": (
            moves.retry(one, "{}", "x", delay=0.0, elapsed=1.0),
            ("workflow_run_yielded_total", TYPE, "w1", "retried"),
        ),
        "exhaust": (moves.exhaust(one, "{}", "x", elapsed=1.0), ("workflow_run_yielded_total", TYPE, "w1", "held")),
        "set_aside": (moves.set_aside(one, "{}", "x", elapsed=1.0), ("workflow_run_yielded_total", TYPE, "w1", "held")),
        "release": (moves.hand_back(one, None), ("workflow_run_yielded_total", TYPE, "w1", "released")),
        "pause": (moves.Pause(one.id, 1, 0, None, 1.0), ("workflow_run_yielded_total", TYPE, "w1", "paused")),
    }
    performed = {name for name, move in moves.MOVES.items() if move.needs is moves.Needs.LEASE}
    assert told.keys() == performed, "a new move of the journal needs a name in worker/metrics.py"
    for entry, place in told.values():
        before = desk.value(*place)
        desk.meter.flushed([entry], [Outcome.DONE], 0.01)
        assert desk.value(*place) == before + 1
    assert desk.value("workflow_run_execution_duration_seconds", TYPE, "w1", "pending") == 3, (
        "what never ran took no time"
    )


def test_attempts_beyond_the_ninth_are_counted_together() -> None:
    leases = [lease(attempt) for attempt in (0, 8, 9, 500)]
    desk = Desk(*leases)
    entries = [moves.retry(one, "{}", "x", delay=0.0, elapsed=0.0) for one in leases]
    desk.meter.flushed(entries, [Outcome.DONE] * 4, 0.01)
    counted = {
        key[3]: value for key, value in desk.exported().items() if key[0] == "workflow_run_failed_attempts_total"
    }
    assert counted == {"1": 1, "9": 1, "10+": 2}


def test_steps_are_counted_and_other_records_are_not() -> None:
    one = lease()
    desk = Desk(one)
    kinds = [(StepKind.STEP, StepStatus.SUCCEEDED), (StepKind.SLEEP, StepStatus.SUCCEEDED)]
    kinds += [(StepKind.STEP, StepStatus.RETRYING), (StepKind.STEP, StepStatus.FAILED)]
    entries = [Record(one.id, 1, f"s#{n}", kind, status, elapsed=0.1) for n, (kind, status) in enumerate(kinds)]
    entries.append(Record(one.id, 1, "race#0", StepKind.RACE, StepStatus.SUCCEEDED, also=(entries[0],)))
    desk.meter.flushed(entries, [Outcome.DONE] * 5, 0.01)
    assert desk.value("workflow_step_total", TYPE, "w1", "succeeded") == 2
    assert desk.value("workflow_step_total", TYPE, "w1", "retrying") == 1
    assert desk.value("workflow_step_total", TYPE, "w1", "failed") == 1


def test_series_of_served_types_begin_at_zero() -> None:
    desk = Desk()
    desk.meter.serves([TYPE])
    seen = desk.exported()
    assert seen["workflow_run_claimed_total", TYPE, "w1"] == 0
    assert seen["workflow_run_failed_total", TYPE, "w1"] == 0
    assert seen["workflow_run_completed_total", TYPE, "w1", "succeeded"] == 0


def test_wake_up_latency_is_the_wait_by_the_databases_clock_and_the_claim() -> None:
    desk = Desk()
    desk.meter.claimed([lease(waited=2.0), lease(waited=0.0)], 0.25)
    assert desk.meter.wakeups[TYPE].sum == pytest.approx(2.5)
    assert desk.value("workflow_run_claimed_total", TYPE, "w1") == 2


def test_a_mistake_in_counting_costs_a_number_and_never_a_run(caplog: pytest.LogCaptureFixture) -> None:
    def broken(run_id: UUID) -> Lease | None:
        raise KeyError(run_id)

    one = lease()
    meter = Meter(broken)
    meter.flushed([moves.succeed(one, "1", elapsed=0.0)], [Outcome.DONE], 0.01)
    meter.claimed([one._replace(run_at=None)], 0.01)  # type: ignore[arg-type]
    assert [record.message for record in caplog.records] == [
        "counting for metrics went wrong; the numbers are a little too small"
    ] * 2


def test_only_known_metrics_with_their_own_labels_are_exported() -> None:
    desk = Desk()
    desk.meter.serves([TYPE])
    for name, *labels in desk.exported():
        assert len(labels) == len(metrics.FAMILIES[name].labels), name
    names = [name.removesuffix("_total") for name in metrics.FAMILIES]
    assert len(names) == len(set(names))
    assert all(name.endswith("_total") == (family.kind == "counter") for name, family in metrics.FAMILIES.items())


# Health.


def test_health_follows_the_last_good_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Meter({}.get)
    assert metrics_server._health(meter).status == 503
    meter.polled()
    assert metrics_server._health(meter).status == 200
    meter.polled(StoreUnavailable("away"))
    assert metrics_server._health(meter).status == 200, "one turn that goes wrong is no illness"
    assert meter.poll_errors == {"StoreUnavailable": 1}
    assert meter.polled_at is not None
    meter.polled_at -= metrics_server.SILENCE + 1
    ill = metrics_server._health(meter)
    assert ill.status == 503
    assert b"has not managed to look for work for 31s" in ill.body
    meter.polled()
    meter.is_stopping = True
    assert metrics_server._health(meter).status == 503


# The queue's gauges.


async def test_the_queue_is_read_once_however_many_ask(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    run = ledger.run

    async def counted(operation: Any, **rest: Any) -> Any:
        looks.append(operation)
        return await run(operation, **rest)

    monkeypatch.setattr(ledger, "run", counted)
    reader = QueueReader(ledger)
    readings = await asyncio.gather(*(reader.read() for _ in range(50)))
    readings += [await reader.read() for _ in range(50)]
    assert len(looks) == 2, "the queue and the sizes"
    assert len({id(reading) for reading in readings}) == 1
    monkeypatch.setattr(metrics_database, "FRESH", 0.0)
    await reader.read()
    assert len(looks) == 4


async def test_a_database_that_does_not_answer_is_an_answer(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    async def never(operation: Any, **rest: Any) -> Any:
        nonlocal looks
        looks += 1
        await asyncio.Event().wait()

    monkeypatch.setattr(metrics_database, "TIMEOUT", -0.99)
    monkeypatch.setattr(ledger, "run", never)
    reader = QueueReader(ledger)
    assert [reading.depth for reading in await asyncio.gather(*(reader.read() for _ in range(10)))] == [None] * 10
    assert looks == 1, "and it is not asked again at once"


# An embedded worker.


async def scraped(port: int) -> Scraped:
    return await asyncio.to_thread(scrape, port)


async def until(port: int, met: Callable[[Scraped], bool]) -> Scraped:
    """Scrape until it is so."""

    async def look() -> Scraped | None:
        seen = await scraped(port)
        return seen if met(seen) else None

    found: Scraped = await eventually(look, "a scrape that tells it")
    return found


async def test_an_embedded_worker_serves_metrics_too(app: swf.App) -> None:
    @app.workflow(TYPE)
    async def work(ctx: swf.Context) -> int:
        return 1

    port = free_port()
    async with app.worker(name="embedded", metrics_port=port):
        assert await app.run(work) == 1
        await app.trigger(work, delay="1h")
        seen = await scraped(port)
        assert seen.value("workflow_run_claimed_total", worker_id="embedded") == 1
        assert seen.value("workflow_run_queue_depth", status="pending") == 1
        assert (await asyncio.to_thread(get, port, "/healthz"))[0] == 200
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(get, port, "/healthz")


async def test_a_port_that_is_taken_keeps_an_embedded_worker_from_starting(app: swf.App) -> None:
    port = free_port()
    async with app.worker(metrics_port=port):
        with pytest.raises(swf.PortUnavailable, match=f"port {port}: Address already in use"):
            async with app.worker(metrics_port=port):
                pass


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"metrics_port": -1}, "from 0"),
        ({"metrics_port": 65_536}, "to 65535"),
        ({"metrics_port": "9464"}, "a number"),
        ({"metrics_port": True}, "a number"),
        ({"metrics_host": "0.0.0.0"}, "metrics_port too"),
    ],
)
async def test_a_wrong_address_is_told_where_it_was_written(app: swf.App, choices: Any, says: str) -> None:
    with pytest.raises(swf.InvalidPolicy, match=says):
        app.worker(**choices)


async def test_runs_of_dead_workers_are_counted_when_they_are_taken_back(app: swf.App, url: str) -> None:
    @app.workflow(TYPE)
    async def work(ctx: swf.Context) -> int:
        return 1

    raw = Raw(url)
    handle = await app.trigger(work)
    spent = await app.trigger(work, max_attempts=1)
    raw.sql(
        "UPDATE workflow.workflow_run SET status = 'leased', version = version + 1, lease_epoch = 1,"
        f" leased_by = 'gone', lease_until = {raw.now} {raw.back(60)}"
    )
    port = free_port()
    async with app.worker(name="w1", metrics_port=port):
        assert await handle.result(timeout=20) == 1
        with pytest.raises(swf.RunFailed):
            await spent.result(timeout=20)
        seen = await until(port, lambda seen: seen.value("workflow_run_swept_total", workflow_type=TYPE) == 2)
        assert seen.value("workflow_run_swept_total", workflow_type=TYPE, status="pending") == 1
        assert seen.value("workflow_run_swept_total", workflow_type=TYPE, status="failed") == 1
        assert seen.value("workflow_run_failed_total", workflow_type=TYPE) == 1
    raw.close()


async def test_a_cancelled_run_is_counted_as_lost_and_a_waiting_one_as_resident(app: swf.App) -> None:
    never = asyncio.Event()

    @app.workflow(TYPE)
    async def work(ctx: swf.Context) -> None:
        await never.wait()

    @app.workflow("test.sit.v1")
    async def sit(ctx: swf.Context) -> None:
        await asyncio.gather(ctx.wait_for_signal("go"), asyncio.Event().wait())

    port = free_port()
    async with app.worker(name="w1", metrics_port=port):
        handle, sitting = await app.trigger(work), await app.trigger(sit)
        seen = await until(port, lambda seen: seen.value("workflow_worker_runs_resident") == 1)
        assert seen.value("workflow_worker_slots_used") == 1
        assert seen.value("workflow_worker_leases") == 2
        await handle.cancel()
        await sitting.cancel()
        seen = await until(port, lambda seen: seen.value("workflow_run_yielded_total", reason="lost") == 2)
        assert seen.value("workflow_worker_leases") == 0


async def test_code_that_blocks_the_loop_shows_as_lag_and_the_scrape_answers_meanwhile(app: swf.App) -> None:
    @app.workflow(TYPE)
    async def rude(ctx: swf.Context) -> None:
        time.sleep(1.5)

    port = free_port()
    async with app.worker(name="w1", metrics_port=port):
        running = await app.trigger(rude)
        seen = await until(port, lambda seen: seen.value("workflow_run_claimed_total") == 1)
        assert seen.value("workflow_run_completed_total") == 0, "it still blocks the loop"
        await running.result(timeout=20)
        lag = "workflow_worker_loop_lag_seconds"
        await until(port, lambda seen: seen.value(f"{lag}_bucket", le="1.0") < seen.value(f"{lag}_count"))


async def test_flushes_that_go_wrong_are_counted_and_tried_again(app: swf.App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.workflow(TYPE)
    async def work(ctx: swf.Context) -> int:
        return 1

    real, failures = journal.writing.write, [StoreUnavailable("away for a moment")] * 2

    def flaky(*given: Any, **rest: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*given, **rest)

    monkeypatch.setattr(journal.writing, "write", flaky)
    port = free_port()
    async with app.worker(name="w1", metrics_port=port):
        handle = await app.trigger(work)
        assert await handle.result(timeout=20) == 1
        seen = await scraped(port)
        assert seen.value("workflow_journal_flush_errors_total", error_type="StoreUnavailable") == 2
        assert seen.value("workflow_run_completed_total", status="succeeded") == 1
