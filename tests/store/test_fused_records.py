"""Plain records in one statement (PostgreSQL): the same law as the long road, in one round trip."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from support.ledger import Raw, claim, held_up, leased, offer, record, released, settle

from simpleworkflow.model.errors import StoreError
from simpleworkflow.model.moves import Outcome, Record
from simpleworkflow.model.states import StepStatus
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.operations import steps, writing, written_rows


@pytest.fixture
async def pg(postgres_url: str) -> AsyncIterator[tuple[Ledger, Raw]]:
    ledger = open_ledger(postgres_url)
    await ledger.check()
    raw = Raw(postgres_url)
    yield ledger, raw
    raw.close()
    await ledger.close()


async def fused(ledger: Ledger, *records: Record) -> list[Outcome]:
    operation = writing.write(list(records), "w1", fused=True)
    assert operation.name in {"_record_fenced", "_record_results"}
    return await ledger.run(operation)


async def test_records_of_held_leases_are_written_and_others_are_lost(pg: tuple[Ledger, Raw]) -> None:
    ledger, raw = pg
    first = await leased(ledger)
    await settle(ledger, released(first))
    (second,) = await claim(ledger, offer())
    assert second.epoch == 2
    assert await fused(ledger, record(first, "old#0"), record(second, "new#0", output="7")) == [
        Outcome.LOST,
        Outcome.DONE,
    ]
    assert [(row["step_id"], row["lease_epoch"], row["output"]) for row in raw.steps(first.id)] == [("new#0", 2, 7)]


async def test_a_record_that_is_complete_stays_so_and_a_waiting_one_is_completed(pg: tuple[Ledger, Raw]) -> None:
    ledger, raw = pg
    lease = await leased(ledger)
    assert await fused(ledger, record(lease, "a#0", status=StepStatus.WAITING)) == [Outcome.DONE]
    assert await fused(ledger, record(lease, "a#0", output="1")) == [Outcome.DONE]
    assert await fused(ledger, record(lease, "a#0", status=StepStatus.WAITING)) == [Outcome.DONE]
    (row,) = raw.steps(lease.id)
    assert (row["status"], row["output"]) == ("succeeded", 1)
    assert row["done_seq"] > row["seq"]


async def test_a_result_that_is_on_record_already_stays_and_its_neighbours_are_written(pg: tuple[Ledger, Raw]) -> None:
    """As after a try whose answer was lost: the statement for new results meets its own rows."""
    ledger, raw = pg
    lease = await leased(ledger)
    first, again, new = (record(lease, id, output=out) for id, out in (("a#0", "1"), ("a#0", "2"), ("b#0", "3")))
    assert await fused(ledger, first) == [Outcome.DONE]
    assert await fused(ledger, again, new) == [Outcome.DONE, Outcome.DONE]
    assert [(row["step_id"], row["output"]) for row in raw.steps(lease.id)] == [("a#0", 1), ("b#0", 3)]


ODD_NAMES = ["plain#0", "a,b#0", "{a}#0", '"a"#0', "a\\b#0", "NULL#0", " a #0", "ä→#0", "#=null#0"]


async def test_results_come_back_as_they_were_whatever_their_names_and_texts_look_like(pg: tuple[Ledger, Raw]) -> None:
    ledger, _ = pg
    lease = await leased(ledger)
    texts = [None, '"\\u001f"', "null", '"null"', '[1, "a,b"]', '{"a": "{}"}', '"\\\\"', '""', '"ä\\n"']
    results = [
        record(lease, name, input=text, output=texts[-1 - n] or "1")
        for n, (name, text) in enumerate(zip(ODD_NAMES, texts, strict=True))
    ]
    assert await fused(ledger, *results) == [Outcome.DONE] * len(results)
    history = (await ledger.run(steps.load([lease.id])))[lease.id]
    found = {step.step_id: (step.input_json, step.output_json) for step in history.steps.values()}
    assert found == {one.step_id: (one.input, one.output) for one in results}


@pytest.mark.parametrize("where", ["step_id", "input", "output"])
async def test_a_text_that_holds_the_separator_of_texts_is_nobody_elses(pg: tuple[Ledger, Raw], where: str) -> None:
    ledger, _ = pg
    lease = await leased(ledger)
    odd = {"step_id": {"step_id": "a\x1fb#0"}, "input": {"input": '"a"\x1f"b"'}, "output": {"output": "1\x1f2"}}[where]
    results = [record(lease, "first#0", output="1"), record(lease, **{"step_id": "odd#0", "output": "2"} | odd)]
    assert written_rows.in_columns(results) is None
    assert written_rows.in_columns(results[:1]) is not None
    if where == "step_id":
        assert await fused(ledger, *results, record(lease, "last#0", output="3")) == [Outcome.DONE] * 3
        history = (await ledger.run(steps.load([lease.id])))[lease.id]
        found = {step.step_id: step.output_json for step in history.steps.values()}
        assert found == {"first#0": "1", "a\x1fb#0": "2", "last#0": "3"}
    else:
        with pytest.raises(StoreError):
            await fused(ledger, *results)  # no JSON has it; PostgreSQL says so, and nothing is written
        assert (await ledger.run(steps.load([lease.id])))[lease.id].steps == {}


async def test_one_step_that_succeeded_twice_in_a_batch_is_written_once(pg: tuple[Ledger, Raw]) -> None:
    ledger, raw = pg
    lease = await leased(ledger)
    assert await fused(ledger, record(lease, "a#0"), record(lease, "a#0")) == [Outcome.DONE, Outcome.DONE]
    assert len(raw.steps(lease.id)) == 1


async def test_a_record_that_waited_for_a_newer_epoch_is_lost(pg: tuple[Ledger, Raw], postgres_url: str) -> None:
    """The statement began while the lease was good; the take-over commits first; nothing may land."""
    ledger, raw = pg
    lease = await leased(ledger)
    with psycopg.connect(postgres_url) as other:
        other.execute(
            "UPDATE workflow.workflow_run SET lease_epoch = lease_epoch + 1, version = version + 1 WHERE id = %s",
            [lease.id],
        )
        operation: Any = writing.write([record(lease, "late#0")], "w1", fused=True)
        operation.impatient = False
        task = await held_up(raw, other, ledger.run(operation))
        other.commit()
    assert await task == [Outcome.LOST]
    assert raw.steps(lease.id) == []


@pytest.mark.parametrize("extra", [{"clears_suspicion": True}, {"told": "{}"}, {"emits": ("x", "1")}])
async def test_records_that_leave_more_than_their_row_take_the_long_road(
    pg: tuple[Ledger, Raw], extra: dict[str, Any]
) -> None:
    ledger, _ = pg
    lease = await leased(ledger)
    assert writing.write([record(lease, "a#0", **extra)], "w1", fused=True).name == "_write_locked"
