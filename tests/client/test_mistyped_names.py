"""A name that nobody knows and that is much like a known one is most likely mistyped: that is said, and not refused."""

from __future__ import annotations

import logging

import pytest
from click.testing import CliRunner

import simpleworkflow as swf
from simpleworkflow.cli.main import main

RIGHT, WRONG = "orders.fulfil.v1", "orders.fulfill.v1"


def holding(app: swf.App) -> None:
    @app.workflow(RIGHT)
    async def fulfil(ctx: swf.Context) -> None:
        pass


async def test_a_mistyped_name_is_warned_of_once(app: swf.App, caplog: pytest.LogCaptureFixture) -> None:
    holding(app)
    with caplog.at_level(logging.WARNING, "simpleworkflow.client"):
        for name in (RIGHT, "billing.pay.v1", WRONG, WRONG):
            assert (await (await app.trigger(name)).get()).type == name
    assert [record.getMessage() for record in caplog.records] == [
        f"nobody has ever served {WRONG}, which was triggered: did you mean {RIGHT!r}?"
    ]


async def test_a_name_that_somebody_serves_is_no_mistake(app: swf.App, caplog: pytest.LogCaptureFixture) -> None:
    holding(app)
    await app.definitions.create(WRONG)
    with caplog.at_level(logging.WARNING, "simpleworkflow.client"):
        await app.trigger(WRONG)
    assert not caplog.records


def test_the_command_warns_of_a_mistyped_name(app: swf.App, url: str) -> None:
    app.sync.definitions.create(RIGHT)
    done = CliRunner().invoke(main, ["trigger", WRONG, "--url", url])
    assert done.exit_code == 0
    assert done.stderr == f"warning: nobody has ever served {WRONG}; did you mean {RIGHT!r}?\n"
    assert len(done.stdout.split()) == 1
    assert not CliRunner().invoke(main, ["trigger", RIGHT, "--url", url]).stderr
