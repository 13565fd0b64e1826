"""What a doctor looks at in the database itself: version, durability, clock, room, hints, and on PostgreSQL vacuum and
what holds it back. A table of runs is rewritten all day long; where dead rows stay, claims get slower hour by hour, and
the cause is nearly always a session that somebody forgot.
"""

from __future__ import annotations

import asyncio

from ...clock import monotonic, new_id, to_micros
from ...model.install import UPGRADE
from ...store.operations import health
from ...store.operations.health import Blocker, ServerFacts, TableHealth
from .findings import Finding, Level, Limits, Look, ago, amount, size

OLDEST, NEWEST = 15, 18
"""The major versions of PostgreSQL that the tests run on."""
CLOCK_LOOKS = 3
HINT_EVERY = 0.05


async def _facts(look: Look) -> ServerFacts:
    facts = await look.ask(health.server())
    assert facts is not None
    return facts


async def version(look: Look) -> list[Finding]:
    facts = await _facts(look)
    major = facts.version_number // 10_000
    if major < OLDEST:
        seen = f"PostgreSQL {facts.version} is too old; {OLDEST} to {NEWEST} are supported"
        return [Finding("version", Level.PROBLEM, seen, f"upgrade the server to PostgreSQL {NEWEST}")]
    if major > NEWEST:
        seen = f"PostgreSQL {facts.version} is newer than this version of simpleworkflow knows ({NEWEST})"
        return [Finding("version", Level.NOTE, seen, UPGRADE)]
    return [Finding("version", Level.OK, f"PostgreSQL {facts.version}")]


async def durability(look: Look) -> list[Finding]:
    """Whether a run that was accepted survives a loss of power. Asked where writes are made."""
    settings = [one for one in await look.ask(health.durability()) if one.name in health.SAFE]
    found = [
        Finding(
            "durability",
            Level.PROBLEM,
            f"{one.name} is {one.value}: a loss of power may take accepted runs along",
            f"{one.cure or 'use a file on a local disk, opened by simpleworkflow alone'}; then restart the workers",
            subject=one.name,
        )
        for one in settings
        if health.unsafe(one.name, one.value)
    ]
    facts = await look.ask(health.server())
    lagging = [] if facts is None else judge_standbys(facts)
    told = ", ".join(f"{one.name} {one.value}" for one in settings)
    return (found or [Finding("durability", Level.OK, told)]) + lagging


def judge_standbys(facts: ServerFacts) -> list[Finding]:
    if not facts.lagging:
        return []
    seen = f"no commit waits for the {amount(facts.lagging, 'standby')}: acknowledged runs may be lost in a failover"
    fix = "if one of them may take over: ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)', then reload"
    return [Finding("durability", Level.NOTE, seen, fix, subject="standby")]


async def clock(look: Look) -> list[Finding]:
    """How far the server's clock is from this host's; of a few looks the one that was answered quickest."""
    best: tuple[int, int] | None = None
    for _ in range(CLOCK_LOOKS):
        sent = look.clock.wall()
        started = monotonic()
        there = await look.ask(health.server_clock())
        trip = round((monotonic() - started) * 1e6)
        if there is None:
            return [Finding("clock", Level.OK, "the host's clock is the database's")]
        if best is None or trip < best[0]:
            best = trip, to_micros(there) - (sent + trip // 2)
    assert best is not None
    return [judge_clock(best[1] / 1e6, best[0] / 2e6, look.limits)]


def judge_clock(skew: float, unsure: float, limits: Limits) -> Finding:
    """A skew that the round trip could explain is none."""
    certain = max(abs(skew) - unsure, 0.0)
    which = "ahead of" if skew > 0 else "behind"
    seen = f"the server's clock is {ago(abs(skew))} {which} this host's (± {ago(unsure)})"
    fix = "let both hosts keep time: chronyc tracking, timedatectl status; the server's clock decides when runs are due"
    if certain > limits.skew_problem:
        return Finding("clock", Level.PROBLEM, seen, fix)
    if certain > limits.skew_warning:
        return Finding("clock", Level.WARNING, seen, fix)
    return Finding("clock", Level.OK, f"the server's clock and this host's agree within {ago(abs(skew) + unsure)}")


async def connections(look: Look) -> list[Finding]:
    """How much room is left; an App takes up to 8 connections, a worker as many again and a few more."""
    uses = await look.ask(health.connections())
    found = []
    for use in uses:
        left = use.allowed - use.used
        if left < look.limits.connections_left:
            fix = "raise max_connections and restart the server, end idle sessions, or put a pooler in between"
            if use.scope != "server":
                fix = f"ALTER {use.scope.upper()} … CONNECTION LIMIT -1, or a higher one"
            seen = f"{use.used} of {use.allowed} connections of the {use.scope} are taken: {max(left, 0)} left"
            found.append(Finding("connections", Level.WARNING, seen, fix, subject=use.scope))
    told = ", ".join(f"{use.used} of {use.allowed} of the {use.scope}" for use in uses)
    return found or [Finding("connections", Level.OK, f"{told} are taken")]


async def hints(look: Look) -> list[Finding]:
    """Whether a hint that we send comes back to a listener of ours; without them, work is found by polling."""
    poll = ago(look.settings.poll_every)
    if look.ledger.url.pgbouncer:
        seen = f"there is no LISTEN behind ?pgbouncer=true: work is found by polling every {poll}"
        return [Finding("hints", Level.NOTE, seen, "use a direct connection where you can have one")]
    heard = asyncio.Event()
    word = f"doctor-{new_id()}"  # a word that means nothing to anybody else's listener
    listener = asyncio.ensure_future(look.ledger.listen(lambda kind: heard.set() if kind == word else None))
    started = monotonic()
    try:
        while not heard.is_set() and monotonic() - started < look.limits.hint:
            await look.ledger.hint(word)
            await asyncio.wait({waiting := asyncio.ensure_future(heard.wait())}, timeout=HINT_EVERY)
            waiting.cancel()
    finally:
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)
    if heard.is_set():
        return [Finding("hints", Level.OK, f"a hint arrived within {(monotonic() - started) * 1000:.0f} ms")]
    seen = f"no hint arrived within {ago(look.limits.hint)}; work is still found by polling every {poll}"
    fix = "if the URL leads to PgBouncer or another transaction pooler, add ?pgbouncer=true to it, or connect directly"
    return [Finding("hints", Level.WARNING, seen, fix)]


async def snapshots(look: Look) -> list[Finding]:
    """Who keeps vacuum from its work: old transactions, prepared ones, slots that nobody reads."""
    limits = look.limits
    older = min(limits.idle_transaction, limits.long_transaction)
    found = [judge_blocker(one, limits) for one in await look.ask(health.blockers(older=older))]
    told = [one for one in found if one is not None]
    if not any(one.level is not Level.NOTE for one in told):
        told.append(Finding("snapshots", Level.OK, f"nothing older than {ago(older)} holds vacuum back"))
    return told


def judge_blocker(one: Blocker, limits: Limits) -> Finding | None:
    if one.kind == "hidden":
        seen = f"{amount(one.xids, 'session')} of other roles cannot be looked at"
        return Finding("snapshots", Level.NOTE, seen, f"as a superuser: {one.cure}")
    fix = f"end it: {one.cure}"
    if one.kind == "replication slot":
        if one.bytes < limits.slot_bytes and one.xids < limits.held_back_xids:
            return None
        seen = f"replication slot {one.who} has no reader and keeps {size(one.bytes)} of log"
        held = f" and the dead rows of {one.xids:,} transactions" if one.xids else ""
        return Finding("snapshots", Level.WARNING, seen + held, fix, subject=one.who)
    seconds = one.seconds or 0.0
    if one.kind == "long transaction" and seconds < limits.long_transaction:
        return None
    who = one.who if one.pid is None else f"{one.who} (pid {one.pid})"
    told = {
        "idle in transaction": f"{who} is idle in a transaction since {ago(seconds)}",
        "long transaction": f"a transaction of {who} is under way since {ago(seconds)}",
        "prepared transaction": f"prepared transaction {who} waits since {ago(seconds)}",
    }[one.kind]
    level = Level.PROBLEM if seconds >= limits.old_transaction or one.xids >= limits.held_back_xids else Level.WARNING
    seen = f"{told}: dead rows of the last {one.xids:,} transactions stay, and its locks with them"
    return Finding("snapshots", level, seen, fix, subject=one.who if one.pid is None else str(one.pid))


async def wraparound(look: Look) -> list[Finding]:
    return [judge_age(await _facts(look), look.limits)]


def judge_age(facts: ServerFacts, limits: Limits) -> Finding:
    """At two thousand million transactions without freezing PostgreSQL takes no more writes."""
    age = max(facts.xids, facts.multixacts)
    seen = f"the oldest unfrozen row is {age:,} transactions old; the server stops taking writes at 2,000,000,000"
    if age < limits.xids_warning:
        return Finding("wraparound", Level.OK, f"the oldest unfrozen row is {age:,} transactions old")
    level = Level.PROBLEM if age >= limits.xids_problem else Level.WARNING
    fix = f"vacuumdb --freeze {facts.database}; if that does not help, end what holds vacuum back (snapshots)"
    return Finding("wraparound", level, seen, fix)


async def vacuum(look: Look) -> list[Finding]:
    facts = await _facts(look)
    found = []
    if not facts.vacuums:
        seen = "autovacuum is off for the whole server: dead rows pile up and claims get slower by the hour"
        fix = "ALTER SYSTEM SET autovacuum = on, ALTER SYSTEM SET track_counts = on, then reload: pg_ctl reload"
        found.append(Finding("vacuum", Level.PROBLEM, seen, fix))
    tables = await look.ask(health.tables())
    for table in tables:
        found += judge_table(table, look.limits)
    dead = sum(table.dead for table in tables)
    return found or [Finding("vacuum", Level.OK, f"autovacuum is on; {amount(dead, 'dead row')} in our tables")]


def judge_table(table: TableHealth, limits: Limits) -> list[Finding]:
    found = []
    if not table.vacuums:
        seen = f"autovacuum is off for {table.name}, which has {amount(table.dead, 'dead row')}"
        found.append(Finding("vacuum", Level.PROBLEM, seen, table.cure, subject=table.name))
    if table.dead > max(limits.dead_rows, limits.dead_factor * table.dead_allowed):
        last = "never" if table.vacuumed_ago is None else f"{ago(table.vacuumed_ago)} ago"
        seen = (
            f"{table.name} has {amount(table.dead, 'dead row')} beside {table.live:,} live ones; autovacuum should "
            f"have come at {table.dead_allowed:,}, and the last vacuum was {last}"
        )
        fix = f"{table.vacuum}; when they stay, end what holds vacuum back (snapshots)"
        found.append(Finding("vacuum", Level.WARNING, seen, fix, subject=table.name))
    return found
