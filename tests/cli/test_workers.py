"""`simpleworkflow workers`: the living, and with --all the stopped and the silent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from support.ledger import Raw
from support.terminal import assert_golden, command

import simpleworkflow as swf
from simpleworkflow.cli.workers.listing import span_words
from simpleworkflow.model.names import span_of_prefix


@pytest.fixture
def crew(url: str) -> Iterator[Raw]:
    """One worker that is alive and holds a run, one that stopped, one that fell silent."""
    app = swf.App(url)
    run = app.sync.trigger("shop.order.v1").id
    app.sync.close()
    raw = Raw(url)
    spans = json.dumps([list(span_of_prefix(p)) for p in ("billing.*", "shop.order.v1")])
    insert = "INSERT INTO workflow.workflow_worker (id, name, host, pid, spans, started_at, seen_at, stopped_at)"
    for name, seen, stopped in (("ann", 2, "NULL"), ("bob", 60, raw.now), ("cid", 600, "NULL")):
        seen_at = f"{raw.now} {raw.back(seen)}"
        values = f"?, ?, 'box\x1b[31m', 7, ?, {raw.now} {raw.back(3600 - seen)}, {seen_at}, {stopped}"
        raw.sql(f"{insert} VALUES ({values})", f"{name}@box.7", name, spans)
    text = "UPDATE workflow.workflow_run SET status = 'leased', version = version + 1, lease_epoch = 1,"
    raw.sql(f"{text} leased_by = 'ann@box.7', lease_until = {raw.now} {raw.back(-30)} WHERE id = ?", run)
    yield raw
    raw.close()


def still(text: str) -> str:
    """Without what the clock changes."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "2030-01-31 12:00:00Z", text)
    return re.sub(r" {2,}", "  ", re.sub(r"[\d.]+s ago", "2s ago", text))


def test_the_living_are_listed_with_what_they_serve_and_hold(crew: Raw, url: str) -> None:
    done = command("workers", url=url)
    assert done.returncode == 0
    assert_golden("workers.txt", still(done.stdout))
    everyone = command("workers", "--all", "--json", url=url)
    lines = [json.loads(line) for line in everyone.stdout.splitlines()]
    states = {line["name"]: (line["state"], line["runs"], line["serves"]) for line in lines}
    serves = ["billing.*", "shop.order.v1"]
    assert states == {"ann": ("alive", 1, serves), "bob": ("stopped", 0, serves), "cid": ("silent", 0, serves)}
    assert len(command("workers", "--all", url=url).stdout.splitlines()) == 4


def test_that_nobody_is_alive_is_said(crew: Raw, url: str) -> None:
    crew.sql(f"UPDATE workflow.workflow_worker SET stopped_at = {crew.now}")
    done = command("workers", url=url)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no worker is alive; 3 have stopped or fallen silent (--all)" in done.stderr


@pytest.mark.parametrize("prefix", ["*", "billing.*", "shop.order.v1"])
def test_spans_are_shown_as_operators_write_them(prefix: str) -> None:
    assert span_words(span_of_prefix(prefix)) == prefix
