"""Failures are seen: in the log with the right level and as much of the error as may be written, and by hooks.

A run that fails and says so only in its row is found by customers. So every attempt that fails leaves a line, WARNING
while it will be tried again, ERROR when nothing more happens by itself.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.client import reading
from simpleworkflow.config import LogErrors
from simpleworkflow.logs import RunFilter
from simpleworkflow.model.states import Status
from simpleworkflow.store.operations import leases
from simpleworkflow.worker.sweep import Sweeper

SECRET = "4111-1111-1111-1111"
TWICE = swf.Retry(max_attempts=2, initial="1ms")
ONCE = swf.Retry(max_attempts=1)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def told(lines: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [line for line in lines.records if line.name == "simpleworkflow.execute"]


def shown(record: logging.LogRecord) -> str:
    return logging.Formatter().format(record)


async def test_each_failed_attempt_of_a_run_is_a_warning_and_the_last_one_an_error_with_its_traceback(
    app: swf.App, lines: pytest.LogCaptureFixture
) -> None:
    @app.workflow("t.pay.v1", retry=TWICE)
    async def pay(ctx: swf.Context) -> None:
        raise ValueError("no such card")

    async with app.worker(name="till"):
        handle = await app.trigger(pay)
        with pytest.raises(swf.RunFailed):
            await handle.result("10s")
    first, last = told(lines)
    assert (first.levelname, last.levelname) == ("WARNING", "ERROR")
    run = f"run {handle.id} (t.pay.v1) failed"
    assert first.getMessage().startswith(f"{run} and will be retried in ")
    assert first.getMessage().endswith("(attempt 1 of 2): ValueError: no such card")
    assert last.getMessage() == f"{run} for good (attempt 2 of 2): ValueError: no such card"
    for record in (first, last):
        assert 'raise ValueError("no such card")' in shown(record)
    fields = last.__dict__
    assert (fields["run_id"], fields["workflow_type"], fields["epoch"]) == (str(handle.id), "t.pay.v1", 2)
    assert (fields["attempt"], fields["error_type"], "step" in fields) == (2, "ValueError", False)
    assert str(fields["worker"]).startswith("till")


async def test_each_failed_attempt_of_a_step_is_a_warning_that_names_it(
    app: swf.App, lines: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []

    @app.workflow("t.flaky.v1")
    async def flaky(ctx: swf.Context) -> None:
        @swf.step(retry=swf.Retry(max_attempts=3, initial="1ms"))
        def charge() -> None:
            tried.append(1)
            if len(tried) < 3:
                raise ConnectionError("the bank is away")

        await ctx.step(charge)

    async with app.worker():
        handle = await app.trigger(flaky)
        await handle.result("10s")
    assert [record.levelname for record in told(lines)] == ["WARNING", "WARNING"]
    first, second = told(lines)
    assert first.getMessage().startswith(f"step charge of run {handle.id} (t.flaky.v1) failed and will be retried in ")
    assert second.getMessage().endswith("(attempt 2 of 3): ConnectionError: the bank is away")
    assert 'raise ConnectionError("the bank is away")' in shown(second)
    fields = second.__dict__
    assert (fields["run_id"], fields["step"], fields["attempt"]) == (str(handle.id), "charge#0", 2)


async def test_a_failure_that_the_workflow_handles_is_no_error(app: swf.App, lines: pytest.LogCaptureFixture) -> None:
    @app.workflow("t.handles.v1")
    async def handles(ctx: swf.Context) -> str:
        def charge() -> None:
            raise swf.PermanentError("declined")

        try:
            await ctx.step("charge", charge)
        except swf.StepFailed:
            return "asked for another card"
        return "paid"

    async with app.worker():
        assert await app.run(handles, timeout="10s") == "asked for another card"
    (only,) = told(lines)
    assert only.levelname == "WARNING"
    assert "step charge of run" in only.getMessage()
    assert only.getMessage().endswith("failed for good (attempt 1 of 1): PermanentError: declined")


async def test_a_run_that_is_held_for_want_of_attempts_is_an_error(
    app: swf.App, lines: pytest.LogCaptureFixture
) -> None:
    @app.workflow("t.holds.v1", retry=ONCE, on_exhausted="hold")
    async def holds(ctx: swf.Context) -> None:
        raise ValueError("ask an operator")

    async with app.worker():
        handle = await app.trigger(holds)
        await eventually(lambda: told(lines))
    (only,) = told(lines)
    assert only.levelname == "ERROR"
    assert only.getMessage() == (
        f"run {handle.id} (t.holds.v1) failed and is held for an operator (attempt 1 of 1): ValueError: ask an operator"
    )


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_run_that_times_out_while_executing_is_an_error(
    app: swf.App, lines: pytest.LogCaptureFixture, plain: bool
) -> None:
    heard: list[swf.Failure] = []
    app.on_error(heard.append)
    gate = threading.Event()

    if plain:

        @app.workflow("t.slow.v1", timeout="100ms")
        def slow(ctx: swf.SyncContext) -> None:
            gate.wait(10)
    else:

        @app.workflow("t.slow.v1", timeout="100ms")
        async def slow(ctx: swf.Context) -> None:
            await asyncio.sleep(10)

    async with app.worker():
        handle = await app.trigger("t.slow.v1")
        with pytest.raises(swf.RunTimedOut):
            await handle.result("10s")
        gate.set()
    (only,) = told(lines)
    assert only.levelname == "ERROR"
    assert only.getMessage().startswith(f"run {handle.id} (t.slow.v1) timed out while it was executing")
    assert [(one.outcome, type(one.error)) for one in heard] == [("timed_out", swf.RunTimedOut)]


@pytest.mark.parametrize("detail", ["message", "type"])
async def test_the_settings_say_how_much_of_an_error_is_written(
    url: str, lines: pytest.LogCaptureFixture, detail: LogErrors
) -> None:
    app = swf.App(url, settings=swf.Settings(log_errors=detail))

    @app.workflow("t.pay.v1", retry=TWICE)
    async def pay(ctx: swf.Context, card: str) -> None:
        def charge() -> None:
            raise ValueError(f"the card {card} was refused by postgresql://ada:geheim@bank/accounts")

        await ctx.step("charge", charge)

    async with app.worker():
        with pytest.raises(swf.RunFailed):
            await app.run(pay, SECRET, timeout="10s")
    await app.close()
    assert [record.levelname for record in told(lines)][-1] == "ERROR"
    text = "\n".join(map(shown, lines.records))
    assert "Traceback" not in text
    assert (SECRET in text) == (detail == "message")
    assert "geheim" not in text
    if detail == "type":
        assert [line.getMessage().rpartition(": ")[2] for line in told(lines)][-1] == "StepFailed"


def test_how_much_is_written_may_be_said_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert swf.Settings().log_errors == "traceback"
    monkeypatch.setenv("SIMPLEWORKFLOW_LOG_ERRORS", "type")
    assert swf.Settings().log_errors == "type"
    assert swf.Settings(log_errors="message").log_errors == "message"
    with pytest.raises(swf.InvalidPolicy, match="log_errors must be 'traceback', 'message' or 'type', not 'all'"):
        swf.Settings(log_errors="all")  # type: ignore[arg-type]
    monkeypatch.setenv("SIMPLEWORKFLOW_LOG_ERRORS", "none")
    with pytest.raises(swf.InvalidPolicy, match="SIMPLEWORKFLOW_LOG_ERRORS must be 'traceback'"):
        swf.Settings()


async def test_a_hook_hears_every_failed_attempt_once_with_the_error_itself(app: swf.App) -> None:
    heard: list[swf.Failure] = []
    threads: set[str] = set()

    @app.on_error
    def report(failure: swf.Failure) -> None:
        heard.append(failure)
        threads.add(threading.current_thread().name)

    @app.workflow("t.pay.v1", retry=TWICE)
    async def pay(ctx: swf.Context) -> None:
        @swf.step(retry=TWICE)
        def charge() -> None:
            raise ConnectionError("the bank is away")

        await ctx.step(charge)

    assert report.__name__ == "report"
    async with app.worker(name="till"):
        handle = await app.trigger(pay)
        with pytest.raises(swf.RunFailed):
            await handle.result("10s")
    assert [(one.step, one.step_id, one.attempt, one.max_attempts, one.outcome) for one in heard] == [
        ("charge", "charge#0", 1, 2, "retry"),
        ("charge", "charge#0", 2, 2, "failed"),
        (None, None, 1, 2, "retry"),
        ("charge", "charge#0", 1, 2, "retry"),
        ("charge", "charge#0", 2, 2, "failed"),
        (None, None, 2, 2, "failed"),
    ]
    assert {(one.run_id, one.type) for one in heard} == {(handle.id, "t.pay.v1")}
    assert [one.will_retry for one in heard] == [one.retry_in is not None for one in heard]
    assert isinstance(heard[0].error, ConnectionError)
    assert heard[0].error.__traceback__ is not None
    assert isinstance(heard[-1].error, swf.StepFailed)
    assert heard[0].worker.startswith("till")
    assert threads == {"simpleworkflow-worker"}


async def test_a_hook_that_fails_is_told_and_changes_nothing(app: swf.App, lines: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    @app.on_error
    def broken(failure: swf.Failure) -> None:
        raise RuntimeError("no network")

    @app.on_error
    def leaving(failure: swf.Failure) -> None:
        raise SystemExit(3)

    app.on_error(lambda failure: heard.append(str(failure.error)))

    @app.workflow("t.pay.v1", retry=ONCE)
    async def pay(ctx: swf.Context) -> None:
        raise ValueError("no such card")

    async with app.worker():
        with pytest.raises(swf.RunFailed, match="no such card"):
            await app.run(pay, timeout="10s")
    assert heard == ["no such card"]
    assert "the error hook" in lines.text
    assert "broken failed for run" in lines.text
    assert "RuntimeError: no network" in lines.text
    assert "leaving failed for run" in lines.text


def test_a_hook_is_a_plain_function(app: swf.App) -> None:
    async def hook(failure: swf.Failure) -> None: ...

    with pytest.raises(swf.InvalidWorkflow, match="plain def"):
        app.on_error(hook)

    class Reporter:
        async def __call__(self, failure: swf.Failure) -> None: ...

    with pytest.raises(swf.InvalidWorkflow, match="plain def"):
        app.on_error(Reporter())
    with pytest.raises(swf.InvalidWorkflow, match="plain def"):
        app.on_error("hook")  # type: ignore[type-var]


@pytest.mark.filterwarnings("error")
async def test_a_hook_that_returns_a_coroutine_is_told_since_nobody_awaits_it(
    app: swf.App, lines: pytest.LogCaptureFixture
) -> None:
    async def send(failure: swf.Failure) -> None: ...

    app.on_error(lambda failure: send(failure))

    @app.workflow("t.pay.v1", retry=ONCE)
    async def pay(ctx: swf.Context) -> None:
        raise ValueError("no such card")

    async with app.worker():
        handle = await app.trigger(pay)
        with pytest.raises(swf.RunFailed, match="no such card"):
            await handle.result("10s")
    _, told_of_it = told(lines)
    assert "the error hook" in told_of_it.getMessage()
    assert told_of_it.getMessage().endswith("it returned a coroutine, which nobody awaits: a hook is a plain def")


@pytest.mark.parametrize("detail", ["traceback", "message", "type"])
async def test_a_line_about_a_hook_that_fails_names_the_run_and_says_as_much_as_may_be_said(
    url: str, lines: pytest.LogCaptureFixture, detail: LogErrors
) -> None:
    app = swf.App(url, settings=swf.Settings(log_errors=detail))

    @app.on_error
    def broken(failure: swf.Failure) -> None:
        raise RuntimeError(SECRET)

    @app.workflow("t.pay.v1", retry=ONCE)
    async def pay(ctx: swf.Context) -> None:
        raise ValueError("no such card")

    async with app.worker():
        handle = await app.trigger(pay)
        with pytest.raises(swf.RunFailed):
            await handle.result("10s")
    await app.close()
    _, line = told(lines)
    assert (line.__dict__["run_id"], line.__dict__["error_type"]) == (str(handle.id), "RuntimeError")
    assert "RuntimeError" in line.getMessage()
    assert (SECRET in line.getMessage()) == (detail != "type")
    assert ("Traceback" in shown(line)) == (detail == "traceback")


@pytest.mark.parametrize("detail", ["traceback", "type"])
async def test_a_line_about_a_run_that_is_waited_for_quotes_errors_only_where_they_may_be_written(
    url: str, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, detail: LogErrors
) -> None:
    monkeypatch.setattr(reading, "EXPLAIN_AFTER", 0.0)
    app = swf.App(url, settings=swf.Settings(log_errors=detail))

    @app.workflow("t.pay.v1", retry=swf.Retry(max_attempts=2, initial="5m"))
    async def pay(ctx: swf.Context) -> None:
        raise ValueError(f"the card {SECRET} was refused by postgresql://ada:geheim@bank/accounts")

    async with app.worker():
        handle = await app.trigger(pay)
        await eventually(lambda: told(lines), "its first attempt has failed")
        await eventually(lambda: _has_failed_once(handle), "and that is on record")
        waiter = asyncio.create_task(handle.result())
        await eventually(lambda: "still waiting" in lines.text, "the line is there")
        await handle.cancel()
        with pytest.raises(swf.RunCancelled):
            await waiter
    await app.close()
    (line,) = [one.getMessage() for one in lines.records if one.name == "simpleworkflow.client"]
    assert f"run {handle.id} (t.pay.v1) is pending" in line
    assert (SECRET in line) == (detail != "type")
    assert "geheim" not in line


async def _has_failed_once(handle: swf.RunHandle[None]) -> bool:
    return (await handle.get()).attempt == 1


async def test_an_error_that_can_neither_be_shown_nor_logged_still_ends_its_run(
    app: swf.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    def refuse(record: logging.LogRecord) -> bool:
        raise RuntimeError("this logger is broken")

    @app.workflow("t.hostile.v1", retry=ONCE)
    async def hostile(ctx: swf.Context) -> None:
        raise Hostile

    logger = logging.getLogger("simpleworkflow.execute")
    logger.addFilter(refuse)
    try:
        async with app.worker():
            with pytest.raises(swf.RunFailed, match="Hostile"):
                await app.run(hostile, timeout="10s")
    finally:
        logger.removeFilter(refuse)


async def test_a_text_that_a_file_would_refuse_or_that_never_ends_is_cut_and_cleaned(
    app: swf.App, lines: pytest.LogCaptureFixture
) -> None:
    @app.workflow("t.huge.v1", retry=ONCE)
    async def huge(ctx: swf.Context) -> None:
        raise ValueError("\ud800" + "x" * 1_000_000)

    async with app.worker():
        with pytest.raises(swf.RunFailed):
            await app.run(huge, timeout="10s")
    (only,) = told(lines)
    text = shown(only)
    assert text.encode()
    assert len(text) < 40_000
    assert "raise ValueError(" in text


async def test_a_run_that_the_sweep_gives_up_is_an_error(app: swf.App, lines: pytest.LogCaptureFixture) -> None:
    @app.workflow("t.crashes.v1", retry=ONCE)
    async def crashes(ctx: swf.Context) -> None: ...

    handle = await app.trigger(crashes)
    ledger, one_by_one = app._client.engine.ledger, not app._client.engine.ledger.can.walks_lanes
    offer = leases.Offer("t.crashes.v1", 100, 1, 1, None)
    assert await app._client.engine.run(leases.claim([offer], 1, "gone", lane_by_lane=one_by_one))
    sweeper = Sweeper(ledger, lambda: None, me="another", every=0.0, grace=0.0)
    await app._client.engine.call(sweeper.sweep)
    assert (await handle.get()).status is Status.FAILED
    (only,) = [record for record in lines.records if record.levelname == "ERROR"]
    assert only.getMessage() == f"1 run failed for good after too many crashes: {handle.id}"


async def test_a_run_whose_deadline_passes_while_it_waits_is_an_error(
    app: swf.App, lines: pytest.LogCaptureFixture
) -> None:
    @app.workflow("t.waits.v1", timeout="50ms")
    async def waits(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("approved")

    async with app.worker():
        handle = await app.trigger(waits)
        with pytest.raises(swf.RunTimedOut):
            await handle.result("20s")
        late = await app.trigger("t.nobody.v1", start_within="50ms")
        with pytest.raises(swf.RunTimedOut):
            await late.result("20s")
    told_of_both = [record.getMessage() for record in lines.records if record.levelname == "ERROR"]
    words = "1 run timed out, past a deadline or not started in time"
    assert told_of_both == [f"{words}: {handle.id}", f"{words}: {late.id}"]


async def test_a_run_that_is_failed_for_want_of_a_handler_is_an_error(
    app: swf.App, lines: pytest.LogCaptureFixture
) -> None:
    async with app.worker(on_unknown="fail"):
        handle = await app.trigger("t.unknown.v1")
        with pytest.raises(swf.RunFailed):
            await handle.result("10s")
    (only,) = told(lines)
    assert only.levelname == "ERROR"
    assert only.getMessage().endswith("failed for good (attempt 1 of 3): LookupError: no_handler_registered")


class Shop(logging.Handler):
    """A handler of the program, as one would send lines somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(RunFilter())
        self.found: dict[str, dict[str, Any]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.found[record.getMessage()] = record.__dict__


async def test_loggers_of_the_program_know_the_run_the_step_and_the_attempt(app: swf.App) -> None:
    shop, handler = logging.getLogger("shop"), Shop()
    shop.addHandler(handler)
    tried: list[int] = []

    @app.workflow("t.async.v1")
    async def handle_async(ctx: swf.Context) -> None:
        shop.warning("in the workflow")

        async def body() -> None:
            shop.warning("in an async step")

        async def beside() -> None:
            shop.warning("in a task")

        def flaky() -> None:
            tried.append(1)
            shop.warning("in a thread, %d", len(tried))
            if len(tried) == 1:
                raise ValueError("again")

        await ctx.step("one", body)
        await asyncio.gather(beside(), beside())
        await ctx.step(swf.step(name="two", retry=TWICE)(flaky))

    @app.workflow("t.plain.v1")
    def handle_plain(ctx: swf.SyncContext) -> None:
        shop.warning("in a plain workflow")

    try:
        async with app.worker(name="till"):
            first, second = await app.trigger(handle_async), await app.trigger(handle_plain)
            await first.result("10s")
            await second.result("10s")
        shop.warning("outside", extra={"run_id": "of somebody else"})
    finally:
        shop.removeHandler(handler)
    expected = {
        "in the workflow": (None, 1),
        "in an async step": ("one#0", 1),
        "in a task": (None, 1),
        "in a thread, 1": ("two#0", 1),
        "in a thread, 2": ("two#0", 2),
    }
    for message, (step, attempt) in expected.items():
        fields = handler.found[message]
        assert (fields["run_id"], fields["workflow_type"]) == (str(first.id), "t.async.v1"), message
        assert (fields.get("step"), fields["attempt"]) == (step, attempt), message
        assert str(fields["worker"]).startswith("till")
    assert handler.found["in a plain workflow"]["run_id"] == str(second.id)
    assert handler.found["outside"]["run_id"] == "of somebody else"
    assert "workflow_type" not in handler.found["outside"]


class Declined(Exception):
    pass


@swf.step(retry=ONCE)
async def charge() -> None:
    try:
        raise OSError("no route to the bank")
    except OSError as error:
        raise Declined(SECRET) from error


@pytest.mark.parametrize("way", ["at once", "after a replay", "in a task group", "as a cause"])
async def test_the_line_of_a_run_that_a_step_failed_ends_with_the_tracebacks_of_the_step_first(
    app: swf.App, lines: pytest.LogCaptureFixture, way: str
) -> None:
    heard: list[swf.Failure] = []
    app.on_error(heard.append)

    @app.workflow("t.pay.v1", retry=ONCE)
    async def pay(ctx: swf.Context) -> None:
        if way == "in a task group":
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(ctx.step(charge))
        try:
            await ctx.step(charge)
        except swf.StepFailed as error:
            if way == "after a replay":
                await ctx.sleep("1100ms")
            if way == "as a cause":
                raise ValueError("not paid") from error
            raise

    async with app.worker():
        handle = await app.trigger(pay)
        with pytest.raises(swf.RunFailed):
            await handle.result("10s")
    text = shown(told(lines)[-1])
    parts = [
        'raise OSError("no route to the bank")',
        "raise Declined(SECRET) from error",
        "StepFailed: step charge failed",
    ]
    places = [text.index(part, text.index("Traceback")) for part in parts]
    assert places == sorted(places)
    assert text.count("The above exception was the direct cause of the following exception:") >= 2
    assert all(part in heard[-1].traceback for part in parts)


@pytest.mark.parametrize("detail", ["message", "type"])
async def test_recorded_tracebacks_are_logged_only_where_tracebacks_are(
    url: str, lines: pytest.LogCaptureFixture, detail: LogErrors
) -> None:
    app = swf.App(url, settings=swf.Settings(log_errors=detail))

    @app.workflow("t.pay.v1", retry=ONCE)
    async def pay(ctx: swf.Context) -> None:
        await ctx.step(charge)

    async with app.worker():
        handle = await app.trigger(pay)
        with pytest.raises(swf.RunFailed):
            await handle.result("10s")
    await app.close()
    text = shown(told(lines)[-1])
    assert "Traceback" not in text
    assert (SECRET in text) == (detail == "message")


async def test_the_line_of_a_run_whose_child_failed_says_what_is_on_record_of_the_child(
    app: swf.App, lines: pytest.LogCaptureFixture
) -> None:
    @app.workflow("t.child.v1", retry=ONCE)
    async def child(ctx: swf.Context) -> None:
        await ctx.step(charge)

    @app.workflow("t.pay.v1", retry=ONCE)
    async def pay(ctx: swf.Context) -> None:
        await ctx.run(child)

    async with app.worker():
        handle = await app.trigger(pay)
        with pytest.raises(swf.RunFailed):
            await handle.result("10s")
    line = next(line for line in told(lines) if "t.pay.v1" in line.getMessage())
    text = shown(line)
    assert f"Declined: {SECRET}" in text[text.index("\n") :]
    assert "RunFailed: child run" in text
    assert "\n\nThe above exception was the direct cause of the following exception:\n\nTraceback" in text
