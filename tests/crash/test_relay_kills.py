"""Dispatchers that are killed and frozen, as real processes: nothing is lost, first deliveries are in order per run,
and what arrives twice was published and not yet marked.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from support.ledger import Raw
from support.outbox import put, statuses
from support.waiting import until

from simpleworkflow.clock import new_id
from simpleworkflow.store import Ledger

HERE = Path(__file__).parent
POINTS = ("before publish", "amid publish", "after publish", "before mark", "after mark")


class Dispatchers:
    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.witness = folder / "delivered.txt"
        self._log = folder / "relays.log"
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(HERE / "relay_app.py"), self.url, str(self.witness)]
        with self._log.open("ab") as log:
            one = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
        self._started.append(one)
        return one

    def delivered(self) -> list[tuple[UUID, int, int]]:
        """Run, number and process of every delivery, in order."""
        if not self.witness.exists():
            return []
        lines = [line.split() for line in self.witness.read_text().splitlines()]
        return [(UUID(run_id), int(sequence), int(pid)) for run_id, sequence, pid in lines]

    def close(self) -> None:
        for one in self._started:
            if one.poll() is None:
                one.kill()
            one.wait()


@pytest.fixture
def dispatchers(url: str, ledger: Ledger, tmp_path: Path) -> Iterator[Dispatchers]:
    crew = Dispatchers(url, tmp_path)
    yield crew
    crew.close()


def check_order(delivered: list[tuple[UUID, int, int]]) -> None:
    """First deliveries of each run come as 1, 2, 3, …"""
    last: dict[UUID, int] = defaultdict(int)
    for run_id, sequence, _ in delivered:
        assert sequence <= last[run_id] + 1, f"event {sequence} of {run_id} came before event {last[run_id] + 1}"
        last[run_id] = max(last[run_id], sequence)


@pytest.mark.parametrize("point", POINTS)
def test_a_dispatcher_killed_anywhere_loses_nothing(dispatchers: Dispatchers, raw: Raw, point: str) -> None:
    runs = [UUID(int=(1 << 64) + lane) for lane in range(4)]  # a lane each, so that one batch holds them all
    for run_id in runs:
        put(raw, run_id, 3)
    victim = dispatchers.start(RELAY_POINT=point)
    assert victim.wait(20) == -signal.SIGKILL
    dispatchers.start()
    until(lambda: all(statuses(raw, run_id) == ["published"] * 3 for run_id in runs), "all are published and marked")
    delivered = dispatchers.delivered()
    check_order(delivered)
    times = Counter((run_id, sequence) for run_id, sequence, _ in delivered)
    assert set(times) == {(run_id, sequence) for run_id in runs for sequence in (1, 2, 3)}
    twice = sum(times.values()) - len(times)
    expected = {"before publish": 0, "amid publish": 1, "after publish": 12, "before mark": 12, "after mark": 0}
    assert twice == expected[point]


def test_a_frozen_dispatcher_wakes_up_and_marks_nothing(dispatchers: Dispatchers, raw: Raw) -> None:
    run_id = new_id()
    put(raw, run_id, 20)
    frozen = dispatchers.start(RELAY_LEASE="1", RELAY_PACE="0.05", RELAY_BATCH="800")
    until(lambda: len(dispatchers.delivered()) >= 3, "it is in the middle of a batch")
    os.kill(frozen.pid, signal.SIGSTOP)
    heir = dispatchers.start(RELAY_LEASE="1")
    until(lambda: statuses(raw, run_id) == ["published"] * 20, "the heir has published and marked everything")
    marked = raw.sql("SELECT id, published_at, attempt FROM workflow.outbox_event ORDER BY id")
    os.kill(frozen.pid, signal.SIGCONT)
    until(lambda: sum(pid == frozen.pid for _, _, pid in dispatchers.delivered()) == 20, "it goes on with its batch")
    log = dispatchers.witness.parent / "relays.log"
    until(lambda: "have gone to another dispatcher; nothing was marked" in log.read_text(), "it has noticed")
    assert raw.sql("SELECT id, published_at, attempt FROM workflow.outbox_event ORDER BY id") == marked
    heir.send_signal(signal.SIGTERM)
    assert heir.wait(10) == 0
    check_order(dispatchers.delivered())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_events_survive_fifty_kills(
    dispatchers: Dispatchers, raw: Raw, figure: Callable[[str, float], None]
) -> None:
    """Three dispatchers, one of them killed at a random moment, again and again, while events keep coming."""
    chance = random.Random(50)
    runs = [new_id() for _ in range(500)]
    next_number: dict[UUID, int] = defaultdict(lambda: 1)

    def feed(count: int) -> None:
        raw.sql("BEGIN")
        for _ in range(count):
            run_id = chance.choice(runs)
            put(raw, run_id, 1, start=next_number[run_id])
            next_number[run_id] += 1
        raw.sql("COMMIT")

    began = time.monotonic()
    crew = [dispatchers.start(RELAY_PACE="0.002") for _ in range(3)]
    kills = 0
    while kills < 50:
        feed(200)
        seen = len(dispatchers.delivered())
        until(lambda seen=seen: len(dispatchers.delivered()) > seen + chance.randrange(150), "deliveries go on", 60)
        victim = crew.pop(chance.randrange(len(crew)))
        victim.kill()
        victim.wait()
        kills += 1
        crew.append(dispatchers.start(RELAY_PACE="0.002"))
    total = 50 * 200
    wanted = "SELECT count(*) AS n FROM workflow.outbox_event WHERE status = 'published'"
    until(lambda: raw.sql(wanted)[0]["n"] == total, "everything is published", 120)
    seconds = time.monotonic() - began
    for one in crew:
        one.send_signal(signal.SIGTERM)
        assert one.wait(20) == 0
    delivered = dispatchers.delivered()
    check_order(delivered)
    times = Counter((run_id, sequence) for run_id, sequence, _ in delivered)
    expected = {(run_id, number) for run_id, count in next_number.items() for number in range(1, count)}
    assert set(times) == expected, "none lost"
    assert len(expected) == total
    duplicates = sum(times.values()) - total
    assert duplicates <= kills * 50, "no more than one batch per kill"
    figure("relay events delivered", len(expected))
    figure("relay events lost", len(expected - set(times)))
    figure("relay kills", kills)
    figure("relay duplicates", duplicates)
    figure("relay seconds", seconds)
