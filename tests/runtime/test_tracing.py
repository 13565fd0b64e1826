"""A trace is one tree: trigger, executions, resumes, children and steps, read back from an in-memory exporter.

And the other side of the promise: a program that traces nothing loads nothing of it, nonsense in the row or a broken
exporter never fails a run, and what the sampler does not want is not recorded.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler
from opentelemetry.trace import SpanKind, StatusCode
from support.door import run_python, start_python
from support.ledger import Raw
from support.waiting import eventually, until

import simpleworkflow as swf
from simpleworkflow.clock import new_id
from simpleworkflow.model.records import NewRun
from simpleworkflow.model.states import Status
from simpleworkflow.runtime import tracing
from simpleworkflow.store.operations import runs

QUICK = swf.Settings(lease=2.0, sweep_every=0.2, poll_every=0.1, local_check_every=0.2, drain=0.0)
ONCE = swf.Retry(max_attempts=1)
SECRET = "4111-1111"


class Spans:
    """What a program's exporter has been told."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self) -> Sequence[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def tree(self) -> dict[str, Any]:
        """Names inside names; a parent that nobody has sent is called '?'."""
        known = {_id(span): span for span in self.all()}

        def below(parent: ReadableSpan | None, spans: list[ReadableSpan]) -> list[Any]:
            mine = [s for s in spans if (known.get(s.parent.span_id) if s.parent else None) is parent]
            return [{span.name: inner} if (inner := below(span, self._children(span))) else span.name for span in mine]

        roots = [span for span in self.all() if span.parent is None or span.parent.span_id not in known]
        return {"roots": below(None, roots), "traces": len({_trace(span) for span in self.all()})}

    def _children(self, parent: ReadableSpan) -> list[ReadableSpan]:
        return [span for span in self.all() if span.parent is not None and span.parent.span_id == _id(parent)]


def _id(span: ReadableSpan) -> int:
    return span.get_span_context().span_id


def _trace(span: ReadableSpan) -> int:
    return span.get_span_context().trace_id


def about(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {})[f"simpleworkflow.{name}"]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    tracing.trace_by_default()


@pytest.fixture
def spans() -> Spans:
    found = Spans()
    swf.trace_with(found.provider)
    return found


@pytest.fixture
async def app(url: str) -> AsyncIterator[swf.App]:
    app = swf.App(url, settings=QUICK)
    yield app
    await app.close()


async def until_paused(handle: swf.RunHandle[Any]) -> None:
    async def is_paused() -> bool:
        return (await handle.get()).status is Status.PAUSED

    await eventually(is_paused, "it is paused")


def order(app: swf.App, seen: Callable[[str], object] = lambda _: None) -> swf.Workflow[None, str]:
    """Two steps, a pause between them, and a child with a step of its own."""

    @app.workflow("t.label.v1")
    async def label(ctx: swf.Context, parcel: str) -> str:
        return await ctx.step("print", lambda: f"label for {parcel}")

    @app.workflow("t.order.v1")
    async def ship(ctx: swf.Context) -> str:
        seen("handler")
        await ctx.step("charge", lambda: seen("charge"))
        await ctx.wait_for_signal("approved")
        return await ctx.run(label, "a lamp")

    return ship


async def test_one_tree_joins_trigger_run_resume_child_and_step(app: swf.App, url: str, spans: Spans) -> None:
    ship = order(app)
    tracer = spans.provider.get_tracer("the caller's own")
    with tracer.start_as_current_span("request"):
        handle = await app.trigger(ship)
    async with app.worker(name="first"):
        await until_paused(handle)
    await handle.signal("approved")
    later = swf.App(url, settings=QUICK)
    order(later)
    async with later.worker(name="second"):
        assert await handle.result("10s") == "label for a lamp"
    await later.close()

    first, second, *more = spans.named("run t.order.v1")
    third = more[-1] if more else second
    child = {"run t.label.v1": ["step print"]}
    assert spans.tree() == {
        "roots": [
            {
                "request": [
                    {"trigger t.order.v1": [{"run t.order.v1": ["step charge"]}, {"run t.order.v1": [child]}]
                     + ["run t.order.v1"] * len(more)}
                ]
            }
        ],
        "traces": 1,
    }  # fmt: skip
    assert spans.one("trigger t.order.v1").kind is SpanKind.PRODUCER
    assert (first.kind, about(first, "run_id")) == (SpanKind.CONSUMER, str(handle.id))
    assert [event.name for event in first.events] == ["paused"]
    assert (about(first, "outcome"), about(third, "outcome")) == ("paused", "succeeded")
    assert (about(first, "epoch"), about(first, "resumed"), about(second, "resumed")) == (1, False, True)
    assert str(about(first, "worker")).startswith("first")
    assert str(about(second, "worker")).startswith("second")
    assert about(second, "replayed_records") > 0
    assert [link.context.span_id for link in second.links] == [_id(first)]
    carried, flags = str((await handle.get()).traceparent).rsplit("-", 1)
    assert carried == f"00-{_trace(first):032x}-{_id(spans.one('trigger t.order.v1')):016x}"
    assert int(flags, 16) & trace.TraceFlags.SAMPLED
    assert about(spans.one("trigger t.order.v1"), "run_id") == str(handle.id)


async def test_code_in_handlers_and_steps_sees_its_span_in_threads_too(app: swf.App, spans: Spans) -> None:
    seen: dict[str, int] = {}

    def note(where: str) -> None:
        seen[where] = trace.get_current_span().get_span_context().span_id

    async def note_later(where: str) -> None:
        await asyncio.sleep(0)
        note(where)

    @app.workflow("t.async.v1")
    async def quick(ctx: swf.Context) -> None:
        note("async handler")
        await asyncio.gather(ctx.step("a thread", note, "thread step"), ctx.step("a task", note_later, "task step"))
        note("async handler again")

    @app.workflow("t.sync.v1")
    def slow(ctx: swf.SyncContext) -> None:
        note("sync handler")
        ctx.step("inner", note, "step of a sync handler")

    async with app.worker():
        await app.run(quick, timeout="10s")
        await app.run(slow, timeout="10s")
    assert seen == {
        "async handler": _id(spans.one("run t.async.v1")),
        "async handler again": _id(spans.one("run t.async.v1")),
        "thread step": _id(spans.one("step a thread")),
        "task step": _id(spans.one("step a task")),
        "sync handler": _id(spans.one("run t.sync.v1")),
        "step of a sync handler": _id(spans.one("step inner")),
    }
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_a_failed_execution_tells_its_error_and_the_next_one_joins(app: swf.App, spans: Spans) -> None:
    tried: list[int] = []

    @app.workflow("t.flaky.v1", retry=swf.Retry(max_attempts=2, initial="1ms"))
    async def flaky(ctx: swf.Context, card: str) -> str:
        async def charge() -> str:
            tried.append(1)
            if len(tried) == 1:
                raise ConnectionError("no way to postgresql://ada:hunter2@db/orders")
            return card

        return await ctx.step("charge", charge)

    async with app.worker():
        await app.run(flaky, SECRET, timeout="10s")
    bad_step, good_step = spans.named("step charge")
    bad, good = spans.named("run t.flaky.v1")
    assert [bad.status.status_code, good.status.status_code] == [StatusCode.ERROR, StatusCode.UNSET]
    assert [about(bad, "outcome"), about(good, "outcome")] == ["retried", "succeeded"]
    assert [about(bad, "attempt"), about(good, "attempt")] == [0, 1]
    assert bad_step.status.status_code is StatusCode.ERROR
    assert good_step.status.status_code is StatusCode.UNSET
    (event,) = bad_step.events
    assert event.name == "exception"
    assert (event.attributes or {})["exception.type"] == "builtins.ConnectionError"
    assert (event.attributes or {})["exception.message"] == "no way to postgresql://ada:***@db/orders"
    assert spans.tree()["traces"] == 1
    told = "".join(span.to_json() for span in spans.all())
    assert "hunter2" not in told
    assert SECRET not in told


async def test_a_call_for_many_runs_is_one_span_and_the_parent_of_all(app: swf.App, spans: Spans) -> None:
    @app.workflow("t.many.v1")
    async def many(ctx: swf.Context, number: int) -> None: ...

    async with app.worker():
        handles = await app.trigger_many(many, range(5))
        for handle in handles:
            await handle.result("10s")
    assert about(spans.one("trigger t.many.v1"), "runs") == 5
    assert spans.tree() == {"roots": [{"trigger t.many.v1": ["run t.many.v1"] * 5}], "traces": 1}


async def test_triggers_of_the_app_inside_a_workflow_join_it_and_are_not_told_again_on_replay(
    app: swf.App, spans: Spans
) -> None:
    @app.workflow("t.leaf.v1")
    async def leaf(ctx: swf.Context, name: str) -> str:
        return name

    @app.workflow("t.inside.v1")
    async def inside(ctx: swf.Context) -> None:
        await (await app.trigger(leaf, "as a child")).result()
        await (await app.trigger(leaf, "by key", idempotency_key="leaf")).result()
        await ctx.step("trigger", lambda: app.sync.run(leaf, "inside a step"))
        await ctx.wait_for_signal("go")

    async with app.worker():
        handle = await app.trigger(inside)
        await eventually(lambda: spans.named("step trigger"))
        await until_paused(handle)
        await handle.signal("go")
        await handle.result("10s")
    assert spans.tree()["traces"] == 1
    assert len(spans.named("run t.leaf.v1")) == 3
    by_key, in_step = spans.named("trigger t.leaf.v1")
    step = spans.one("step trigger")
    assert in_step.parent is not None
    assert in_step.parent.span_id == _id(step)
    assert by_key.parent is not None
    assert by_key.parent.span_id in {_id(span) for span in spans.named("run t.inside.v1")}


async def test_a_run_that_plain_sql_made_has_one_trace_which_its_id_decides(
    app: swf.App, raw: Raw, spans: Spans
) -> None:
    order(app)
    for _ in range(2):
        raw.sql("INSERT INTO workflow.workflow_run (type) VALUES ('t.order.v1')")
    paused: list[UUID] = []
    async with app.worker():
        async with asyncio.timeout(10):
            while len(paused) < 2:
                paused = [run.id async for run in app.runs(status=Status.PAUSED)]
    for run_id in paused:
        await app.signal(run_id, "approved")
    async with app.worker():
        for run_id in paused:
            await app.handle(run_id).wait(timeout="10s")
    traces = {run_id: {_trace(s) for s in spans.all() if about(s, "run_id") == str(run_id)} for run_id in paused}
    assert [len(found) for found in traces.values()] == [1, 1]
    assert spans.tree()["traces"] == 2, "each run, with its child, is one trace"
    assert len(spans.named("run t.label.v1")) == 2


@pytest.mark.parametrize(
    "nonsense",
    [
        "",
        "hello",
        "00-00000000000000000000000000000000-0000000000000001-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "\x1b[31m" + "9" * 400,
    ],
)
async def test_nonsense_in_the_row_counts_as_absent(app: swf.App, nonsense: str, spans: Spans) -> None:
    @app.workflow("t.plain.v1")
    async def plain(ctx: swf.Context) -> str:
        return "done"

    new = NewRun(new_id(), "t.plain.v1", "null", traceparent=nonsense)
    twin = NewRun(new_id(), "t.plain.v1", "null")
    await app._client.run(runs.create([new, twin]))
    async with app.worker():
        assert (await app.handle(new.id).wait(timeout="10s")).status is Status.SUCCEEDED
        await app.handle(twin.id).wait(timeout="10s")
    assert spans.tree()["traces"] == 2
    assert "0af7651916cd43dd8448eb211c80319c" not in {f"{_trace(span):032x}" for span in spans.all()}


async def test_bytes_that_a_stranger_stored_harm_neither_a_run_nor_its_children(
    app: swf.App, raw: Raw, spans: Spans
) -> None:
    ship = order(app)
    traced, untraced = await app.trigger(ship), await app.trigger(ship)
    text = f"x'{'00ff' * 250}'" if raw.is_sqlite else "'nonsense'"  # the other one takes no bytes
    await untraced.hold()
    if raw.is_sqlite:
        raw.sql("DROP TRIGGER run_limits_kept")  # it would refuse them
    raw.sql(f"UPDATE workflow.workflow_run SET traceparent = {text}")
    for handle, provider in ((traced, spans.provider), (untraced, None)):
        swf.trace_with(provider)
        await handle.resume()
        await handle.signal("approved")
        async with app.worker():
            assert await handle.result("10s") == "label for a lamp"
    ran = {_trace(span) for span in spans.named("run t.order.v1")}
    assert len(ran) == 1
    assert not ran & {_trace(span) for span in spans.named("trigger t.order.v1")}


async def test_what_is_not_sampled_leaves_nothing_but_is_handed_on(app: swf.App) -> None:
    spans = Spans(ParentBased(ALWAYS_OFF))
    swf.trace_with(spans.provider)
    ship = order(app)
    async with app.worker():
        handle = await app.trigger(ship)
        await until_paused(handle)
        await handle.signal("approved")
        await handle.result("10s")
    by_sql = NewRun(new_id(), "t.label.v1", '"by sql"')
    await app._client.run(runs.create([by_sql]))
    async with app.worker():
        await app.handle(by_sql.id).wait(timeout="10s")
    assert spans.all() == []
    carried = {run.id: run.traceparent async for run in app.runs() if run.id != by_sql.id}
    assert len(carried) == 2
    assert not any(int(str(text)[-2:], 16) & trace.TraceFlags.SAMPLED for text in carried.values())
    assert len({(text or "")[3:35] for text in carried.values()}) == 1


async def test_a_provider_that_fails_at_every_call_fails_no_run(app: swf.App) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("no room")

        def on_end(self, span: Any) -> None:
            raise RuntimeError("no network")

    provider = TracerProvider()
    provider.add_span_processor(Broken())
    swf.trace_with(provider)
    ship = order(app)
    async with app.worker():
        handle = await app.trigger(ship)
        await until_paused(handle)
        await handle.signal("approved")
        assert await handle.result("10s") == "label for a lamp"


async def test_a_worker_that_does_not_trace_hands_the_trace_on_to_children(app: swf.App, spans: Spans) -> None:
    ship = order(app)
    handle = await app.trigger(ship)
    await handle.signal("approved")
    swf.trace_with(None)
    async with app.worker():
        await handle.result("10s")
    assert [span.name for span in spans.all()] == ["trigger t.order.v1"]
    carried = {run.traceparent async for run in app.runs()}
    assert carried == {(await handle.get()).traceparent}


async def test_what_follows_from_an_end_joins_the_same_trace(app: swf.App, spans: Spans) -> None:
    @app.workflow("t.doomed.v1", retry=ONCE, on_failure="t.letter.v1", on_cancel="t.undo.v1")
    async def doomed(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("fail")
        raise ValueError("no")

    @app.workflow("t.letter.v1")
    async def letter(ctx: swf.Context, story: dict[str, Any]) -> None: ...

    @app.workflow("t.undo.v1")
    async def undo(ctx: swf.Context, story: dict[str, Any]) -> None: ...

    async with app.worker():
        failed, cancelled = await app.trigger(doomed), await app.trigger(doomed)
        await failed.signal("fail")
        await until_paused(cancelled)
        await cancelled.cancel()
        await eventually(lambda: spans.named("run t.undo.v1") and spans.named("run t.letter.v1"))
    first, second = spans.named("trigger t.doomed.v1")
    assert {_trace(spans.one("run t.letter.v1")), _trace(spans.one("run t.undo.v1"))} == {_trace(first), _trace(second)}


async def test_a_key_that_is_taken_keeps_the_trace_of_the_run_that_has_it(app: swf.App, spans: Spans) -> None:
    ship = order(app)
    first = await app.trigger(ship, idempotency_key="k")
    kept = (await first.get()).traceparent
    second = await app.trigger(ship, idempotency_key="k")
    assert (await second.get()).traceparent == kept
    assert [about(span, "is_new") for span in spans.named("trigger t.order.v1")] == [True, False]


async def test_a_refused_trigger_ends_its_span_with_the_error(app: swf.App, spans: Spans) -> None:
    await app.trigger("t.order.v1", 1, idempotency_key="k")
    with pytest.raises(swf.IdempotencyConflict):
        await app.trigger("t.order.v1", 2, idempotency_key="k")
    assert [span.status.status_code for span in spans.all()] == [StatusCode.UNSET, StatusCode.ERROR]


TRACED_WORKER = """
import os, sys, time
import simpleworkflow as swf
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

url, place, dies = sys.argv[1:]
app = swf.App(url, settings=swf.Settings(lease=1.0, sweep_every=0.2, poll_every=0.1, local_check_every=0.2))

@app.workflow("t.crash.v1")
async def crash(ctx: swf.Context) -> str:
    await ctx.step("one", lambda: 1)
    await ctx.step("two", lambda: time.sleep(60) if dies == "dies" else 2)
    return "done"

def trace_to_file():
    provider = TracerProvider()
    out = open(place, "w")
    as_line = lambda span: span.to_json(None) + "\\n"
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=out, formatter=as_line)))
    trace.set_tracer_provider(provider)

if dies != "dies":
    trace_to_file()
with app.sync.worker():
    if dies == "dies":
        trace_to_file()  # after the worker has started, as a server may do it: it is found all the same
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_a_take_over_after_a_crash_goes_on_in_the_same_trace(url: str, tmp_path: Path, spans: Spans) -> None:
    files = [tmp_path / "first", tmp_path / "second"]

    def told(place: Path) -> list[dict[str, Any]]:
        lines = place.read_text().splitlines() if place.exists() else []
        return [json.loads(line) for line in lines]

    app = swf.App(url)
    app.sync.doctor.check()
    first = start_python(TRACED_WORKER, url, str(files[0]), "dies", stdin=True)
    second = None
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        handle = app.sync.trigger("t.crash.v1")
        until(
            lambda: "ActivityCompleted" in [line.type for line in app.sync.handle(handle.id).history()],
            "a step is on record",
        )
        first.send_signal(signal.SIGKILL)
        second = start_python(TRACED_WORKER, url, str(files[1]), "lives", stdin=True)
        assert handle.result("30s") == "done"
        until(lambda: len(told(files[1])) == 2, "the second worker has told its spans")
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.communicate()
        app.sync.close()
    before, after = told(files[0]), told(files[1])
    assert [line["name"] for line in before] == ["step one"]
    assert [line["name"] for line in after] == ["step two", "run t.crash.v1"]
    assert after[1]["attributes"]["simpleworkflow.epoch"] == 2
    trigger = spans.one("trigger t.crash.v1")
    assert {line["context"]["trace_id"] for line in before + after} == {f"0x{_trace(trigger):032x}"}
    assert after[1]["parent_id"] == f"0x{_id(trigger):016x}"


UNTRACED = """
import sys
import simpleworkflow as swf
from simpleworkflow.runtime import tracing

if len(sys.argv) > 2:
    import opentelemetry.trace

app = swf.App(sys.argv[1])

@app.workflow("t.plain.v1")
async def plain(ctx: swf.Context) -> str:
    return await ctx.step("one", lambda: "done")

with app.sync.worker():
    print(app.sync.run(plain, timeout="20s"))
app.sync.close()
print(tracing.on, any(name.startswith("opentelemetry") for name in sys.modules))
"""


def test_a_program_that_does_not_trace_loads_nothing_of_it(url: str) -> None:
    assert run_python(UNTRACED, url) == "done\nNone False\n"


def test_the_api_alone_without_a_provider_is_nobody_to_tell(url: str) -> None:
    assert run_python(UNTRACED, url, "load it") == "done\nNone True\n"


def test_one_file_alone_knows_opentelemetry() -> None:
    package = Path(swf.__file__).parent
    knowing = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"^\s*(from|import) opentelemetry", path.read_text(), flags=re.MULTILINE)
    ]
    assert knowing == ["runtime/tracing.py"]
