"""Which run a word on the command line means: an id, the beginning of one, or a business key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from support.waiting import until

import simpleworkflow as swf
from simpleworkflow.cli.main import main
from simpleworkflow.cli.runs.lookup import run_id_of
from simpleworkflow.cli.screen.table import Column, table_lines
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import workers
from simpleworkflow.worker.process import host_token

FIRST = "abcdef01-0000-7000-8000-000000000001"
SECOND = "abcdef02-0000-7000-8000-000000000002"


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    opened = swf.App(url)
    yield opened
    opened.sync.close()


def run(*words: str, url: str) -> Result:
    return CliRunner().invoke(main, [*words, "--url", url])


@pytest.mark.parametrize("key", ["order-4711", "4711", "café/7 8", "not-a-uuid-but-long-enough", "deadbeef"])
def test_what_is_no_id_is_looked_up_as_a_key(app: swf.App, key: str) -> None:
    app.sync.trigger("shop.pay.v1", id=FIRST, idempotency_key=key)
    assert str(run_id_of(app, key)) == FIRST
    assert str(run_id_of(app, key, as_key=True)) == FIRST


def test_a_word_that_is_the_beginning_of_one_id_and_the_key_of_another_run_is_not_guessed(
    app: swf.App, capsys: pytest.CaptureFixture[str]
) -> None:
    app.sync.trigger("shop.pay.v1", id=FIRST)
    app.sync.trigger("shop.ship.v1", id=SECOND, idempotency_key="abcdef01")
    with pytest.raises(SystemExit) as ended:
        run_id_of(app, "abcdef01")
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert f"abcdef01 is the key of run {SECOND}" in told
    assert "--key" in told
    assert f"{FIRST}  shop.pay.v1  pending" in told
    assert str(run_id_of(app, "abcdef01", as_key=True)) == SECOND


def test_a_word_that_means_one_run_twice_means_that_run(app: swf.App) -> None:
    app.sync.trigger("shop.pay.v1", id=FIRST, idempotency_key="abcdef01")
    assert str(run_id_of(app, "abcdef01")) == FIRST


def test_a_key_may_look_like_an_id(app: swf.App) -> None:
    app.sync.trigger("shop.pay.v1", id=FIRST, idempotency_key=SECOND)
    assert str(run_id_of(app, SECOND)) == FIRST


def test_a_whole_id_means_its_run_although_another_run_has_it_as_its_key(app: swf.App, url: str) -> None:
    app.sync.trigger("shop.pay.v1", id=FIRST)
    app.sync.trigger("shop.ship.v1", id=SECOND, idempotency_key=FIRST)
    assert run("explain", FIRST, url=url).stdout.startswith(f"run {FIRST} ")
    assert run("runs", "hold", FIRST, url=url).stdout == f"{FIRST} pending held\n"
    assert run("explain", "--key", FIRST, url=url).stdout.startswith(f"run {SECOND} ")
    assert run("runs", "hold", "--key", FIRST, url=url).stdout == f"{SECOND} pending held\n"


def test_a_command_that_changes_runs_finds_a_key_that_looks_like_an_id(app: swf.App, url: str) -> None:
    app.sync.trigger("shop.pay.v1", id=FIRST, idempotency_key=SECOND)
    assert run("runs", "hold", SECOND, url=url).stdout == f"{FIRST} pending held\n"
    nobody = run("runs", "hold", "abcdef03-0000-7000-8000-000000000003", url=url)
    assert (nobody.exit_code, "there is no run abcdef03" in nobody.stderr) == (1, True)


def test_every_command_that_takes_a_run_takes_a_key(app: swf.App, url: str) -> None:
    app.sync.trigger("shop.pay.v1", id=FIRST, idempotency_key="order-4711")
    assert run("explain", "order-4711", url=url).stdout.startswith(f"run {FIRST} (shop.pay.v1) is pending")
    assert run("explain", "--key", "order-4711", url=url).exit_code == 0
    assert FIRST in run("history", "order-4711", url=url).stdout
    assert FIRST in run("runs", "show", "--key", "order-4711", url=url).stdout
    assert run("runs", "hold", "order-4711", "--key", url=url).stdout == f"{FIRST} pending held\n"
    assert run("runs", "resume", "order-4711", url=url).stdout == f"{FIRST} pending\n"
    assert run("runs", "signal", "order-4711", "approved", '"yes"', url=url).exit_code == 0
    assert [one.payload for one in app.sync.handle(FIRST).signals()] == ["yes"]
    assert run("outbox", "list", "order-4711", url=url).exit_code == 0
    assert run("runs", "cancel", "order-4711", url=url).stdout == f"{FIRST} cancelled\n"
    assert run("runs", "watch", "--key", "order-4711", url=url).exit_code == 1
    assert run("runs", "delete", "order-4711", "--yes", url=url).exit_code == 0
    gone = run("explain", "--key", "order-4711", url=url)
    assert (gone.exit_code, "no run with the key 'order-4711'" in gone.stderr) == (1, True)


def test_a_listing_says_which_signal_a_run_waits_for(app: swf.App, url: str) -> None:
    @app.workflow("shop.approve.v1")
    async def approve(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("approved", timeout="7 days")

    handle = app.sync.trigger(approve)
    with app.sync.worker():
        until(lambda: handle.get().status is swf.Status.PAUSED, "it waits")
    (line,) = run("runs", "list", url=url).stdout.splitlines()[1:]
    assert "  waits for signal approved until 20" in line
    assert "due" not in line


def test_the_page_of_a_run_says_which_signals_its_children_wait_for(app: swf.App, url: str) -> None:
    @app.workflow("shop.approve.v1")
    async def approve(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("approved", timeout="7 days")

    @app.workflow("shop.order.v1")
    async def order(ctx: swf.Context) -> None:
        await ctx.run(approve)

    handle = app.sync.trigger(order)
    with app.sync.worker():
        until(lambda: [one.status for one in app.sync.handle(handle.id).children()] == [swf.Status.PAUSED], "it waits")
    _, _, children = run("runs", "show", str(handle.id), url=url).stdout.partition("children (1)")
    assert "  waits for signal approved until 20" in children
    assert "due" not in children


def test_ids_are_cut_where_types_and_notes_would_be_unreadable() -> None:
    columns = (Column("run", enough=13), Column("type", is_flexible=True), Column("note", is_flexible=True, leaves=1))
    rows = [[FIRST, "orders.fulfilment.v1", "waits for signal approved"]]
    whole = table_lines(columns, rows, 64)[1].plain
    assert whole.startswith(FIRST)
    narrow = table_lines(columns, rows, 60)[1].plain
    assert narrow.startswith("abcdef01-0000  orders.fulfilment.v1")
    assert "waits for signal" in narrow
    assert table_lines(columns, rows, None)[1].plain.split()[0] == FIRST


def test_cut_ids_of_one_listing_differ_and_each_means_its_run(app: swf.App, url: str) -> None:
    """Ids of children begin with the time of their parent."""
    siblings = [f"01a1f4ec-ba43-7{n:03x}-8000-00000000000{n}" for n in range(3)]
    for id in siblings:
        app.sync.trigger("shop.a_rather_long_name_of_a_workflow.v1", id=id)
    columns = (Column("run", enough=13), Column("type", is_flexible=True))
    cut = [line.plain.split()[0] for line in table_lines(columns, [[id, "shop.pay.v1"] for id in siblings], 30)[1:]]
    assert cut == ["01a1f4ec-ba43-7000", "01a1f4ec-ba43-7001", "01a1f4ec-ba43-7002"]
    for id, shown in zip(siblings, cut, strict=True):
        assert run("explain", shown, url=url).stdout.startswith(f"run {id} ")


async def test_a_worker_whose_process_is_gone_is_not_listed_as_alive_on_its_host(ledger: Ledger, url: str) -> None:
    here = f"gone@{host_token()}.{2**22 + 1}.1.aa"
    elsewhere = "far@00000000.1.1.aa"
    for worker in (here, elsewhere):
        await ledger.run(workers.announce(worker, worker[:4], "h", 1, [("", "z")]))
    shown = run("workers", url=url).stdout
    assert elsewhere in shown
    assert here not in shown
    (line,) = [line for line in run("workers", "--all", url=url).stdout.splitlines() if here in line]
    assert " silent " in line
