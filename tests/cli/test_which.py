"""Which run a word on the command line means: an id, the beginning of one, or a business key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

import simpleworkflow as swf
from simpleworkflow.cli.main import main
from simpleworkflow.cli.which import run_id_of

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


def test_every_command_that_takes_a_run_takes_a_key(app: swf.App, url: str) -> None:
    app.sync.trigger("shop.pay.v1", id=FIRST, idempotency_key="order-4711")
    assert run("explain", "order-4711", url=url).stdout.startswith(f"run {FIRST} (shop.pay.v1) is pending")
    assert run("explain", "--key", "order-4711", url=url).exit_code == 0
    assert FIRST in run("history", "order-4711", url=url).stdout
    assert FIRST in run("runs", "show", "--key", "order-4711", url=url).stdout
    assert run("runs", "hold", "order-4711", "--key", url=url).stdout == f"{FIRST} pending held\n"
    assert run("runs", "resume", "order-4711", url=url).stdout == f"{FIRST} pending\n"
    assert run("runs", "signal", "order-4711", "approved", '"yes"', url=url).exit_code == 0
    assert [one.payload for one in app.sync.signals(FIRST)] == ["yes"]
    assert run("outbox", "list", "order-4711", url=url).exit_code == 0
    assert run("runs", "cancel", "order-4711", url=url).stdout == f"{FIRST} cancelled\n"
    assert run("runs", "watch", "--key", "order-4711", url=url).exit_code == 1
    assert run("runs", "delete", "order-4711", "--yes", url=url).exit_code == 0
    gone = run("explain", "--key", "order-4711", url=url)
    assert (gone.exit_code, "no run with the key 'order-4711'" in gone.stderr) == (1, True)
