"""On the caller's own connection a run exists if and only if the caller's transaction commits.

Every kind of connection goes through the same laws (support/lenders.py knows the kinds).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from support.lenders import (
    ON_POSTGRES,
    ON_SQLITE,
    Alchemy,
    AlchemySession,
    AsyncAlchemy,
    AsyncAlchemyOnAsyncpg,
    AsyncAlchemySession,
    AsyncScopedSession,
    Lender,
    ScopedSession,
    alchemy_url,
)
from support.postgres import Server

import simpleworkflow as swf

KINDS = [("sqlite", kind) for kind in ON_SQLITE] + [("postgres", kind) for kind in ON_POSTGRES]
CASES = [(backend, kind, twin) for backend, kind in KINDS for twin in (False, True) if not (twin and kind.is_async)]


@pytest.fixture
def chosen_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    backend = request.param
    return str(tmp_path / "test.db") if backend == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def app(chosen_url: str) -> Iterator[swf.App]:
    opened = swf.App(chosen_url)
    opened.sync.doctor.check()
    yield opened
    opened.sync.close()


Trigger = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def borrowed(app: swf.App, kind: type[Lender], url: str, twin: bool) -> AsyncIterator[tuple[Lender, Trigger]]:
    """A lender with an open transaction, and trigger on its connection: awaited, or through app.sync."""
    lender = kind(url)
    connection = await lender.open()

    async def trigger(*args: Any, **options: Any) -> Any:
        if twin:
            return app.sync.trigger(*args, connection=connection, **options)
        return await app.trigger(*args, connection=connection, **options)

    try:
        yield lender, trigger
    finally:
        await lender.close()


each_kind = pytest.mark.parametrize(
    ("chosen_url", "kind", "twin"),
    CASES,
    indirect=["chosen_url"],
    ids=[f"{backend}-{kind.__name__}{'-sync' if twin else ''}" for backend, kind, twin in CASES],
)


@each_kind
async def test_a_committed_run_exists_and_is_executed(
    app: swf.App, chosen_url: str, kind: type[Lender], twin: bool
) -> None:
    @app.workflow("a.double.v1")
    async def double(ctx: swf.Context, n: int) -> int:
        return 2 * n

    async with app.worker():
        async with borrowed(app, kind, chosen_url, twin) as (lender, trigger):
            handle = await trigger(double, 4, priority=3, idempotency_key="k")
            assert handle.is_new
            with pytest.raises(swf.RunNotFound):
                await app.get(handle.id)
            await lender.commit()
        assert await app.handle(handle.id, double).result(20) == 8
    run = await app.get(handle.id)
    assert (run.priority, run.idempotency_key, run.payload) == (3, "k", 4)
    assert [event.type for event in await app.handle(handle.id).events()] == [
        "created",
        "leased",
        "started",
        "succeeded",
    ]


@each_kind
async def test_a_rolled_back_run_never_was(app: swf.App, chosen_url: str, kind: type[Lender], twin: bool) -> None:
    async with borrowed(app, kind, chosen_url, twin) as (lender, trigger):
        handle = await trigger("a.b.v1", 1)
        await lender.rollback()
    with pytest.raises(swf.RunNotFound):
        await app.get(handle.id)
    assert await app.activity.counts() == []


@each_kind
async def test_duplicates_are_found_inside_and_outside_the_transaction(
    app: swf.App, chosen_url: str, kind: type[Lender], twin: bool
) -> None:
    outside = await app.trigger("a.b.v1", {"n": 1}, idempotency_key="before")
    async with borrowed(app, kind, chosen_url, twin) as (lender, trigger):
        first = await trigger("a.b.v1", 2, idempotency_key="k")
        again = await trigger("a.b.v1", 2, idempotency_key="k")
        known = await trigger("a.b.v1", {"n": 1}, idempotency_key="before")
        with pytest.raises(swf.IdempotencyConflict, match="another payload"):
            await trigger("a.b.v1", 3, idempotency_key="k")
        await lender.commit()
    assert (first.is_new, again.is_new, again.id) == (True, False, first.id)
    assert (known.is_new, known.id) == (False, outside.id)
    assert sum(count.runs for count in await app.activity.counts()) == 2


@each_kind
async def test_many_runs_and_every_option_go_through_it(
    app: swf.App, chosen_url: str, kind: type[Lender], twin: bool
) -> None:
    lender = kind(chosen_url)
    connection = await lender.open()
    options: dict[str, Any] = {"delay": "1h", "start_within": "2h", "max_attempts": 4, "connection": connection}
    payloads = [{"text": "50% of :this, $1 and 'that' %s %(p1)s é😀"}, None, [1.5]]
    if twin:
        handles: list[Any] = list(app.sync.trigger_many("a.b.v1", payloads, **options))
    else:
        handles = list(await app.trigger_many("a.b.v1", payloads, **options))
    await lender.commit()
    await lender.close()
    runs = [await app.get(handle.id) for handle in handles]
    assert [run.payload for run in runs] == payloads
    assert {run.max_attempts for run in runs} == {4}
    for run in runs:
        assert run.run_at is not None
        assert run.start_by is not None
        assert run.created_at < run.run_at < run.start_by


@each_kind
async def test_the_callers_own_writes_and_the_run_share_one_fate(
    app: swf.App, chosen_url: str, kind: type[Lender], twin: bool
) -> None:
    """The run's own refusals leave the transaction usable: the caller decides what to do next."""
    await app.definitions.disable("a.closed.v1")
    async with borrowed(app, kind, chosen_url, twin) as (lender, trigger):
        first = await trigger("a.b.v1", 1)
        with pytest.raises(swf.NotRunnable, match="disabled"):
            await trigger("a.closed.v1", 1)
        with pytest.raises(swf.PayloadError):
            await trigger("a.b.v1", float("nan"))
        second = await trigger("a.b.v1", 2)
        await lender.commit()
    assert {run.id async for run in app.runs()} == {first.id, second.id}


# Mistakes.


@pytest.mark.parametrize("chosen_url", ["sqlite", "postgres"], indirect=True)
async def test_a_connection_of_the_wrong_kind_is_refused_with_a_sentence(app: swf.App, chosen_url: str) -> None:
    for wrong in (object(), "postgresql://x", 7):
        with pytest.raises(swf.InvalidInput, match=r"connection= takes an open asyncpg, psycopg \(3\), sqlite3"):
            await app.trigger("a.b.v1", 1, connection=wrong)
        with pytest.raises(swf.InvalidInput, match=r"connection= takes an open asyncpg"):
            app.sync.trigger("a.b.v1", 1, connection=wrong)
    with pytest.raises(swf.InvalidInput, match="use trigger"):
        await app.run("a.b.v1", 1, connection=object())
    with pytest.raises(swf.InvalidInput, match="cannot go with connection="):
        await app.trigger("a.b.v1", 1, connection=object(), require="worker")
    assert await app.activity.counts() == []


async def test_a_session_that_names_no_engine_of_its_own_is_refused_with_the_line_to_write(
    postgres_url: str, tmp_path: Path
) -> None:
    class Base(DeclarativeBase):
        pass

    class Account(Base):
        __tablename__ = "account"
        id: Mapped[int] = mapped_column(primary_key=True)

    path = str(tmp_path / "test.db")
    for url in (path, postgres_url):
        app, engine = swf.App(url), sqlalchemy.create_engine(alchemy_url(url, "psycopg"))
        await app.doctor.check()
        with Session(binds={Account: engine}) as session:
            sentence = r"connection=session\.connection\(bind_arguments=\{'bind': engine\}\)"
            with pytest.raises(swf.InvalidInput, match=sentence):
                app.sync.trigger("a.b.v1", 1, connection=session)
            advised = session.connection(bind_arguments={"bind": engine})
            app.sync.trigger("a.b.v1", 1, connection=advised)
            assert await app.activity.counts() == []
            session.rollback()
            app.sync.trigger("a.b.v1", 2, connection=session.connection(bind_arguments={"bind": engine}))
            session.commit()
        assert [run.payload async for run in app.runs()] == [2]
        engine.dispose()
        await app.close()
    with pytest.raises(swf.InvalidInput, match=r"connection=await session\.connection\(bind_arguments="):
        await swf.App(postgres_url).trigger("a.b.v1", 1, connection=AsyncSession())


async def test_the_driver_below_an_async_engine_is_refused_with_the_line_to_write(postgres_url: str) -> None:
    """It has no transaction until SQLAlchemy has sent something: what we send would be committed at once."""
    app = swf.App(postgres_url)
    for kind in (AsyncAlchemy, AsyncAlchemyOnAsyncpg):
        lender = kind(postgres_url)
        connection = await lender.open()
        raw = await connection.get_raw_connection()
        with pytest.raises(swf.InvalidInput, match="give the AsyncConnection itself"):
            await app.trigger("a.b.v1", 1, connection=raw)
        with pytest.raises(swf.InvalidInput, match="give the AsyncConnection itself"):
            app.sync.trigger("a.b.v1", 1, connection=raw)
        await lender.close()
    assert await app.activity.counts() == []
    await app.close()


async def test_what_makes_sessions_is_refused_and_leaves_nothing_unawaited(postgres_url: str) -> None:
    app = swf.App(postgres_url)
    for maker in (sessionmaker(), async_sessionmaker()):
        with pytest.raises(swf.InvalidInput, match=r"connection= takes an open .*, not sqlalchemy\..*sessionmaker"):
            await app.trigger("a.b.v1", 1, connection=maker)
    await app.close()


async def test_a_connection_to_the_other_database_is_refused(postgres_url: str, tmp_path: Path) -> None:
    path = str(tmp_path / "test.db")
    on_postgres, on_sqlite = swf.App(postgres_url), swf.App(path)
    lite = sqlite3.connect(path)
    with pytest.raises(swf.InvalidInput, match="this App uses postgres, but connection= is a sqlite3 connection"):
        await on_postgres.trigger("a.b.v1", 1, connection=lite)
    lite.close()
    sentence = "this App uses sqlite, but connection= is a psycopg connection"
    with psycopg.connect(postgres_url) as big, pytest.raises(swf.InvalidInput, match=sentence):
        await on_sqlite.trigger("a.b.v1", 1, connection=big)
    for app, url, sentence in (
        (on_postgres, path, "this App uses postgres, but connection= is a SQLAlchemy connection to sqlite"),
        (on_sqlite, postgres_url, "this App uses sqlite, but connection= is a SQLAlchemy connection to postgresql"),
    ):
        for kind in (Alchemy, AlchemySession, ScopedSession):
            lender = kind(url)
            with pytest.raises(swf.InvalidInput, match=sentence):
                app.sync.trigger("a.b.v1", 1, connection=await lender.open())
            await lender.close()
    for kind in (AsyncAlchemy, AsyncAlchemySession, AsyncScopedSession):
        waiting = kind(postgres_url)
        with pytest.raises(swf.InvalidInput, match="this App uses sqlite"):
            await on_sqlite.trigger("a.b.v1", 1, connection=await waiting.open())
        await waiting.close()


@pytest.mark.parametrize("kind", ON_POSTGRES, ids=lambda kind: kind.__name__)
async def test_an_unmigrated_postgresql_is_named_on_a_lent_connection_too(postgres: Server, kind: type[Lender]) -> None:
    lender = kind(postgres.url("postgres"))
    app = swf.App(postgres.url("postgres"))
    with pytest.raises(swf.MissingMigration, match="simpleworkflow migrate up --url"):
        await app.trigger("a.b.v1", 1, connection=await lender.open())
    await lender.rollback()
    await lender.close()


@pytest.mark.parametrize("kind", [kind for kind in ON_POSTGRES if kind.is_async], ids=lambda kind: kind.__name__)
async def test_the_blocking_twin_refuses_an_async_connection_and_leaves_it_usable(
    postgres_url: str, kind: type[Lender]
) -> None:
    app = swf.App(postgres_url)
    lender = kind(postgres_url)
    connection = await lender.open()
    with pytest.raises(swf.InvalidInput, match=r"app\.sync needs a blocking connection=.*await app\.trigger"):
        app.sync.trigger("a.b.v1", 1, connection=connection)
    with pytest.raises(swf.InvalidInput, match=r"app\.sync needs a blocking connection="):
        app.sync.trigger_many("a.b.v1", [1, 2], connection=connection)
    handle = await app.trigger("a.b.v1", 1, connection=connection)
    await lender.commit()
    await lender.close()
    assert (await app.get(handle.id)).payload == 1
    await app.close()


async def test_a_sqlite_file_without_tables_says_what_to_do(tmp_path: Path) -> None:
    path = str(tmp_path / "fresh.db")
    app = swf.App(path)
    connection = sqlite3.connect(path)
    with pytest.raises(swf.MissingMigration, match="migrate"):
        app.sync.trigger("a.b.v1", 1, connection=connection)
    await app.migrate()
    app.sync.trigger("a.b.v1", 1, connection=connection)
    connection.commit()
    connection.close()
    assert [run.payload async for run in app.runs()] == [1]
    await app.close()


async def test_a_transaction_that_stays_open_holds_up_nobody_else(postgres_url: str) -> None:
    app = swf.App(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        app.sync.trigger("a.b.v1", 1, idempotency_key="mine", connection=connection)
        others = await asyncio.wait_for(asyncio.gather(*(app.trigger("a.b.v1", n) for n in range(20))), 5)
        assert all(handle.is_new for handle in others)
        connection.rollback()
    await app.close()
