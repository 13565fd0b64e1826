"""60,000 slots, five worker processes that are killed again and again: every slot is started exactly once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from support.crew import Watched
from support.ledger import Raw
from support.schedules import move

SCHEDULES, BACKLOG = 50, 1200
WORKERS = 5
SLOTS_PER_KILL = 1500

Figure = Callable[[str, float], None]


def killed_now_and_then(watched: Watched, fired: Callable[[], int], over: Callable[[], object]) -> int:
    """Kill workers at work, each replaced at once, one for so many slots, until it is over; how many were killed."""
    crew, chance, kills = watched.crew, random.Random(6), 0
    alive = [crew.start() for _ in range(WORKERS)]
    while not over():
        enough = fired() + SLOTS_PER_KILL
        crew.until(lambda enough=enough: fired() >= enough or over(), "slots are started", 60.0)  # type: ignore[misc]
        ready = [
            one for one in alive if "is ready" in (crew.folder / f"worker-{crew.workers.index(one)}.log").read_text()
        ]
        for victim in chance.sample(ready, min(1, len(ready))):
            victim.kill()
            alive.remove(victim)
            alive.append(crew.start())
            kills += 1
    for worker in alive:
        worker.kill()
        worker.wait()
    return kills


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_of_60_000_slots_is_started_once_by_five_workers_under_kills(watched: Watched, figure: Figure) -> None:
    """Without the index on idempotency keys: nothing but the compare-and-set keeps a slot from being started twice.
    Nobody serves the type: it is the slots that are put to the test."""
    app = watched.app
    names = [f"tick-{n}" for n in range(SCHEDULES)]
    watched.crew.settings["CRASH_SLOTS"] = "100"
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=BACKLOG)
    for name in names:
        app.sync.schedules.put(name, "nobody.tick.v1", every="1s", catch_up="all")
    raw = Raw(watched.crew.url)
    raw.sql("DROP INDEX workflow.workflow_run_idempotency")
    for name in names:
        move(raw, start, name)
    caught_up = start + timedelta(seconds=BACKLOG)
    began = time.monotonic()

    def over() -> bool:
        return all(one.next_at is not None and one.next_at > caught_up for one in app.sync.schedules.all())

    def fired() -> int:
        return sum(one.fired for one in app.sync.schedules.all())

    kills = killed_now_and_then(watched, fired, over)
    seconds = time.monotonic() - began
    wanted: Counter[str] = Counter()
    for one in app.sync.schedules.all():
        assert one.next_at is not None
        slots = round((one.next_at - start).total_seconds())
        wanted.update(f"schedule:{one.name}:{start + timedelta(seconds=n):%Y-%m-%dT%H:%M:%S}Z" for n in range(slots))
        assert (one.fired, one.skipped) == (slots, 0)
    text = "SELECT idempotency_key AS slot FROM workflow.workflow_run WHERE idempotency_key LIKE 'schedule:%'"
    started = Counter(row["slot"] for row in raw.sql(text))
    raw.close()
    figure("schedule_slots", wanted.total())
    figure("schedule_slots_missing", (wanted - started).total())
    figure("schedule_slots_twice", (started - wanted).total())
    figure("schedule_kills", kills)
    figure("schedule_seconds", seconds)
    assert wanted.total() >= SCHEDULES * BACKLOG
    assert started == wanted
    assert kills >= 20
