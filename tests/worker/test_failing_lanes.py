"""One row that no claim can take stops its own lane only, and whoever asks why is told."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.ledger import Raw
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.client.doctor.findings import Level
from simpleworkflow.model.records import Lane
from simpleworkflow.model.states import Reason
from simpleworkflow.store import Ledger
from simpleworkflow.store.operations import leases, workers
from simpleworkflow.worker import failing, renew
from simpleworkflow.worker.failing import FailingLanes

SICK, WELL = "lanes.sick.v1", "lanes.well.v1"
ERROR = "this row cannot be claimed"
POSTGRES = f"""
CREATE FUNCTION workflow.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{ERROR}'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON workflow.workflow_run FOR EACH ROW
WHEN (NEW.type = '{SICK}' AND NEW.status = 'leased') EXECUTE FUNCTION workflow.refuse()"""
SQLITE = f"""
CREATE TRIGGER refuse BEFORE UPDATE ON workflow_run WHEN NEW.type = '{SICK}' AND NEW.status = 'leased'
BEGIN SELECT RAISE(ABORT, '{ERROR}'); END"""
MEND = "DROP TRIGGER refuse", "DROP TRIGGER refuse ON workflow.workflow_run; DROP FUNCTION workflow.refuse"


@pytest.fixture
def app(url: str) -> Iterator[swf.App]:
    opened = swf.App(url, settings=swf.Settings(poll_every=0.05))

    @opened.workflow(SICK)
    async def sick(ctx: swf.Context) -> str:
        return "sick"

    @opened.workflow(WELL)
    async def well(ctx: swf.Context) -> str:
        return "well"

    yield opened
    opened.sync.close()


@pytest.fixture
def refusing(raw: Raw) -> Iterator[Raw]:
    raw.sql(SQLITE if raw.is_sqlite else POSTGRES)
    yield raw
    for one in MEND[not raw.is_sqlite].split(";"):
        raw.sql(one)


async def test_a_lane_whose_claims_fail_stops_no_other_and_is_told(
    app: swf.App, refusing: Raw, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failing, "FIRST_REST", 0.05)
    stuck = [await app.trigger(SICK) for _ in range(3)]
    with caplog.at_level(logging.ERROR, "simpleworkflow.worker"):
        async with app.worker():
            assert await app.run(WELL, timeout=20) == "well"
            assert await app.run(WELL, timeout=20) == "well"
    told = [record.getMessage() for record in caplog.records if "cannot be claimed" in record.getMessage()]
    assert len(told) == 1, "once, however often it is tried"
    assert told[0].startswith(f"runs of {SICK}, priority 100, cannot be claimed; other lanes go on")
    assert ERROR in told[0]
    assert {(await run.get()).status for run in stuck} == {swf.Status.PENDING}


async def test_explain_and_doctor_tell_of_a_lane_that_cannot_be_claimed(app: swf.App, ledger: Ledger) -> None:
    run, other = await app.trigger(SICK), await app.trigger(WELL)
    claims = FailingLanes()
    claims.failed(Lane(SICK, 100), ValueError(f"{ERROR}\n(twice)"))
    load = {"slots": 4, "taken": 0} | claims.told()
    await ledger.run(workers.announce("w@1", "ada", "host", 1, [("", "\U0010ffff")], load))
    explained = await app.handle(run.id).explanation()
    assert explained.reason is Reason.CLAIM_FAILS
    assert f"but claiming runs of {SICK}, priority 100, fails on ada: {ERROR} (twice)" in explained.sentence
    assert (await app.handle(other.id).explanation()).reason is Reason.DUE
    (found,) = [one for one in await app.doctor.examine() if one.check == "failing-claims"]
    assert (found.level, found.subject) == (Level.PROBLEM, SICK)
    assert ERROR in found.seen
    assert f"simpleworkflow runs hold {run.id}" in str(found.fix)
    claims.worked(Lane(SICK, 100))
    await ledger.run(workers.announce("w@1", "ada", "host", 1, [("", "\U0010ffff")], claims.told()))
    assert (await app.handle(run.id).explanation()).reason is Reason.DUE
    assert not [one for one in await app.doctor.examine() if one.check == "failing-claims"]


async def test_a_lane_that_was_mended_is_claimed_again(
    app: swf.App, raw: Raw, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(failing, "FIRST_REST", 0.02)
    raw.sql(SQLITE if raw.is_sqlite else POSTGRES)
    async with app.worker():
        run = await app.trigger(SICK)
        await eventually(lambda: "cannot be claimed" in caplog.text)
        for one in MEND[not raw.is_sqlite].split(";"):
            raw.sql(one)
        assert await run.result(timeout=20) == "sick"


def test_a_lane_that_goes_on_failing_rests_longer_and_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(failing, "monotonic", lambda: now[0])
    claims, lane = FailingLanes(), Lane(SICK, 1)
    rests: list[float] = []
    for _ in range(10):
        claims.failed(lane, ValueError("no"))
        began = now[0]
        while claims.rests(lane):
            now[0] += 0.5
        rests.append(now[0] - began)
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert not claims.rests(lane, leases.ONCE)
    told: Any = claims.told()["failing"]
    assert told[0][:2] == [SICK, 1]


@pytest.mark.parametrize(
    "load", ["[]", '{"failing": 7}', '{"failing": [7, ["a"], [1, 2, 3, 4]]}', '{"failing": [[null, null, null, null]]}']
)
async def test_what_strangers_write_there_is_no_reason_to_fail(
    app: swf.App, ledger: Ledger, raw: Raw, load: str
) -> None:
    run = await app.trigger(SICK)
    await ledger.run(workers.announce("w@1", "ada", "host", 1, [("", "\U0010ffff")], {}))
    raw.sql("UPDATE workflow.workflow_worker SET load = ?", load)
    assert (await app.handle(run.id).explanation()).reason is Reason.DUE
    await app.doctor.examine()


async def test_what_a_worker_cannot_claim_reaches_explain_and_doctor(
    app: swf.App, refusing: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the failed claim of a real worker, through its announcement, to those who ask."""
    monkeypatch.setattr(renew, "ANNOUNCE_EVERY", 0.1)
    run = await app.trigger(SICK)

    async def told() -> bool:
        return (await app.handle(run.id).explanation()).reason is Reason.CLAIM_FAILS

    async with app.worker(name="ada"):
        await eventually(told, "the worker announces it")
        explained = await app.handle(run.id).explanation()
        assert f"claiming runs of {SICK}, priority 100, fails on ada: " in explained.sentence
        assert ERROR in explained.sentence
        (found,) = [one for one in await app.doctor.examine() if one.check == "failing-claims"]
        assert (found.level, found.subject) == (Level.PROBLEM, SICK)
        assert ERROR in found.seen


async def test_a_row_that_cannot_be_decoded_stops_its_own_lane_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written while the triggers were gone, on SQLite, where any column takes any value."""
    monkeypatch.setattr(renew, "ANNOUNCE_EVERY", 0.1)
    app = swf.App(str(tmp_path / "f.db"), settings=swf.Settings(poll_every=0.05))
    for name in (SICK, WELL):
        app.workflow(name)(_well)
    await app.migrate()
    raw = Raw(str(tmp_path / "f.db"))
    raw.sql("DROP TRIGGER run_limits")
    raw.sql("INSERT INTO workflow_run (type, parent_id) VALUES (?, 'ORDER-4711')", SICK)
    run = await app.trigger(SICK)

    async def told() -> bool:
        return (await app.handle(run.id).explanation()).reason is Reason.CLAIM_FAILS

    async with app.worker():
        assert await app.run(WELL, timeout=20) == "well"
        await eventually(told, "explain tells it")
        assert [one.subject for one in await app.doctor.examine() if one.check == "failing-claims"] == [SICK]
    raw.close()
    await app.close()


async def _well(ctx: swf.Context) -> str:
    return "well"
