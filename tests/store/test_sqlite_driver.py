"""The SQLite driver: many processes on one file, no lock error that gets out, a log that does not grow for ever.

Every process here is a real one, started by spawn, because locks between threads and locks between processes are
different things. Nothing is asserted about speed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from support.ledger import Raw, claim, create, get, leased, new, offer, retried, settle, succeeded
from support.waiting import eventually

from simpleworkflow.clock import ManualClock
from simpleworkflow.model.errors import StoreError, StoreUnavailable
from simpleworkflow.model.moves import Outcome
from simpleworkflow.model.states import Status
from simpleworkflow.poll_backoff import PollBackoff
from simpleworkflow.store import Ledger, open_ledger
from simpleworkflow.store.drivers import sqlite as driver
from simpleworkflow.store.drivers.fork import GATE
from simpleworkflow.store.operations import leases, runs

SPAWN = multiprocessing.get_context("spawn")
PROCESSES, ROUNDS, BATCH = 4, 25, 8


async def work(path: str, name: str) -> int:
    """Create, claim and settle in turns; how many runs this process has finished."""
    ledger = open_ledger(path)
    finished = 0
    for _ in range(ROUNDS):
        await create(ledger, *(new() for _ in range(BATCH)))
        taken = await claim(ledger, limit=BATCH, worker=name)
        finished += (await settle(ledger, *(succeeded(lease) for lease in taken), worker=name)).count(Outcome.DONE)
    while taken := await claim(ledger, limit=50, worker=name):
        finished += (await settle(ledger, *(succeeded(lease) for lease in taken), worker=name)).count(Outcome.DONE)
    await ledger.close()
    return finished


def work_in_a_process(path: str, name: str, answers: Any) -> None:
    try:
        answers.put(asyncio.run(work(path, name)))
    except BaseException as error:
        answers.put(repr(error))


def test_four_processes_share_a_file_without_a_lock_error(tmp_path: Path) -> None:
    path = str(tmp_path / "shared.db")
    answers = SPAWN.Queue()
    processes = [SPAWN.Process(target=work_in_a_process, args=(path, f"w{n}", answers)) for n in range(PROCESSES)]
    for process in processes:
        process.start()
    given = [answers.get(timeout=100) for _ in processes]
    for process in processes:
        process.join(30)
    assert all(isinstance(answer, int) for answer in given), given
    assert sum(given) == PROCESSES * ROUNDS * BATCH
    raw = Raw(path)
    assert raw.sql("SELECT DISTINCT status, lease_epoch FROM workflow_run") == [
        {"status": "succeeded", "lease_epoch": 1}
    ]
    assert raw.sql("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    raw.close()


async def test_the_log_is_truncated_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CHECKPOINT_BYTES", 256 * 1024)
    monkeypatch.setattr(driver, "CHECKPOINT_RETRY", 0.0)
    path = tmp_path / "log.db"
    ledger = open_ledger(str(path))
    log, largest, payload = tmp_path / "log.db-wal", 0, '"' + "x" * 2000 + '"'
    for _ in range(60):
        await create(ledger, *(new(payload=payload) for _ in range(20)))
        largest = max(largest, log.stat().st_size)
    assert path.stat().st_size > 2 * 1024 * 1024
    assert largest < 1024 * 1024
    await ledger.close()
    assert not log.exists() or log.stat().st_size == 0


async def test_a_reader_in_the_way_of_a_checkpoint_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "CHECKPOINT_BYTES", 64 * 1024)
    monkeypatch.setattr(driver, "CHECKPOINT_RETRY", 0.0)
    ledger = open_ledger(str(tmp_path / "log.db"))
    await create(ledger)
    reader = Raw(str(tmp_path / "log.db"))
    reader.sql("BEGIN")
    reader.sql("SELECT count(*) FROM workflow_run")
    for _ in range(5):
        await create(ledger, *(new(payload='"' + "x" * 5000 + '"') for _ in range(10)))
    assert reader.sql("SELECT count(*) AS n FROM workflow_run") == [{"n": 1}]
    reader.sql("COMMIT")
    await create(ledger)
    assert (tmp_path / "log.db-wal").stat().st_size == 0
    reader.close()
    await ledger.close()


async def test_a_database_in_memory_works_and_is_its_own() -> None:
    first, second = open_ledger(":memory:"), open_ledger("sqlite://")
    lease = await leased(first)
    assert await settle(first, succeeded(lease)) == [Outcome.DONE]
    assert (await get(first, lease.id)).status is Status.SUCCEEDED
    assert await second.run(runs.count()) == []
    twin = first.twin()
    assert len(await twin.run(runs.count())) == 1
    for ledger in (first, second, twin):
        await ledger.close()


async def test_a_test_may_own_the_clock(tmp_path: Path) -> None:
    clock = ManualClock()
    ledger = open_ledger(str(tmp_path / "clock.db"), clock=clock)
    lease = await leased(ledger)
    await settle(ledger, retried(lease, delay=10))
    clock.advance(9.999999)
    assert await claim(ledger) == []
    clock.advance(0.000001)
    (again,) = await claim(ledger)
    clock.advance(30)
    assert await ledger.run(leases.crash([], limit=10, chance=0)) == []
    clock.advance(0.000001)
    assert await ledger.run(leases.crash([], limit=10, chance=0)) == [(again.id, Status.PENDING)]
    await ledger.close()


async def test_a_file_locked_for_too_long_is_unavailable_and_nothing_is_changed(tmp_path: Path) -> None:
    path = str(tmp_path / "locked.db")
    ledger = open_ledger(path)
    await create(ledger)
    blocker = Raw(path)
    blocker.sql("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await ledger.run(runs.create([new()]), timeout=0.1)
    assert len(await ledger.run(runs.count())) == 1, "readers are not in the writer's way"
    blocker.sql("ROLLBACK")
    await create(ledger)
    assert (await ledger.run(runs.count()))[0].runs == 2
    blocker.close()
    await ledger.close()


@pytest.fixture
async def held_up(tmp_path: Path) -> AsyncIterator[tuple[Ledger, Raw, asyncio.Future[Any]]]:
    """A ledger whose writer waits, with all the time in the world, for a stranger who has locked the file."""
    path = str(tmp_path / "line.db")
    ledger, blocker = open_ledger(path), Raw(path)
    await create(ledger)
    blocker.sql("BEGIN IMMEDIATE")
    patient = ledger._driver.submit(runs.create([new()]))  # type: ignore[attr-defined]
    await eventually(patient.running, "the writer, who is now at the lock")
    yield ledger, blocker, asyncio.wrap_future(patient)
    blocker.close()
    await ledger.close()


async def test_who_has_less_time_than_those_in_front_leaves_the_line(
    held_up: tuple[Ledger, Raw, asyncio.Future[Any]],
) -> None:
    ledger, blocker, patient = held_up
    async with asyncio.timeout(20):
        with pytest.raises(StoreUnavailable, match="busy or locked for too long; nothing was changed"):
            await ledger.run(runs.create([new()]), timeout=0.05)
        assert not patient.done()
        blocker.sql("ROLLBACK")
        await patient
    await create(ledger)  # behind whatever may still stand in line
    assert (await ledger.run(runs.count()))[0].runs == 3, "the first, the patient one, the last"


async def test_a_ledger_that_closes_does_not_wait_for_a_stranger(
    held_up: tuple[Ledger, Raw, asyncio.Future[Any]],
) -> None:
    ledger, _, patient = held_up
    async with asyncio.timeout(20):
        await ledger.close()
        with pytest.raises(StoreUnavailable, match="locked"):
            await patient


async def test_while_another_process_writes_its_changes_are_looked_for_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "CHANGE_CHECK", 3_600.0)
    path = str(tmp_path / "lively.db")
    ledger: Ledger = open_ledger(path)
    heard: list[str] = []
    await create(ledger)
    listening = asyncio.create_task(ledger.listen(heard.append))
    await eventually(lambda: heard == ["changed"], "the first look")
    stranger = Raw(path)
    for nth in (2, 3):
        stranger.sql("UPDATE workflow_run SET priority = ?", nth)
        await eventually(lambda nth=nth: len(heard) == nth, "the next one, long before the hour is over")
    listening.cancel()
    stranger.close()
    await ledger.close()


async def test_a_look_for_changes_that_fails_is_no_news_and_is_followed_by_a_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger: Ledger = open_ledger(str(tmp_path / "hidden.db"))
    heard: list[str] = []
    pauses: list[float] = []
    real = PollBackoff.pause

    def seen(looks: PollBackoff, longest: float) -> float:
        pauses.append(real(looks, longest))
        return pauses[-1]

    def fails(_: object) -> int:
        raise sqlite3.OperationalError("disk I/O error")

    await create(ledger)
    listening = asyncio.create_task(ledger.listen(heard.append))
    await eventually(lambda: heard == ["changed"], "the first look")
    with monkeypatch.context() as blind:
        blind.setattr(driver, "_version", fails)
        blind.setattr(PollBackoff, "pause", seen)
        await eventually(lambda: len(pauses) > 3, "looks that failed")
    assert pauses[-3:] == [driver.CHANGE_CHECK] * 3
    assert heard == ["changed"]
    await eventually(lambda: heard == ["changed"] * 2, "what may have been missed")
    listening.cancel()
    await ledger.close()


async def test_a_look_for_changes_leaves_no_transaction_open_in_which_the_process_might_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "open.db")
    ledger: Ledger = open_ledger(path)
    await create(ledger)
    stranger = Raw(path)
    stranger.sql("PRAGMA busy_timeout = 0")
    is_busy: list[int] = []
    real = GATE.through

    def seen(work: Any, *args: Any) -> Any:
        done = real(work, *args)
        if args and isinstance(args[0], sqlite3.Connection | str) and work is not driver._connect:
            stranger.sql("UPDATE workflow_run SET priority = priority + 1")
            is_busy.append(stranger.sql("PRAGMA wal_checkpoint(TRUNCATE)")[0]["busy"])
        return done

    monkeypatch.setattr(driver, "GATE", SimpleNamespace(through=seen))
    listening = asyncio.create_task(ledger.listen(lambda _: None))
    await eventually(lambda: len(is_busy) > 3, "some looks")
    listening.cancel()
    assert set(is_busy) == {0}
    stranger.close()
    await ledger.close()


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    ledger = open_ledger(str(tmp_path / "nowhere" / "x.db"))
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await create(ledger)
    await ledger.close()


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Ada, " * 200)
    ledger = open_ledger(str(path))
    with pytest.raises(StoreError, match=r"letter\.txt"):
        await create(ledger)
    await ledger.close()
    assert path.read_text().startswith("Dear Ada")


async def test_a_closed_ledger_says_so(tmp_path: Path) -> None:
    ledger = open_ledger(str(tmp_path / "x.db"))
    await create(ledger)
    await ledger.close()
    await ledger.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await create(ledger)


async def test_ledgers_of_one_file_may_come_and_go(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")

    async def visit() -> None:
        ledger = open_ledger(path)
        await create(ledger)
        await ledger.close()

    await asyncio.gather(*(visit() for _ in range(30)))
    ledger = open_ledger(path)
    assert (await ledger.run(runs.count()))[0].runs == 30
    await ledger.close()


async def test_a_refused_operation_leaves_nothing(tmp_path: Path) -> None:
    ledger = open_ledger(str(tmp_path / "x.db"))
    with pytest.raises(StoreError):
        await create(ledger, new(), new(priority=5000))
    assert await ledger.run(runs.count()) == []
    await create(ledger)
    await ledger.close()


async def test_commits_of_other_processes_are_heard(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    ledger = open_ledger(path)
    await create(ledger)
    heard: list[str] = []
    listener = asyncio.ensure_future(ledger.listen(heard.append))
    await eventually(lambda: heard, "the first look")
    await ledger.hint("ready")
    await eventually(lambda: "ready" in heard, "a hint of this process")
    heard.clear()
    stranger = Raw(path)
    stranger.sql("INSERT INTO workflow_run (type) VALUES ('test.work.v1')")
    await eventually(lambda: "changed" in heard, "a commit of another connection")
    stranger.close()
    listener.cancel()
    await asyncio.gather(listener, return_exceptions=True)
    await ledger.close()


# Fork


def in_a_child(ledger: Ledger, run_id: UUID, close: bool) -> int:
    """What a forked child answers: 0 when it could read and write through the ledger that it inherited."""

    async def main() -> int:
        found = await get(ledger, run_id)
        await create(ledger, type="test.child.v1")
        (lease,) = await claim(ledger, offer("test.child.v1"))
        done = await settle(ledger, succeeded(lease))
        if close:
            await ledger.close()
        return 0 if found.id == run_id and done == [Outcome.DONE] else 3

    try:
        return asyncio.run(main())
    except BaseException as error:
        os.write(2, repr(error).encode())
        return 4


@pytest.mark.parametrize("close", [True, False], ids=["closing", "leaving"])
def test_a_forked_child_uses_connections_of_its_own(tmp_path: Path, close: bool) -> None:
    path = str(tmp_path / "fork.db")
    ledger = open_ledger(path)

    async def before() -> UUID:
        return (await create(ledger))[0]

    run_id = asyncio.run(before())
    engine = ledger._driver._engine  # type: ignore[attr-defined]
    child = os.fork()
    if child == 0:
        os._exit(in_a_child(ledger, run_id, close))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert ledger._driver._engine is engine  # type: ignore[attr-defined]

    async def after() -> list[Status]:
        await create(ledger)
        counts = await ledger.run(runs.count())
        await ledger.close()
        return [count.status for count in counts]

    assert asyncio.run(after()) == [Status.SUCCEEDED, Status.PENDING]
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_database_in_memory_does_not_follow_a_fork() -> None:
    ledger = open_ledger(":memory:")
    asyncio.run(_count(ledger))
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(_count(ledger))
        except StoreUnavailable as error:
            os._exit(0 if "memory" in str(error) else 5)
        os._exit(6)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    asyncio.run(ledger.close())


async def _count(ledger: Ledger) -> None:
    await ledger.run(runs.count())
