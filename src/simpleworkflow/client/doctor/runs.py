"""What a doctor looks at in the work itself: due runs that nobody serves or nobody takes, leases and deadlines that no
sweep has seen, workers that fell silent, and how large it all has grown. `explain` says the same about one run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...model.records import WorkerInfo
from ...store.operations import health, prune
from ...store.operations.health import DueLane, Late
from ...store.operations.prune import PruningState
from .findings import Finding, Level, Look, Sighting, ago, amount, names, size

MOST_TYPES = 10
"""Types that get a finding of their own; the rest share one."""
MOST_SILENT = 100


async def alive(look: Look) -> list[Finding]:
    seen = await look.sightings()
    start = f"simpleworkflow worker MODULE:APP {look.at}"
    if not seen:
        return [Finding("workers", Level.NOTE, "no worker is alive", start)]
    living = [one for one in seen if not one.is_doubtful]
    doubtful = names([_sighted(look, one) for one in seen if one.is_doubtful])
    if not living:
        return [Finding("workers", Level.WARNING, f"no worker is surely alive: {doubtful}", start)]
    told = f"{amount(len(living), 'worker')} alive: {names([_sighted(look, one) for one in living])}"
    if not any(one.expired for one in seen):
        return [Finding("workers", Level.OK, told)]
    fix = "look whether its process still runs, and into its log; live workers take over what it held"
    return [Finding("workers", Level.WARNING, f"{told}; not surely: {doubtful}" if doubtful else told, fix)]


def _sighted(look: Look, one: Sighting) -> str:
    """A worker by its name, and whatever speaks against its being alive."""
    against = [f"last seen {ago(one.ago)} ago"] if one.ago > look.limits.beat or one.expired else []
    against += [f"{amount(one.expired, 'lease', look.limits.counted)} ran out"] if one.expired else []
    return f"{one.worker.name} on {one.worker.host}" + (f" ({', '.join(against)})" if against else "")


async def silent(look: Look) -> list[Finding]:
    """Workers that stopped being seen without a goodbye; their rows stay for a week."""
    gone = await look.ask(health.silent_workers(silence=look.settings.worker_silence, limit=MOST_SILENT))
    if not gone:
        return [Finding("silent-workers", Level.OK, "none went without a goodbye in the last 7 days")]
    told = names([f"{one.name} on {one.host} (pid {one.pid}, {ago(one.silent)} ago)" for one in gone], 3)
    seen = f"{amount(len(gone), 'worker', MOST_SILENT)} stopped being seen without a goodbye: {told}"
    level = Level.WARNING if gone[0].silent < look.limits.fresh_silence else Level.NOTE
    fix = "look into the log of that host for what killed it (out of memory?); " + (
        "live workers take back its runs when their leases end"
        if await look.alive()
        else f"nobody is alive to take back its runs: simpleworkflow worker MODULE:APP {look.at}"
    )
    return [Finding("silent-workers", level, seen, fix)]


class _Backlog:
    """The due runs of one type, all priorities together."""

    def __init__(self, lanes: Sequence[DueLane], limit: int) -> None:
        first = max(lanes, key=lambda lane: lane.late)
        self.type = first.type
        self.late = first.late
        self.run_id = first.run_id
        self.is_enabled = all(lane.is_enabled for lane in lanes)
        due = sum(lane.due for lane in lanes)
        some = any(lane.due >= limit for lane in lanes)
        self.due = f"{due:,} or more runs" if some else amount(due, "run")


async def _backlogs(look: Look) -> list[_Backlog]:
    by_type: dict[str, list[DueLane]] = defaultdict(list)
    for lane in await look.ask(health.due_lanes(limit=look.limits.counted)):
        by_type[lane.type].append(lane)
    return [_Backlog(lanes, look.limits.counted) for _, lanes in sorted(by_type.items())]


def _serving(crew: Sequence[WorkerInfo], type: str) -> list[str]:
    return [one.name for one in crew if one.serves(type)]


def _few(found: list[Finding]) -> list[Finding]:
    """The worst ones, and the rest by their names."""
    found.sort(key=lambda one: one.level is not Level.PROBLEM)
    rest = found[MOST_TYPES:]
    if not rest:
        return found
    told = names([one.subject or "" for one in rest], MOST_TYPES)
    return [*found[:MOST_TYPES], Finding(rest[0].check, rest[0].level, f"the same for {told}", rest[0].fix)]


async def _failing(look: Look) -> list[Finding]:
    """Lanes whose claims the database refuses: one row there can stop a whole type. Of interest only then."""
    failing = await look.ask(health.failing_claims(silence=look.settings.worker_silence))
    if not failing:
        return []
    first = {(lane.type, lane.priority): lane.run_id for lane in await look.ask(health.due_lanes(limit=1))}
    found: dict[tuple[str, int], Finding] = {}
    for one in failing:
        lane = (one.type, one.priority)
        seen = f"{one.worker} cannot claim runs of {one.type}, priority {one.priority}, for {ago(one.seconds)}"
        fix = f"find the row that the database refuses: simpleworkflow runs list --type {one.type} {look.at}"
        if (culprit := first.get(lane)) is not None:
            fix = (
                "most likely it is the first due run: hold it, see whether the others go on, then mend its row: "
                f"simpleworkflow runs hold {culprit} {look.at}"
            )
        found.setdefault(lane, Finding("failing-claims", Level.PROBLEM, f"{seen}: {one.error}", fix, one.type))
    return _few(list(found.values()))


async def unserved(look: Look) -> list[Finding]:
    """Due runs that wait for a worker which is not there, or for claims that the database refuses."""
    crew = await look.alive()
    living = names([one.name for one in crew]) or "none"
    found = []
    for backlog in await _backlogs(look):
        if not backlog.is_enabled:
            seen = f"{backlog.type} is disabled: {backlog.due} due for up to {ago(backlog.late)}"
            fix = f"when it may go on: app.definitions.enable({backlog.type!r})"
            found.append(Finding("unserved-types", Level.NOTE, seen, fix, subject=backlog.type))
        elif not _serving(crew, backlog.type):
            seen = (
                f"no live worker serves {backlog.type}: {backlog.due} due for up to "
                f"{ago(backlog.late)} (alive: {living})"
            )
            fix = f"start a worker whose App has it, inside its prefixes: simpleworkflow worker MODULE:APP {look.at}"
            found.append(Finding("unserved-types", Level.PROBLEM, seen, fix, subject=backlog.type))
    well = [Finding("unserved-types", Level.OK, "no due run waits for a worker that is not there")]
    return [*(_few(found) or well), *await _failing(look)]


async def overdue(look: Look) -> list[Finding]:
    """Due for long although a worker serves them: workers are full, starved by more urgent runs, or stuck."""
    crew = await look.alive()
    limit = max(look.limits.overdue, 10 * look.settings.poll_every)
    found = []
    for backlog in await _backlogs(look):
        serving = _serving(crew, backlog.type)
        if backlog.late > limit and serving and backlog.is_enabled:
            seen = (
                f"{backlog.due} of {backlog.type} due for up to {ago(backlog.late)}, although "
                f"{names(serving, 3)} {'serves' if len(serving) == 1 else 'serve'} it"
            )
            fix = (
                f"simpleworkflow explain {backlog.run_id} {look.at} says why that one waits; "
                "when its workers are full, start more of them or raise --concurrency"
            )
            found.append(Finding("overdue-runs", Level.WARNING, seen, fix, subject=backlog.type))
    return _few(found) or [
        Finding("overdue-runs", Level.OK, f"no served run has been due for longer than {ago(limit)}")
    ]


def _sweepers(look: Look, crew: Sequence[WorkerInfo]) -> tuple[Level, str]:
    """What it means that a sweep has not come: nobody is there to sweep, or somebody who does not."""
    if not crew:
        fix = f"start a worker, any one sweeps for all: simpleworkflow worker MODULE:APP {look.at}"
        return Level.PROBLEM, fix
    return Level.WARNING, "look into the logs of the live workers (simpleworkflow.sweep), and restart them"


def _grace(look: Look) -> float:
    """A sweep may be late once, after an outage."""
    return 3 * look.settings.sweep_every + 1.0


async def leases(look: Look) -> list[Finding]:
    late = await look.ask(health.expired_leases(grace=_grace(look), limit=look.limits.counted))
    if not late:
        return [Finding("expired-leases", Level.OK, "every lease that ran out has been taken back")]
    level, fix = _sweepers(look, await look.alive())
    runs = amount(sum(one.runs for one in late), "lease", look.limits.counted)
    holders = names([_holder(look, one.what, await look.last_seen()) for one in late], 3)
    seen = f"{runs} of {holders} ran out, the oldest {_oldest(late)} ago, and no worker has taken the runs back"
    return [Finding("expired-leases", level, seen, fix)]


def _holder(look: Look, id: str, last_seen: dict[str, float]) -> str:
    silent = last_seen.get(id, 0.0)
    return id.partition("@")[0] + (f" (last seen {ago(silent)} ago)" if silent > look.limits.beat else "")


async def deadlines(look: Look) -> list[Finding]:
    late = await look.ask(health.missed_deadlines(grace=_grace(look), limit=look.limits.counted))
    if not late:
        return [Finding("deadlines", Level.OK, "no open run is past its deadline")]
    level, fix = _sweepers(look, await look.alive())
    runs = amount(sum(one.runs for one in late), "open run", look.limits.counted)
    seen = f"{runs} should have timed out, the oldest {_oldest(late)} ago"
    return [Finding("deadlines", level, seen, fix)]


def _oldest(late: Sequence[Late]) -> str:
    return ago(max(one.late for one in late))


async def held(look: Look) -> list[Finding]:
    told = await look.ask(health.held(limit=look.limits.looked_at))
    among = f" among the newest {told.looked:,} runs" if told.looked >= look.limits.looked_at else ""
    if not told.runs:
        return [Finding("held-runs", Level.OK, f"none{among}")]
    since = ago(told.oldest or 0.0)
    seen = f"{amount(told.runs, 'run')} held by an operator or out of attempts{among}, the oldest for {since}"
    fix = f"simpleworkflow runs list --held {look.at}; when its cause is mended: simpleworkflow runs resume RUN"
    if not told.misfits:
        return [Finding("held-runs", Level.NOTE, seen, fix)]
    seen = f"{amount(told.runs, 'run')} held{among}, the oldest for {since}; {told.misfits} of them because what is on "
    seen += "record does not fit the code: a renamed step, or data that it cannot read"
    fix += "; if a step is new and not renamed: simpleworkflow runs resume --run-new RUN"
    return [Finding("held-runs", Level.WARNING, seen, fix)]


async def crashed(look: Look) -> list[Finding]:
    by_type = await look.ask(health.crashed(limit=look.limits.counted))
    if not by_type:
        return [Finding("crashed-runs", Level.OK, "no waiting run has taken its worker down")]
    told = names([f"{type} ({count:,})" for type, count in by_type.items()])
    total = amount(sum(by_type.values()), "waiting run", look.limits.counted)
    seen = f"{total} took a worker down before and will run alone: {told}"
    fix = "look into the workers' logs; a run that crashes again and again ends failed when its attempts are spent"
    return [Finding("crashed-runs", Level.NOTE, seen, fix)]


async def sizes(look: Look) -> list[Finding]:
    """How much there is, and whether somebody removes what is old."""
    seen, finished = await _measured(look)
    told, fix = _retention(look, await look.ask(prune.pruning_state()), finished)
    return [Finding("size", Level.NOTE, seen + told, fix)]


def _retention(look: Look, passes: Sequence[PruningState], finished: int) -> tuple[str, str | None]:
    """Pruning is off until configured, and nobody notices for a year; nor when the last worker that did it is gone."""
    if passes:
        ended = min((one for one in passes if one.ended is not None), key=lambda one: one.ended or 0.0, default=None)
        last = "the first pass is under way"
        if ended is not None:
            removed = amount(ended.last_removed, "run")
            last = f"the last pass ended {ago(ended.ended or 0.0)} ago and removed {removed}"
        late = min(one.late for one in passes)
        if late <= look.limits.prune_late:
            return f"; workers prune: {last}", None
        last = "the first pass was never finished" if ended is None else last
        stopped = f"; pruning has stopped: {last}, and no worker has gone on for {ago(late)}"
        return stopped, "start a worker whose App says keep=, or call simpleworkflow prune from a cron job"
    if finished < look.limits.finished_runs:
        return "", None
    fix = (
        f"see what is old: simpleworkflow prune --older-than '30 days' --dry-run {look.at}; without --dry-run it goes. "
        'Workers do so by themselves when their App says so: swf.App(keep=[swf.Retention("*", "30 days")])'
    )
    return "; pruning is off: finished runs stay for ever", fix


async def _measured(look: Look) -> tuple[str, int]:
    """The sizes in words, and about how many runs have finished."""
    look.need("workflow_run")
    tables = {one.name: one for one in await look.ask(health.tables())}
    if tables:
        runs = tables["workflow_run"]
        finished = "" if runs.finished is None else f", about {runs.finished:,} of them finished"
        large = sorted((one for one in tables.values()), key=lambda one: -one.bytes)[:3]
        told = ", ".join(f"{one.name} {size(one.bytes)}" for one in large)
        total = size(sum(one.bytes for one in tables.values()))
        count = max(runs.estimated, runs.live)
        ended = count if runs.finished is None else runs.finished
        return f"about {amount(count, 'run')}{finished}; {total} ({told})", ended
    file = await look.ask(health.file_facts())
    ever = await look.ask(health.rows_ever())
    assert file is not None
    free = f", {size(file.free)} of it free for reuse" if file.free else ""
    told = ", ".join(f"{amount(count, 'row')} in {name}" for name, count in ever.items())
    return f"{size(file.bytes)}{free}: up to {told}", ever.get("workflow_run", 0)
