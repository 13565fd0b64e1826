"""pgqrs's spelling: what its documents promise works as they spell it, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from support.ledger import Raw
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.compat.pgqrs import (
    Pause,
    RunStatus,
    Store,
    SyncWorkflowContext,
    WorkflowContext,
    consumer,
    open_store,
    workflow,
)

from .pgqrs_room import QUICK, polling, serve, until


@dataclass
class ZipParams:
    bucket: str
    prefix: str


@dataclass
class ZipResult:
    archive: str
    files: int


class Order(pydantic.BaseModel):
    id: int
    items: list[str]


async def zip_files(ctx: WorkflowContext, params: ZipParams) -> ZipResult:
    async def list_objects() -> list[str]:
        return [f"{params.prefix}{n}" for n in range(3)]

    files = await ctx.step("list_files", lambda: list_objects())
    archive = await ctx.step("zip", lambda: f"{params.bucket}/{params.prefix}.zip")
    return ZipResult(archive, len(files))


async def test_the_example_of_the_documents_runs_as_they_spell_it(store: Store) -> None:
    await store.create_workflow("zip_files")
    params = ZipParams(bucket="b", prefix="p")
    run_id = await workflow("zip_files").trigger(params).execute(store)
    run = await workflow("zip_files").get_run(run_id, store)
    assert (run.run_id, run.workflow, run.status) == (run_id, "zip_files", RunStatus.QUEUED)
    assert (run.input, run.output, run.error) == ({"bucket": "b", "prefix": "p"}, None, None)
    assert (run.started_at, run.completed_at) == (None, None)
    worker = consumer("worker-1", 8080, "zip_files").handler(zip_files).create(store)
    async with polling(worker):
        done = await until(store, run_id, RunStatus.SUCCESS)
        assert done.output == {"archive": "b/p.zip", "files": 3}
        assert done.completed_at is not None
        waited = await workflow("zip_files").trigger(params).wait().timeout(20).execute(store)
        assert waited == {"archive": "b/p.zip", "files": 3}


async def test_creating_a_workflow_again_changes_nothing(store: Store) -> None:
    assert (await store.create_workflow("zip_files")).name == "zip_files"
    await store.app.definitions.disable("zip_files")
    await store.create_workflow("zip_files")
    await serve(store, "zip_files", zip_files)
    with pytest.raises(swf.NotRunnable):
        await workflow("zip_files").trigger().execute(store)
    with pytest.raises(swf.InvalidName):
        await store.create_workflow("zip files")


async def test_a_trigger_fails_at_once_unless_somebody_has_created_the_workflow(store: Store) -> None:
    with pytest.raises(swf.NotRunnable, match="zip_files"):
        await workflow("zip_files").trigger().execute(store)
    assert [run async for run in store.app.runs()] == []
    early = await workflow("zip_files").trigger(ZipParams("b", "p"), require=None).execute(store)
    worker = await serve(store, "zip_files", zip_files)
    await workflow("zip_files").trigger(ZipParams("b", "q")).execute(store)
    async with polling(worker):
        assert (await workflow("zip_files").result(early, store, timeout=20))["files"] == 3


async def test_a_trigger_may_insist_on_a_live_worker(store: Store) -> None:
    worker = await serve(store, "zip_files", zip_files)
    insisting = workflow("zip_files").trigger(ZipParams("b", "p"), require="worker")
    with pytest.raises(swf.NotRunnable, match="no live worker"):
        await insisting.execute(store)
    assert [run async for run in store.app.runs()] == []
    async with polling(worker):
        await eventually(store.app.workers.alive, "the worker is known")
        assert [w.name for w in await store.app.workers.alive()] == ["worker-1:8080"]
        assert (await insisting.wait().timeout(20).execute(store))["files"] == 3


async def test_a_process_with_nothing_but_the_store_triggers_and_gets_results(store: Store, url: str) -> None:
    async with polling(await serve(store, "zip_files", zip_files)), open_store(url) as elsewhere:
        run_id = await workflow("zip_files").trigger(ZipParams("b", "p")).execute(elsewhere)
        assert await workflow("zip_files").result(run_id, elsewhere, timeout=20) == {"archive": "b/p.zip", "files": 3}
        typed = workflow("zip_files", input=ZipParams, output=ZipResult)
        assert await typed.result(run_id, elsewhere) == ZipResult("b/p.zip", 3)
        assert await typed.trigger(ZipParams("c", "d")).wait().timeout("20s").execute(elsewhere) == ZipResult(
            "c/d.zip", 3
        )
        with pytest.raises(swf.InvalidInput, match="payload of zip_files"):
            await typed.trigger({"bucket": 1}).execute(elsewhere)


async def test_inputs_are_decoded_as_the_handler_annotates_them(store: Store) -> None:
    @dataclass
    class Local:
        text: str

    async def modelled(ctx: WorkflowContext, order: Order) -> list[str]:
        return [type(order).__name__, *order.items]

    def local(ctx: SyncWorkflowContext, value: Local) -> str:
        return ctx.step("shout", value.text.upper)

    async def plain(ctx, params):  # type: ignore[no-untyped-def]
        return params

    async def empty(ctx: swf.Context) -> str:
        return "nothing"

    cases: list[tuple[str, Any, Any, Any]] = [
        ("modelled", modelled, Order(id=1, items=["a"]), ["Order", "a"]),
        ("local", local, Local("hi"), "HI"),
        ("plain", plain, {"any": [1, None]}, {"any": [1, None]}),
        ("empty", empty, None, "nothing"),
    ]
    workers = []
    for name, handler, _, _ in cases:
        workers.append(await consumer("w", 1, name).handler(handler).create(store))
    async with polling(*workers):
        for name, _, value, expected in cases:
            assert await workflow(name).trigger(value).wait().timeout(20).execute(store) == expected
        misfit = await workflow("modelled").trigger({"id": "x"}).execute(store)
        failed = await until(store, misfit, RunStatus.ERROR)
    assert failed.error is not None
    assert "its payload does not fit modelled" in failed.error["message"]
    assert failed.run.attempt == 1, "no attempt can make it fit"


async def test_versions_are_names_and_run_side_by_side(store: Store) -> None:
    async def first(ctx: WorkflowContext) -> str:
        return "old"

    async def second(ctx: WorkflowContext) -> str:
        return "new"

    async with polling(await serve(store, "invoice_v1", first), await serve(store, "invoice_v2", second)):
        runs = [workflow(f"invoice_v{version}").trigger().wait().timeout(20).execute(store) for version in (1, 2)]
        assert await asyncio.gather(*runs) == ["old", "new"]


async def test_each_consumer_serves_its_own_workflow_only(store: Store) -> None:
    served = await serve(store, "zip_files", zip_files)
    await serve(store, "zip_files_v2", zip_files)
    async with polling(served):
        other = await workflow("zip_files_v2").trigger(ZipParams("b", "p")).execute(store)
        await workflow("zip_files").trigger(ZipParams("b", "p")).wait().timeout(20).execute(store)
        assert (await workflow("zip_files_v2").get_run(other, store)).status is RunStatus.QUEUED


async def test_consumers_share_one_handler_and_refuse_a_second_one(store: Store) -> None:
    meeting = threading.Barrier(2, timeout=20)

    def meet(ctx: SyncWorkflowContext) -> None:
        meeting.wait()

    workers = [await consumer(f"w{n}", 80, "meet", concurrency=1).handler(meet).create(store) for n in range(2)]
    async with polling(*workers):
        runs = [await workflow("meet").trigger(max_attempts=1).execute(store) for _ in range(2)]
        for run_id in runs:
            await workflow("meet").result(run_id, store, timeout=20)
    leased = [
        e.data["worker"] for run_id in runs for e in await store.app.handle(run_id).events() if e.type == "leased"
    ]
    assert sorted(name.partition("@")[0] for name in leased) == ["w0:80", "w1:80"]
    with pytest.raises(swf.InvalidWorkflow, match="registered twice"):
        consumer("w3", 1, "meet").handler(zip_files).create(store)
    with pytest.raises(swf.InvalidWorkflow, match=r"needs code"):
        consumer("w4", 1, "meet").create(store)


async def test_what_cannot_be_a_handler_is_refused_where_it_is_given(store: Store) -> None:
    async def yields(ctx: WorkflowContext) -> AsyncIterator[int]:
        yield 1

    async def many(ctx: WorkflowContext, a: int, b: int) -> None: ...

    async def no_ctx(params: ZipParams) -> None: ...

    for wrong, why in ((yields, "yields"), (many, "at most one"), (no_ctx, "takes no ctx"), (3, "write a function")):
        with pytest.raises(swf.InvalidWorkflow, match=why):
            consumer("w", 1, "wrong").handler(wrong).create(store)  # type: ignore[arg-type]


async def test_a_run_is_told_in_the_words_of_the_documents(store: Store) -> None:
    async def fails(ctx: WorkflowContext) -> None:
        raise ValueError("no luck")

    retry = swf.Retry(max_attempts=2, initial="1h", max_delay="1h", jitter=0)
    async with polling(await serve(store, "fails", fails, retry=retry)):
        between = await workflow("fails").trigger().execute(store)
        async with asyncio.timeout(20):
            while (run := await workflow("fails").get_run(between, store)).run.attempt == 0:
                await asyncio.sleep(0.01)
        assert (run.status, run.run.status, run.error) == (RunStatus.RUNNING, "pending", None)
        await store.app.cancel(between)
        assert (await workflow("fails").get_run(between, store)).status is RunStatus.CANCELLED
        last = await workflow("fails").trigger(max_attempts=1).execute(store)
        failed = await until(store, last, RunStatus.ERROR)
        assert failed.error is not None
        assert (failed.error["type"], failed.error["message"]) == ("ValueError", "no luck")
        with pytest.raises(swf.RunFailed, match="no luck"):
            await workflow("fails").result(failed, store)
    assert RunStatus.PENDING is RunStatus.QUEUED


async def test_a_run_is_found_under_its_own_workflow_only(store: Store) -> None:
    await store.create_workflow("zip_files")
    run_id = await workflow("zip_files").trigger().execute(store)
    with pytest.raises(swf.RunNotFound, match="is one of zip_files, not of other"):
        await workflow("other").get_run(run_id, store)
    with pytest.raises(swf.RunNotFound):
        await workflow("zip_files").get_run("00000000-0000-7000-8000-000000000000", store)


async def test_waiting_for_a_result_ends_with_what_the_run_is_doing(store: Store) -> None:
    await store.create_workflow("zip_files")
    with pytest.raises(swf.ResultTimeout, match="no live worker"):
        await workflow("zip_files").trigger().wait().timeout(0.1).execute(store)
    (run,) = [run async for run in store.app.runs()]
    assert run.status == "pending", "the run is there, whoever waits"


async def test_a_trigger_takes_part_in_a_transaction_and_in_idempotency(store: Store, raw_beside: Raw) -> None:
    await store.create_workflow("zip_files")
    raw_beside.sql("BEGIN")
    await workflow("zip_files").trigger({"n": 1}, connection=raw_beside.connection).execute(store)
    raw_beside.sql("ROLLBACK")
    assert [run async for run in store.app.runs()] == []
    once = workflow("zip_files").trigger({"n": 1}, idempotency_key="k", delay="1h")
    assert await once.execute(store) == await once.execute(store)


async def test_a_trigger_inside_a_handler_happens_once_however_often_the_code_runs(store: Store) -> None:
    async def parent(ctx: WorkflowContext) -> str:
        run_id = await workflow("zip_files").trigger(ZipParams("b", "p")).execute(store)
        result = await workflow("zip_files").trigger(ZipParams("b", "q")).wait().execute(store)
        await ctx.pause(resume_after="1100ms")
        return f"{run_id} {result['archive']}"

    async with polling(await serve(store, "parent", parent), await serve(store, "zip_files", zip_files)):
        run_id, archive = (await workflow("parent").trigger().wait().timeout(20).execute(store)).split()
        assert archive == "b/q.zip"
        assert (await workflow("zip_files").result(run_id, store, timeout=20))["archive"] == "b/p.zip"
    assert {count.type: count.runs for count in await store.app.activity.counts()} == {"parent": 1, "zip_files": 2}


async def test_a_store_opens_by_itself_and_is_made_once_per_database(url: str) -> None:
    lazy = open_store(url, settings=QUICK)
    assert await lazy is lazy
    assert await lazy.install() == [], "the tables are there"
    await lazy.close()


def test_a_pause_that_checks_without_rest_is_refused() -> None:
    with pytest.raises(swf.InvalidDuration, match="too often"):
        Pause(check_every=0)
