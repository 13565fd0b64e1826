"""Log lines about a run can be found by it, and nobody's payload or password is in them."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from support.ledger import Raw
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.clock import new_id
from simpleworkflow.config import LOG_ERRORS, LogErrors
from simpleworkflow.logs import JsonFormatter, MaskPasswords, TextFormatter
from simpleworkflow.model.records import NewRun
from simpleworkflow.model.states import Status
from simpleworkflow.runtime import tracing
from simpleworkflow.store.operations import runs
from simpleworkflow.store.url import mask_text
from simpleworkflow.worker.renew import Renewer

SECRET = "4111-1111-1111-1111"
LABELS = ("run_id", "workflow_type", "epoch", "worker", "step", "trace_id", "span_id")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


@pytest.fixture
def traced() -> Iterator[TracerProvider]:
    provider = TracerProvider()
    swf.trace_with(provider)
    yield provider
    tracing.trace_by_default()


def labels(record: logging.LogRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in LABELS if hasattr(record, name)}


def as_written(records: list[logging.LogRecord]) -> str:
    return "\n".join(logging.Formatter().format(record) for record in records)


async def test_a_row_that_the_database_refuses_is_not_quoted(app: swf.App) -> None:
    bad = NewRun(new_id(), "t.pay.v1", json.dumps(SECRET), traceparent="x" * 513)
    with pytest.raises(swf.StoreError) as refused:
        await app._client.run(runs.create([bad]))
    causes: list[BaseException] = []
    error: BaseException | None = refused.value
    while error is not None:
        causes.append(error)
        error = error.__cause__ or error.__context__
    assert any("workflow_run_traceparent" in str(cause) for cause in causes)
    assert not any(SECRET in str(cause) for cause in causes)


async def test_a_workflows_own_line_knows_its_step_and_its_span(
    app: swf.App, lines: pytest.LogCaptureFixture, traced: TracerProvider
) -> None:
    @app.workflow("t.log.v1")
    async def handler(ctx: swf.Context) -> None:
        ctx.log.info("begun", extra={"customer": "ada", "run_id": "a caller cannot hide the run"})
        await ctx.step("charge", lambda: ctx.log.warning("charging"))

    async with app.worker():
        handle = await app.trigger(handler)
        await handle.result("10s")
    begun, charging = (record for record in lines.records if record.name == "simpleworkflow.run.t.log.v1")
    assert (labels(begun)["run_id"], labels(begun)["workflow_type"]) == (str(handle.id), "t.log.v1")
    assert begun.__dict__["customer"] == "ada"
    assert "step" not in labels(begun)
    assert labels(charging)["step"] == "charge#0"
    carried = str((await handle.get()).traceparent)
    assert {labels(begun)["trace_id"], labels(charging)["trace_id"]} == {carried.split("-")[1]}
    assert labels(begun)["span_id"] != labels(charging)["span_id"]


async def test_an_ending_that_came_too_late_is_told_with_its_labels_and_without_its_result(
    url: str, raw: Raw, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Renewer, "look", lambda _: None)  # it hears of its loss by its ending, not before
    app = swf.App(url, settings=swf.Settings(drain=2.0))
    gate = threading.Event()

    @app.workflow("t.slow.v1")
    def slow(ctx: swf.SyncContext) -> str:
        gate.wait(10)
        return SECRET

    handle = await app.trigger(slow)
    async with app.worker():
        async with asyncio.timeout(10):
            while (await handle.get()).status is not Status.LEASED:
                await asyncio.sleep(0.01)
        text = "UPDATE workflow.workflow_run SET lease_epoch = 7, version = version + 1 WHERE id = ?"
        raw.sql(text, handle.id)  # somebody else has claimed it meanwhile
        gate.set()
        await eventually(lambda: "no longer ours" in lines.text)
    await app.close()
    (told,) = [record for record in lines.records if "no longer ours" in record.getMessage()]
    assert (labels(told)["run_id"], labels(told)["workflow_type"]) == (str(handle.id), "t.slow.v1")
    assert SECRET not in as_written(lines.records)


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    return logging.getLogger("a.logger").makeRecord(
        "a.logger", logging.ERROR, "file.py", 1, message, args, None, extra=extra
    )


def test_a_json_line_holds_whatever_it_is_given() -> None:
    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError("no")

    line = JsonFormatter().format(
        record(
            "two\nlines \x1b[31m and %s",
            "\ud800",
            run_id="r",
            number=float("nan"),
            deep=[[[[[[[[["too deep"]]]]]]]]],
            story={"password": "geheim", 1: {2}, "url": "redis://:geheim@cache/0"},
            hostile=Hostile(),
        )
    )
    assert "\n" not in line
    assert "geheim" not in line
    told = json.loads(line)
    assert (told["level"], told["logger"], told["run_id"]) == ("ERROR", "a.logger", "r")
    assert told["message"] == "two\nlines \x1b[31m and \ud800"
    assert told["number"] == "nan"
    assert told["story"] == {"password": "***", "1": [2], "url": "redis://:***@cache/0"}
    assert told["hostile"] == "<Hostile that cannot be shown>"
    assert told["ts"].endswith("+00:00")


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter("%(message)s")])
def test_passwords_are_masked_in_messages_arguments_and_tracebacks(formatter: logging.Formatter) -> None:
    try:
        try:
            raise OSError("postgresql://ada:geheim@db/orders does not answer")
        except OSError as error:
            raise RuntimeError("password='geheim' did not help") from error
    except RuntimeError as error:
        made = record("no way to %s", "postgresql://ada:geheim@db/orders")
        made.exc_info = (type(error), error, error.__traceback__)
    line = formatter.format(made)
    assert "geheim" not in line
    assert "postgresql://ada:***@db/orders does not answer" in line
    assert "RuntimeError" in line


def test_a_formatter_of_your_own_is_served_by_the_filter() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(MaskPasswords())
    logger = logging.Logger("a.logger")
    logger.addHandler(handler)
    try:
        raise OSError("https://ada:geheim@api/")
    except OSError:
        logger.exception("no way to %s", "postgresql://ada:geheim@db/orders")
    logger.info("no arguments at all")
    assert "geheim" not in stream.getvalue()
    assert "no way to postgresql://ada:***@db/orders\n" in stream.getvalue()
    assert "OSError: https://ada:***@api/" in stream.getvalue()


def test_text_names_the_run_and_lets_no_escape_sequence_through() -> None:
    line = TextFormatter("%(levelname)s %(message)s").format(
        record("red \x1b[31m\x07 %s", "x\u202ey", run_id="0199-ab")
    )
    assert line == "ERROR red \\x1b[31m\\x07 x\\x202ey (run 0199-ab)"
    assert TextFormatter("%(message)s").format(record("run 0199-ab failed", run_id="0199-ab")) == "run 0199-ab failed"


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter("%(message)s")])
def test_arguments_that_do_not_fit_are_neither_lost_nor_printed(formatter: logging.Formatter) -> None:
    line = formatter.format(record("%d runs", "postgresql://ada:geheim@db/orders"))
    assert "%d runs (its arguments do not fit)" in line
    assert "geheim" not in line


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://ada:s3cr/et@x@db:5432/o and a@b", "postgresql://ada:***@db:5432/o and a@b"),
        ("postgresql+asyncpg://u:p@h/d", "postgresql+asyncpg://u:***@h/d"),
        ('{"a":"postgresql://u:p@h/d","b":"a@b"}', '{"a":"postgresql://u:***@h/d","b":"a@b"}'),
        ("postgresql://u@h/d?sslpassword=p&x=1", "postgresql://u@h/d?sslpassword=***&x=1"),
        ("{'host': 'db', 'password': 'it\\'s'}", "{'host': 'db', 'password': '***'}"),
        ("host=db PASSWORD=p user=u", "host=db PASSWORD=*** user=u"),
        ("http://host:8080/p?mail=a@b", "http://host:8080/p?mail=a@b"),
        ('password authentication failed for user "u"', 'password authentication failed for user "u"'),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_passwords_are_found_in_any_text(text: str, masked: str) -> None:
    assert mask_text(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "{'password': 'cut off" + "\\n" * 5_000,
        "https://host " + "a1" * 50_000,
        "password" * 10_000,
        "redis://:" * 5_000,
    ],
    ids=["an escaped text that was cut", "one long word", "the same word", "many addresses"],
)
def test_no_text_takes_long_to_be_searched_for_passwords(text: str) -> None:
    started = time.monotonic()
    mask_text(text)
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("detail", LOG_ERRORS)
async def test_the_error_of_a_task_that_was_left_behind_is_told_as_far_as_errors_may_be(
    app: swf.App, lines: pytest.LogCaptureFixture, detail: LogErrors
) -> None:
    @app.workflow("t.leaves.v1")
    async def leaves(ctx: swf.Context, secret: str) -> None:
        async def fail() -> None:
            raise RuntimeError(f"cannot charge {secret}")

        asyncio.create_task(fail())  # noqa: RUF006 (that is the point)
        await asyncio.sleep(0.05)

    async with app.worker(log_errors=detail):
        await app.run(leaves, SECRET, timeout="10s")
        gc.collect()
        await eventually(lambda: "never retrieved" in lines.text, "the worker's loop has told of it")
    assert "RuntimeError" in lines.text
    assert (SECRET in lines.text) == (detail != "type")
    assert ("Traceback" in lines.text) == (detail == "traceback")


def test_warnings_and_broken_threads_are_lines_of_json_too() -> None:
    code = """
import threading, warnings
from simpleworkflow.logs import configure
configure("json")
warnings.warn("mind the gap")
def broken(): raise ValueError("postgresql://u:hidden@h/d")
thread = threading.Thread(target=broken); thread.start(); thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["level"] for line in told] == ["WARNING", "ERROR"]
    assert "mind the gap" in told[0]["message"]
    assert "ValueError" in told[1]["exception"]
    assert "hidden" not in done.stderr
