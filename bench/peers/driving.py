"""Starts a driver for one run on a fresh database and believes nothing it says without looking.

A run is: a new database, the tables and the jobs (nobody's clock runs), statistics for a database that was filled, a
checkpoint, then the driver's one process. Afterwards the database itself is asked whether the work was done: rows for
every trigger, records for every step. A run that did not do it raises.

A round is one run of everybody. Rounds go forth and back: the second has the order of the first reversed, so each
partner is before ours as often as after, the first named peer is always right beside us, and a machine that gets
slower by the minute favours nobody. A peer that cannot be installed is left out, with a note to standard error.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ground import Ground
from judging import OURS, Bar, Finding, paired

from peers.venvs import NODE_PINS, CannotInstall, cache_folder, make, python_of

HERE = Path(__file__).resolve().parent
DRIVER_SECONDS = 900
STEPS = 10
OURS_SQLITE, DBOS_SQLITE = "ours_sqlite", "dbos_sqlite"
OURS_AWAKE = "ours_awake"
"""Ours with a worker that asks as often as AWAKE_SECONDS says instead of resting until it is told."""
AWAKE_SECONDS = 0.005
_OURS = (OURS, OURS_SQLITE, OURS_AWAKE)
BEFORE, BEFORE_SQLITE = "before", "before_sqlite"
"""An older commit of ours, whose environment must be there before it is asked to take part (older.py)."""
_OLDER = (BEFORE, BEFORE_SQLITE)
older_command: list[str] = []
"""Its interpreter, and the driver that it can run."""

TRIGGERED = {
    OURS: "SELECT count(*) FROM workflow.workflow_run",
    OURS_SQLITE: "SELECT count(*) FROM workflow_run",
    BEFORE: "SELECT count(*) FROM workflow.workflow_run",
    BEFORE_SQLITE: "SELECT count(*) FROM workflow_run",
    "pgqueuer": "SELECT count(*) FROM pgqueuer",
    "procrastinate": "SELECT count(*) FROM procrastinate_jobs",
    "absurd": "SELECT count(*) FROM absurd.t_bench",
    "dbos": "SELECT count(*) FROM dbos.workflow_status",
    DBOS_SQLITE: "SELECT count(*) FROM workflow_status",
    "pgqrs": "SELECT count(*) FROM pgqrs_messages",
    "graphile": "SELECT count(*) FROM graphile_worker._private_jobs",
}
"""How many jobs a database holds before anybody works on them."""

STEPPED = {
    OURS: "SELECT count(*) FROM workflow.workflow_step",
    OURS_SQLITE: "SELECT count(*) FROM workflow_step",
    BEFORE: "SELECT count(*) FROM workflow.workflow_step",
    BEFORE_SQLITE: "SELECT count(*) FROM workflow_step",
    "absurd": "SELECT count(*) FROM absurd.c_bench",
    "dbos": "SELECT count(*) FROM dbos.operation_outputs",
    DBOS_SQLITE: "SELECT count(*) FROM operation_outputs",
    "pgqrs": "SELECT count(*) FROM pgqrs_workflow_steps",
}
"""How many steps are on record."""

UNLOGGED = "SELECT string_agg(relname, ' ') FROM pg_class WHERE relkind IN ('r', 'p') AND relpersistence = 'u'"

Run = dict[str, Any]
left_out: set[str] = set()
"""Who should have taken part in the measure that is under way, and could not."""


class Missing(Exception):
    """A peer is not here and cannot be installed."""


class NotDone(Exception):
    """A driver failed, or its database does not hold what the driver says it did."""


def run(ground: Ground, who: str, command: str, jobs: int, *, workers: int = 1) -> Run:
    """One run on a database of its own; its story with the rate, the processor time and the unlogged tables."""
    install(who)
    with database_of(ground, who) as url:
        filling = jobs if command == "drain" else 0
        drive(who, "prepare", url, *([str(filling)] if filling else []))
        unlogged = None if _file_of(url) else ground.ask(UNLOGGED, url)
        if filling:
            _expect(_count(ground, TRIGGERED[who], url), jobs, f"jobs of {who} before the drain")
            if not _file_of(url):
                ground.tidy(url)
        ground.checkpoint()
        before = ground.processor_seconds()
        words = ["--workers", str(workers)] if workers > 1 else []
        story: Run = json.loads(drive(who, command, url, str(jobs), *words).splitlines()[-1])
        story["server_cpu_seconds"] = round(ground.processor_seconds() - before, 2)
        _verify(ground, who, command, jobs, url, story)
    for moment in ("began", "ended"):
        story.pop(moment, None)  # of the machine's clock: nobody's figure
    story |= {"who": who, "workers": workers, "unlogged_tables": unlogged}
    if "seconds" in story:
        story["rate"] = story["jobs"] / story["seconds"]
    _tell(who, command, story)
    return story


def rounds(
    ground: Ground, command: str, jobs: Mapping[str, int], taking_part: Mapping[str, int], *, workers: int = 1
) -> list[dict[str, Run]]:
    """The stories of each round by name. `taking_part` says in how many rounds; the first named is our neighbour.

    Ours, which opens the first round, runs once before it and is not counted: whoever comes first pays for new log
    files and cold caches, and that is no property of whoever that is."""
    present = {who: times for who, times in taking_part.items() if is_present(who)}
    if OURS in present and present[OURS] > 1 and not ground.quick:
        run(ground, OURS, command, jobs[OURS], workers=workers)
    return [
        {who: run(ground, who, command, jobs[who], workers=workers) for who in order}
        for order in forth_and_back(present)
    ]


def forth_and_back(taking_part: Mapping[str, int]) -> list[list[str]]:
    """Who runs in which order, round by round; everybody is in as many rounds as asked, from the first on."""
    orders = []
    for nth in range(max(taking_part.values(), default=0)):
        everyone = [who for who, times in taking_part.items() if nth < times]
        orders.append(everyone if nth % 2 == 0 else everyone[::-1])
    return orders


def finding(
    found: list[dict[str, Run]],
    peer: str,
    *,
    key: str,
    title: str,
    unit: str,
    figure: str = "rate",
    times: float = 1.0,
    bar: Bar | None = None,
    rivals: Sequence[str] = (),
    ours: str = OURS,
) -> list[Finding]:
    """Ours against one peer over the rounds that have both; nothing when the peer was missing. `rivals`: among whom it
    is the best, so that one of them that is not there is told."""
    pairs = [one for one in found if peer in one and ours in one]
    if not pairs:
        return []
    mine, theirs = ([one[who][figure] * times for one in pairs] for who in (ours, peer))
    detail = {"peer": peer, "runs": [_brief(one[who]) for one in pairs for who in (ours, peer)]}
    absent = absent_from(found, rivals)
    return [replace(paired(key, title, unit, mine, theirs, bar=bar, detail=detail), absent=absent)]


def absent_from(found: list[dict[str, Run]], peers: Sequence[str]) -> tuple[str, ...]:
    return tuple(peer for peer in peers if not any(peer in one for one in found))


def best(
    found: list[dict[str, Run]], peers: Sequence[str], *, figure: str = "rate", lowest: bool = False
) -> str | None:
    """The peer that is nearest to us, or farthest ahead, by the median ratio within a round. `lowest`: less is better.
    None when none of them took part."""
    leads = {
        peer: statistics.median(one[OURS][figure] / one[peer][figure] for one in found if peer in one)
        for peer in peers
        if any(peer in one for one in found)
    }
    if not leads:
        return None
    return max(leads, key=leads.__getitem__) if lowest else min(leads, key=leads.__getitem__)


def is_present(who: str) -> bool:
    """Whether it can take part, installing it if need be. If not, that is said where people see it."""
    try:
        install(who)
    except Missing as missing:
        print(f"note: {missing}; it is left out", file=sys.stderr)
        left_out.add(who)
        return False
    return True


def install(who: str) -> None:
    if who in _OURS or who in _OLDER:
        return
    try:
        make(who, cache_folder())
    except CannotInstall as error:
        raise Missing(f"{who} is not here and cannot be installed ({error})") from error


@contextlib.contextmanager
def database_of(ground: Ground, who: str) -> Iterator[str]:
    if who not in (OURS_SQLITE, BEFORE_SQLITE, DBOS_SQLITE):
        with ground.database() as url:
            yield url
        return
    with tempfile.TemporaryDirectory(prefix="simpleworkflow-bench-") as folder:
        path = Path(folder) / "bench.db"
        yield f"sqlite:///{path}" if who == DBOS_SQLITE else str(path)


def _file_of(url: str) -> str | None:
    """The file of a SQLite database, None for a server's."""
    return None if url.startswith("postgresql:") else url.removeprefix("sqlite:///")


def drive(who: str, *words: str) -> str:
    command, environment = command_of(who, *words)
    done = subprocess.run(command, capture_output=True, text=True, timeout=DRIVER_SECONDS, check=False, env=environment)
    if done.returncode != 0:
        raise NotDone(f"{who} {words[0]} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def command_of(who: str, *words: str) -> tuple[list[str], dict[str, str]]:
    """The command line of a driver, and its environment."""
    environment = dict(os.environ)
    if who in NODE_PINS:
        environment["PEER_FOLDER"] = str(cache_folder() / who)
        return ["node", str(HERE / f"drive_{who}.mjs"), *words], environment
    if who in _OURS:
        if who == OURS_AWAKE:
            environment["BENCH_POLL_EVERY"] = str(AWAKE_SECONDS)
        return [sys.executable, str(HERE / "drive_ours.py"), *words], environment
    if who in _OLDER:
        return [*older_command, *words], environment
    return [str(python_of(who)), str(HERE / f"drive_{who}.py"), *words], environment


def _verify(ground: Ground, who: str, command: str, jobs: int, url: str, story: Run) -> None:
    _expect(story["jobs"], jobs, f"jobs in the story of {who}")
    if command in ("drain", "steps"):
        _expect(story["handlers"], jobs, f"handlers of {who}")
    if command == "steps":
        _expect(_count(ground, STEPPED[who], url), jobs * STEPS, f"steps of {who}")
    if command.startswith("trigger-"):
        _expect(_count(ground, TRIGGERED[who], url), jobs + story["before_the_clock"], f"triggered jobs of {who}")


def _count(ground: Ground, question: str, url: str) -> int:
    path = _file_of(url)
    if path is None:
        return int(ground.ask(question, url))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(question).fetchone()[0])


def _expect(found: int, wanted: int, what: str) -> None:
    if found != wanted:
        raise NotDone(f"{what}: {found} instead of {wanted}")


def _brief(story: Run) -> Run:
    """Without the single samples, which nobody reads."""
    return {name: value for name, value in story.items() if not isinstance(value, list) or len(value) < STEPS}


def _tell(who: str, command: str, story: Run) -> None:
    if "rate" in story:
        said = f"{story['rate']:,.0f}/s"
    else:
        said = f"p50 {story['start_p50_ms']:.2f} ms, p99 {story['start_p99_ms']:.2f} ms"
    crew = f" ({story['workers']} processes)" if story["workers"] > 1 else ""
    print(f"  {command} {who}{crew}: {said}", file=sys.stderr, flush=True)
