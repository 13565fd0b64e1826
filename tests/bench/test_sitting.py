"""Latency in turns: what counts, what a sitting says, and that whoever waits is really stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from judging import OURS, Bar
from peers import sitting
from peers.driving import NotDone
from peers.sitting import BLOCK, WAKING, Sitting
from support.processes import is_alive, state_of
from support.waiting import until


def test_the_first_samples_of_a_turn_do_not_count() -> None:
    samples = [float(number) for number in range(2 * BLOCK)]
    first, second = sitting.blocks_of(samples)
    assert first == samples[WAKING:BLOCK]
    assert second == samples[BLOCK + WAKING :]


def test_a_sitting_compares_blocks_that_were_neighbours() -> None:
    """The machine got ten times slower half way: no ratio knows."""
    slowing = Sitting({OURS: [[2.0], [2.0], [20.0]], "peer": [[1.0], [1.0], [10.0]]}, {}, {})
    assert slowing.ratio(OURS, "peer") == 2.0


def test_a_sitting_is_one_value_however_many_turns_it_had() -> None:
    free = {OURS: 0.0, "peer": 0.0}
    one, other = (Sitting({OURS: [[2.0]] * turns, "peer": [[1.0]] * turns}, free, free) for turns in (2, 9))
    found = sitting.sitting_finding([one, other], OURS, "peer", key="key", title="title", bar=Bar(at_most=3))
    assert found.values == (2.0, 2.0)
    assert (found.ours, found.theirs, found.detail["samples"]) == (2.0, 1.0, {OURS: 11, "peer": 11})
    assert found.verdict == "inconclusive"  # two values are none


class OneDatabase:
    """A ground with one database that exists already."""

    def __init__(self, url: str) -> None:
        self._url = url

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        yield self._url

    def checkpoint(self) -> None:
        pass

    def processor_seconds(self) -> float:
        return 0.0


def worker_of(driver: int) -> int:
    """The process that a driver has started."""
    return int(Path(f"/proc/{driver}/task/{driver}/children").read_text())


def test_a_worker_that_waits_for_its_turn_is_stopped_and_counts_all_its_samples(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops = 0
    real = sitting._Player._await_rest

    def and_look(self: Any) -> None:
        nonlocal stops
        real(self)
        if self._story is None:
            until(lambda: state_of(worker_of(self._process.pid)) == "T", "its worker is stopped")
            stops += 1

    monkeypatch.setattr(sitting._Player, "_await_rest", and_look)
    ground: Any = OneDatabase(postgres_url)
    found = sitting.sit(ground, [OURS], turns=2)
    assert stops == 2  # before the first turn, and between the two
    assert [len(block) for block in found.blocks[OURS]] == [BLOCK - WAKING] * 2
    assert all(0 < sample < 30_000 for sample in found.samples(OURS))


def test_a_driver_that_fails_is_told_with_its_own_words(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [sys.executable, "-c", "raise SystemExit('no luck today')"]
    monkeypatch.setattr(sitting, "command_of", lambda *_: (failing, dict(os.environ)))
    ground: Any = OneDatabase(postgres_url)
    with pytest.raises(NotDone, match="ours latency ended with 1: no luck today"):
        sitting.sit(ground, [OURS], turns=1)


def test_a_driver_whose_table_is_left_goes_home_with_its_worker(postgres_url: str) -> None:
    sitting.drive(OURS, "prepare", postgres_url)
    command, environment = sitting.command_of(OURS, "latency", postgres_url, str(BLOCK), "--block", str(BLOCK))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "resting\n"
        worker = worker_of(driver.pid)
        _, complaints = driver.communicate(timeout=60)
    assert "nobody is there who would give turns" in complaints
    until(lambda: not is_alive(worker), "its worker is gone")


@pytest.mark.slow
@pytest.mark.parametrize("death", ["of the driver", "of nobody: it hangs"])
def test_no_stopped_worker_stays_behind(postgres_url: str, monkeypatch: pytest.MonkeyPatch, death: str) -> None:
    """A process that is stopped does not see that everybody else has gone."""
    workers: list[int] = []
    real = sitting._Player.take_turn

    def and_die(self: Any) -> None:
        workers.append(worker_of(self._process.pid))
        monkeypatch.setattr(sitting, "TURN_SECONDS", 5.0)  # not before: a driver may take its time to be ready
        if death == "of the driver":
            self._process.kill()
        else:
            self._process.send_signal(signal.SIGSTOP)
        real(self)

    monkeypatch.setattr(sitting._Player, "take_turn", and_die)
    ground: Any = OneDatabase(postgres_url)
    with pytest.raises(NotDone, match="ours latency ended with -9"):
        sitting.sit(ground, [OURS], turns=1)
    until(lambda: not is_alive(workers[0]), "its worker is gone")
