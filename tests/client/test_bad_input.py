"""Bad input and faults: each is a named exception with one clear sentence, and nothing is left stuck."""

from __future__ import annotations

import asyncio
import functools
import logging
import pickle
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from support.postgres import Server

import simpleworkflow as swf

if TYPE_CHECKING:
    from somewhere import Unseen  # type: ignore[import-not-found]


@dataclass
class Order:
    id: str


@pytest.fixture
def idle() -> swf.App:
    """An App that opens nothing: declarations need no database."""
    return swf.App(":memory:")


# Databases.


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://root@localhost/db", "mysql:// is not a database that simpleworkflow knows; use a SQLite file"),
        ("redis://localhost", "redis:// is not a database that simpleworkflow knows"),
        ("", "'' is not a database URL"),
        ("postgresql://host/db?schema=Bad-Name", "schema 'Bad-Name' must be lower-case letters"),
    ],
)
def test_an_unknown_url_is_refused_before_anything_is_opened(url: str, sentence: str) -> None:
    with pytest.raises(swf.InvalidURL, match=sentence):
        swf.App(url)
    with pytest.raises(swf.InvalidURL, match=sentence):
        swf.App(":memory:")._client.use(url)


async def test_an_unreachable_database_is_named_in_time(closed_port: int) -> None:
    app = swf.App(f"postgresql://u:s3cret@127.0.0.1:{closed_port}/db", settings=swf.Settings(store_timeout=0.2))
    for call in (
        lambda: app.trigger("a.b.v1", 1),
        lambda: app.get(UUID(int=1)),
        app.doctor.check,
        app.migrate,
        app.migrations.status,
        app.activity.counts,
    ):
        started = time.monotonic()
        with pytest.raises(swf.StoreUnavailable, match=rf"postgresql://u:\*\*\*@127\.0\.0\.1:{closed_port}/db"):
            await call()
        assert time.monotonic() - started < 3
    with pytest.raises(swf.StoreUnavailable):
        await asyncio.to_thread(app.sync.worker().start)
    await app.close()


async def test_a_database_that_does_not_exist_is_named(postgres: Server) -> None:
    app = swf.App(postgres.url("no_such_database"))
    with pytest.raises(swf.StoreUnavailable, match='database "no_such_database" does not exist'):
        await app.trigger("a.b.v1", 1)
    await app.close()


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Any) -> None:
    app = swf.App(str(tmp_path / "nowhere" / "x.db"))
    with pytest.raises(swf.StoreUnavailable, match=r"the folder .*nowhere does not exist"):
        await app.trigger("a.b.v1", 1)
    await app.close()


async def test_a_file_that_is_no_database_is_named(tmp_path: Any) -> None:
    (tmp_path / "notes.txt").write_text("dear diary, " * 1000)
    app = swf.App(str(tmp_path / "notes.txt"))
    with pytest.raises(swf.StoreError, match=r"notes\.txt.*not a database"):
        await app.trigger("a.b.v1", 1)
    await app.close()


async def test_a_missing_migration_names_the_command(postgres: Server) -> None:
    app = swf.App(postgres.url("postgres"))
    for call in (lambda: app.trigger("a.b.v1"), lambda: app.get(UUID(int=1)), app.doctor.check, app.activity.counts):
        with pytest.raises(swf.MissingMigration, match=r"run: simpleworkflow migrate up --url postgresql://"):
            await call()
    await app.close()


async def test_a_schema_of_another_name_is_another_ledger(postgres_url: str) -> None:
    app, other = swf.App(postgres_url), swf.App(postgres_url, schema="second")
    with pytest.raises(swf.MissingMigration):
        await other.doctor.check()
    await other.migrate()
    await other.trigger("a.b.v1", 1)
    assert await app.activity.counts() == []
    assert len(await other.activity.counts()) == 1
    await app.close()
    await other.close()


def test_a_password_never_leaves_through_a_message_or_a_log(
    postgres: Server, closed_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    canary = "c4n4ry-p4ss"
    host = postgres.url("postgres").split("@")[1]
    settings = swf.Settings(store_timeout=0.3)
    said: list[str] = []
    with caplog.at_level(logging.DEBUG):
        for url in (
            f"postgresql://u:{canary}@127.0.0.1:{closed_port}/db",
            f"postgresql://127.0.0.1:{closed_port}/db?user=u&password={canary}",
            f"postgresql://u:{canary}@{host.split('/')[0]}/no_such_database",
            f"postgresql://no_such_user:{canary}@{host}",
            f"mysql://u:{canary}@host/db",
            f"postgresql://u:{canary}@host/db?schema=Bad",
        ):
            try:
                app = swf.App(url, settings=settings)
                said.append(repr(app))
                app.sync.trigger("a.b.v1", 1)
            except swf.SimpleWorkflowError as error:
                said += [str(error), repr(error), str(error.__cause__)]
            else:
                pytest.fail(f"{url} was accepted")
    assert said
    assert canary not in "\n".join(said) + caplog.text


# Names and options.


@pytest.mark.parametrize("name", ["a b", "a..b", ".a", "a-", "", "zip/files", "a" * 201, "naïve", 7])
async def test_a_wrong_type_name_is_refused_everywhere(idle: swf.App, name: Any) -> None:
    with pytest.raises((swf.InvalidName, swf.InvalidInput)):
        await idle.trigger(name, 1)
    with pytest.raises(swf.InvalidName, match="workflow type"):
        idle.declare(name)
    if name != "":

        async def handler(ctx: swf.Context) -> None: ...

        with pytest.raises(swf.InvalidName, match="workflow type"):
            idle.workflow(name)(handler)


async def plain(ctx: swf.Context) -> None: ...


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"timeout": "soon"}, swf.InvalidDuration, "timeout of plain: 'soon' is not understood"),
        ({"timeout": 0}, swf.InvalidPolicy, "a timeout of zero ends every run before it starts"),
        ({"timeout": -1}, swf.InvalidDuration, "negative"),
        ({"lease": "100ms"}, swf.InvalidPolicy, "a lease under 300ms cannot be renewed in time"),
        ({"lease": True}, swf.InvalidDuration, "lease of plain: True is not a duration"),
        ({"concurrency": 0}, swf.InvalidPolicy, "concurrency must be a whole number of at least 1, not 0"),
        ({"concurrency": "4"}, swf.InvalidPolicy, "concurrency must be a whole number of at least 1, not '4'"),
        ({"retry": 5}, swf.InvalidPolicy, r"retry must be a Retry\(\.\.\.\), not 5"),
        ({"on_failure": "no good"}, swf.InvalidName, "workflow type 'no good'"),
        ({"on_failure": "a.plain.v1"}, swf.InvalidPolicy, "on_failure names the workflow itself"),
        ({"on_cancel": "a.plain.v1"}, swf.InvalidPolicy, "on_cancel names the workflow itself"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_when_declared(
    idle: swf.App, options: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        idle.workflow("a.plain.v1", **options)(plain)  # type: ignore[call-overload]
    idle.workflow("a.plain.v1")(plain)  # nothing of it was kept


def test_a_contradictory_retry_policy_is_refused_when_written() -> None:
    with pytest.raises(swf.InvalidPolicy, match=r"Retry\.max_attempts is 0"):
        swf.Retry(max_attempts=0)
    with pytest.raises(swf.InvalidDuration, match=r"Retry\.initial: '10' has no unit"):
        swf.Retry(initial="10")
    with pytest.raises(swf.InvalidPolicy, match=r"Retry\.max_delay .* is shorter than Retry\.initial"):
        swf.Retry(initial="1h", max_delay="1m")


# Functions that cannot be workflows.


class Handler:
    async def __call__(self, ctx: swf.Context) -> None: ...

    async def method(self, ctx: swf.Context) -> None: ...


async def no_ctx() -> None: ...
async def forgot_ctx(order: Order) -> None: ...
async def forgot_ctx_plain(name: str) -> None: ...
async def two_inputs(ctx: swf.Context, a: int, b: int) -> None: ...
async def keyword_input(ctx: swf.Context, *, order: Order) -> None: ...
async def many_inputs(ctx: swf.Context, *orders: Order) -> None: ...
async def default_input(ctx: swf.Context, name: str = "you") -> None: ...
async def ctx_last(order: Order, ctx: swf.Context) -> None: ...
async def sync_ctx(ctx: swf.SyncContext) -> None: ...
def async_ctx(ctx: swf.Context) -> None: ...
async def unseen(ctx: swf.Context, order: Unseen) -> None: ...
async def misspelt(ctx: swf.Contxt) -> None: ...  # type: ignore[name-defined]
async def stream(ctx: swf.Context) -> AsyncIterator[int]:
    yield 1


def generator(ctx: swf.SyncContext) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        (lambda ctx: None, "a lambda cannot be a workflow: it has no name to find it by after a restart; use def"),
        (Handler, "Handler cannot be a workflow: write a function"),
        (Handler(), "cannot be a workflow: write a function"),
        (42, "42 cannot be a workflow: write a function"),
        (no_ctx, r"no_ctx takes no ctx: .* write async def no_ctx\(ctx: swf\.Context, order: Order\)"),
        (forgot_ctx, "forgot_ctx takes no ctx: its first parameter is order: Order"),
        (forgot_ctx_plain, "forgot_ctx_plain takes no ctx: its first parameter is name: str"),
        (two_inputs, "two_inputs takes 2 inputs: a workflow has at most one, and it is the payload; put the values"),
        (keyword_input, "keyword_input takes 1 inputs: a workflow has at most one"),
        (many_inputs, "many_inputs takes 1 inputs"),
        (default_input, "name has a default, but the input of a run is always stored; drop the default"),
        (ctx_last, "ctx must come first"),
        (Handler.method, r"ctx must come first \(a method cannot be a workflow\)"),
        (sync_ctx, r"sync_ctx is written with async def, so its ctx is a swf\.Context, not swf\.SyncContext"),
        (async_ctx, r"async_ctx is written with def, so its ctx is a swf\.SyncContext, not swf\.Context"),
        (unseen, "unseen: an annotation cannot be resolved .*'Unseen' is not defined"),
        (misspelt, "misspelt: an annotation cannot be resolved .*Contxt"),
        (stream, "stream yields; a workflow returns its result once"),
        (generator, "generator yields; a workflow returns its result once"),
    ],
)
def test_a_function_that_cannot_be_a_workflow_is_refused_when_declared(
    idle: swf.App, handler: Any, sentence: str
) -> None:
    with pytest.raises(swf.InvalidWorkflow, match=sentence):
        idle.workflow("a.b.v1")(handler)


def test_the_decorator_needs_its_parentheses(idle: swf.App) -> None:
    with pytest.raises(
        swf.InvalidWorkflow, match=r"write @app\.workflow\(\) or @app\.workflow\('domain\.action\.v1'\)"
    ):

        @idle.workflow  # type: ignore[arg-type]
        async def handler(ctx: swf.Context) -> None: ...


def test_a_name_is_registered_once(idle: swf.App) -> None:
    idle.workflow("a.b.v1")(plain)
    with pytest.raises(swf.InvalidWorkflow, match=r"a\.b\.v1 is registered twice"):
        idle.workflow("a.b.v1")(plain)


def test_a_declaration_is_replaced_by_the_code_and_not_the_other_way_round(idle: swf.App) -> None:
    declared = idle.declare("a.b.v1", input=str)
    with pytest.raises(swf.InvalidWorkflow, match="only declared here; its code lives in another service"):
        declared("x")
    workflow = idle.workflow("a.b.v1")(plain)
    idle.declare("a.b.v1", input=str)
    assert idle._client.registry.find("a.b.v1") is workflow


def test_a_declaration_can_be_handed_to_another_process_after_it_was_used(idle: swf.App) -> None:
    declared = idle.declare("a.b.v1", input=str)
    assert declared.encode_input("x", limit=100) == '"x"'
    other = pickle.loads(pickle.dumps(declared))
    assert (other.name, other.input_type, other.encode_input("y", limit=100)) == ("a.b.v1", str, '"y"')


def test_methods_partials_and_unannotated_functions_can_be_workflows(idle: swf.App) -> None:
    async def loose(ctx, thing): ...  # type: ignore[no-untyped-def]

    async def curried(prefix: str, ctx: swf.Context, order: Order) -> str:
        return prefix + order.id

    assert idle.workflow("a.method.v1")(Handler().method).takes_input is False
    assert idle.workflow("a.partial.v1")(functools.partial(curried, "x")).input_type is Order
    assert idle.workflow()(loose).name == "loose"


async def test_a_workflow_called_directly_is_the_plain_function(idle: swf.App) -> None:
    @idle.workflow()
    async def shout(ctx: Any, word: str) -> str:
        """Make it loud."""
        return word.upper()

    assert await shout(None, "ahoy") == "AHOY"
    assert (shout.name, shout.description) == ("shout", "Make it loud.")


# Results.


async def test_a_result_that_is_not_json_fails_the_run_after_one_execution(app: swf.App) -> None:
    executions: list[UUID] = []

    @app.workflow("a.bad.v1", retry=swf.Retry(max_attempts=5, initial=0))
    async def bad(ctx: swf.Context) -> Any:
        executions.append(ctx.run_id)
        return {"rows": [1, object()]}

    @app.workflow("a.nan.v1", retry=swf.Retry(max_attempts=5, initial=0))
    def nan(ctx: swf.SyncContext) -> float:
        executions.append(ctx.run_id)
        return float("nan")

    async with app.worker():
        for workflow, where in ((bad, r"rows\[1\]"), (nan, "NaN|nan")):
            handle = await app.trigger(workflow)
            with pytest.raises(swf.RunFailed, match=f"its result cannot be stored: .*{where}") as caught:
                await handle.result(20)
            assert executions.count(handle.id) == 1
            assert caught.value.run.error["type"] == "PermanentError"


async def test_a_payload_that_does_not_fit_the_handler_fails_the_run_after_one_claim(app: swf.App, url: str) -> None:
    """As a bare INSERT, or a producer of an older version, may leave it."""

    @app.workflow("a.typed.v1", retry=swf.Retry(max_attempts=5, initial=0), on_misfit="fail")
    async def typed(ctx: swf.Context, order: Order) -> None:
        pytest.fail("never called")

    async with app.worker():
        elsewhere = swf.App(url)
        handle = app.handle((await elsewhere.trigger("a.typed.v1", {"id": 7})).id)
        await elsewhere.close()
        with pytest.raises(swf.RunFailed, match=r"its payload does not fit a\.typed\.v1: .*id"):
            await handle.result(20)
    assert (await handle.get()).lease_epoch == 1
