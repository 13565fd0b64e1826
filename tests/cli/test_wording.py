"""What the commands say: whole sentences in `--help`, a pointer for a word that is no command, numbers that agree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from support.ledger import Raw
from support.old_runs import DAY, ended

import simpleworkflow as swf
from simpleworkflow.cli.main import COMMANDS, main
from simpleworkflow.cli.outbox.status import _status_lines
from simpleworkflow.cli.workers import worker as work
from simpleworkflow.model.outbox import OutboxStatus


def typed(*arguments: str, url: str = "nowhere/none.db") -> Result:
    return CliRunner().invoke(main, list(arguments), env={"SIMPLEWORKFLOW_URL": url}, prog_name="swf")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("wroker", "`swf worker` or `swf workers`"),
        ("explian", "`swf explain`"),
        ("cancel", "`swf runs cancel`"),
        ("signal", "`swf runs signal`"),
        ("retry", "`swf runs retry`"),
        ("list", "`swf runs list` or `swf schedule list` or `swf outbox list`"),
        ("dispatch", "`swf outbox dispatch`"),
        ("up", "`swf migrate up`"),
        ("status", "`swf explain` or `swf runs show`"),
        ("run", "`swf trigger` or `swf worker`"),
    ],
)
def test_a_word_that_is_no_command_points_to_the_one_that_was_meant(word: str, meant: str) -> None:
    done = typed(word)
    assert done.exit_code == 2
    assert f"there is no command '{word}'; did you mean {meant}?" in done.stderr


@pytest.mark.parametrize(
    ("group", "word", "meant"),
    [
        ("runs", "trigger", "`swf trigger`"),
        ("runs", "explain", "`swf explain`"),
        ("runs", "lsit", "`swf runs list`"),
        ("runs", "status", "`swf explain` or `swf runs show`"),
        ("schedule", "cancel", "`swf runs cancel`"),
        ("outbox", "show", "`swf runs show`"),
        ("migrate", "worker", "`swf worker`"),
    ],
)
def test_a_word_that_is_no_command_of_its_group_points_to_the_one_that_was_meant(
    group: str, word: str, meant: str
) -> None:
    done = typed(group, word)
    assert done.exit_code == 2
    assert f"there is no command '{group} {word}'; did you mean {meant}?" in done.stderr
    assert typed(group, "xyzzy").stderr.splitlines()[-1] == f"Error: there is no command '{group} xyzzy'"


def test_a_word_that_is_like_nothing_is_refused_without_a_guess() -> None:
    done = typed("xyzzy")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == "Error: there is no command 'xyzzy'"


def commands(path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    found: click.Command | None = main
    for name in path:
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), name)
    if isinstance(found, click.Group):
        yield path
        for name in found.list_commands(click.Context(found)):
            yield from commands((*path, name))


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_the_help_of_a_group_cuts_no_sentence_off(path: tuple[str, ...]) -> None:
    shown = typed(*path, "--help").stdout
    listed = shown.split("Commands:\n")[1]
    assert not re.search(r"\.\.\.$|…$", listed, re.MULTILINE)
    assert all(re.search(rf"^  {name} ", shown, re.MULTILINE) for name in (COMMANDS if not path else ()))


@pytest.mark.parametrize("given", ["30", "30s", "0.5m", " 30 "])
def test_seconds_need_no_unit_where_nobody_means_days(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}
    monkeypatch.setattr(work, "run_worker", lambda target, **options: seen.update(options))
    assert typed("worker", "flows:app", "--drain", given, "--lease", given).exit_code == 0
    assert str(seen["drain"]).strip() in {"30s", "0.5m", "30 s"}
    assert seen["lease"] == seen["drain"]


def test_a_length_that_cannot_be_read_names_what_a_shell_can_write() -> None:
    done = typed("worker", "flows:app", "--drain", "abc")
    assert done.exit_code == 2
    assert 'write 30s, 5m, 1h30m or "3 days"' in done.stderr
    assert "timedelta" not in done.stderr


@pytest.mark.parametrize(("count", "words"), [(1, "1 run deleted, "), (2, "2 runs deleted, ")])
def test_prune_counts_one_run_as_one(url: str, count: int, words: str) -> None:
    app = swf.App(url)
    app.sync.doctor.check()
    app.sync.close()
    raw = Raw(url)
    for n in range(count):
        ended(raw, 60 * DAY + n)
    ended(raw, 0)
    raw.close()
    done = typed("prune", "--older-than", "30 days", "--yes", url=url)
    assert done.stdout.splitlines()[-1].startswith(words)


@pytest.mark.parametrize(("waiting", "retrying", "line"), [(2, 1, 0), (0, 1, 1)])
def test_the_age_of_the_oldest_event_stands_with_the_events_that_it_is_one_of(
    waiting: int, retrying: int, line: int
) -> None:
    status = OutboxStatus(waiting=waiting, retrying=retrying, behind=0, dead=0, lag=7.08, most=10, lanes=(), dispatchers=())  # fmt: skip # noqa: E501
    lines = _status_lines(status)
    assert [number for number, text in enumerate(lines) if "the oldest for 7.08s" in text] == [line]


def test_the_slots_of_a_schedule_are_shown_on_the_clocks_of_its_zone(url: str) -> None:
    app = swf.App(url)
    for name, tz in (("berlin", "Europe/Berlin"), ("utc", "UTC")):
        app.sync.schedules.put(name, "a.b.v1", "30 9 * * *", tz=tz)
    app.sync.close()
    head, berlin, utc = typed("schedule", "list", url=url).stdout.splitlines()
    assert re.search(r" 20\d\d-\d\d-\d\d 09:30:00\+0[12]:00 ", berlin)
    assert re.search(r" 20\d\d-\d\d-\d\d 09:30:00Z ", utc)
    assert head.index("NEXT") == berlin.index("20") == utc.index("20")
    told = typed("schedule", "add", "third", "a.b.v1", "15 9 * * *", "--tz", "Asia/Kolkata", url=url).stdout
    assert re.search(r"next at 20\d\d-\d\d-\d\d 09:15:00\+05:30$", told)


async def test_an_instant_is_told_once_in_an_explanation(url: str) -> None:
    app = swf.App(url)

    @app.workflow("a.sleepy.v1")
    async def sleepy(ctx: swf.Context) -> None:
        await ctx.sleep("10 days")

    @app.workflow("a.heard.v1")
    async def heard(ctx: swf.Context) -> None:
        await ctx.wait_for_signal("go", timeout="10 days")

    @app.workflow("a.both.v1")
    async def both(ctx: swf.Context) -> None:
        await ctx.race(ctx.sleep("10 days"), ctx.wait_for_signal("go"))

    async with swf.testing.env(app, start=datetime(2030, 1, 1, tzinfo=UTC)) as env:
        handles = [await app.trigger(one) for one in (sleepy, heard, both)]
        await env.settle()
        told = [await handle.explain() for handle in handles]
        assert env.now + timedelta(days=10) == datetime(2030, 1, 11, tzinfo=UTC)
    for sentence in told:
        assert sentence.count("2030-01-11 00:00:00 UTC") == 1, sentence


def test_the_operators_page_lists_exactly_the_options_that_a_worker_takes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    listed = re.search(r"^simpleworkflow worker MODULE:APP .*\n((?:    --.*\n)+)", page, re.MULTILINE)
    assert listed is not None
    taken = {name for option in work.worker.params if isinstance(option, click.Option) for name in option.opts}
    assert sorted(listed[1].split()) == sorted(taken)
