"""`simpleworkflow events`: everybody's trail, filtered and followed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support import story
from support.ledger import Raw
from support.terminal import Terminal, assert_golden, command

import simpleworkflow as swf
from simpleworkflow.cli.history import events as module
from simpleworkflow.cli.history.events import Feed
from simpleworkflow.model.records import EventLine, EventPage
from simpleworkflow.model.states import EventType

LONG_AGO = "2020-01-01T00:00Z"


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    opened = swf.App(url)
    opened.sync.doctor.check()
    yield opened
    opened.sync.close()


def test_the_feed_tells_every_event_of_every_run(app: swf.App, url: str) -> None:
    raw = Raw(url)
    story.tell(raw)
    raw.close()
    done = command("events", "--since", LONG_AGO, url=url)
    assert done.returncode == 0
    assert_golden("events.txt", done.stdout)
    failed = command("events", "--since", LONG_AGO, "--type", "shop.*", "--event", "failed", "--json", url=url)
    (line,) = [json.loads(line) for line in failed.stdout.splitlines()]
    assert (line["run_id"], line["run_type"], line["type"]) == (str(story.FAILED), "shop.refund.v1", "failed")
    assert line["data"] == {"error": f"ValueError: {story.NASTY}"}


def test_since_leaves_out_what_is_older(app: swf.App, url: str) -> None:
    raw = Raw(url)
    old, new = app.sync.trigger("test.a.v1").id, app.sync.trigger("test.a.v1").id
    shift = raw.back(7200)
    raw.rewrite_events(f"created_at = created_at {shift}", "workflow_id = ?", old)
    raw.close()
    assert re.findall(r"(\S+)  created", command("events", "--since", "1h", url=url).stdout) == [str(new)]
    assert len(command("events", "--since", "3h", url=url).stdout.splitlines()) == 2


def test_following_goes_on_until_ctrl_c_and_exits_with_0(app: swf.App, url: str) -> None:
    first = app.sync.trigger("test.a.v1").id
    feed = Terminal("events", "--follow", "--interval", "0.05", url=url, width=200).until(str(first))
    second = app.sync.trigger("test.a.v1").id
    feed.until(str(second))
    app.sync.cancel(first, reason="over")
    shown = feed.until("cancelled").interrupt().end()
    assert shown.code == 0
    assert [shown.text.count(f"{run}  created") for run in (first, second)] == [1, 1], "no line twice"


class LateCommits:
    """A trail in which an event becomes visible after others with greater ids."""

    def __init__(self) -> None:
        self.activity = self
        self.visible: list[int] = []
        self.asked: list[int] = []

    async def events(self, instant: datetime, *, after: int, limit: int, **_: Any) -> EventPage:
        self.asked.append(after)
        found = sorted(n for n in self.visible if n > after)[:limit]
        lines = [EventLine(n, story.ORDER, EventType.CREATED, None, None, instant, "a.v1") for n in found]
        return EventPage(lines, found[-1] if found else after, len(found) < limit)


async def test_an_event_that_commits_late_is_told_once_and_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    trail = LateCommits()
    feed = Feed(trail, datetime.now(UTC) - timedelta(hours=1), None, ())  # type: ignore[arg-type]

    async def told() -> list[int]:
        found = []
        while (lines := await feed.page()) is not None:
            found += [line.id for line in lines]
        feed.look_again()
        return found

    trail.visible = [1, 2, 4]
    assert await told() == [1, 2, 4]
    trail.visible = [1, 2, 3, 4, 5]
    assert await told() == [3, 5]
    assert await told() == []
    now += module.LOOK_BACK + 1
    assert await told() == []
    assert await told() == []
    assert trail.asked[-1] == 5, "what is old enough is not read again"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--since", "soon"], "'soon' is neither a duration"),
        (["--event", "exploded"], "'exploded' is not one of 'created', 'leased'"),
        (["--type", "a b"], "contains ' '"),
    ],
)
def test_events_called_wrongly_exits_with_2(arguments: list[str], sentence: str) -> None:
    done = command("events", *arguments)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())
