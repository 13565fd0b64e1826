"""A history that nobody can read holds the run that it belongs to; those claimed with it go on."""

from __future__ import annotations

from pathlib import Path

from support.ledger import Raw
from support.waiting import eventually

import simpleworkflow as swf
from simpleworkflow.model.states import Status


async def test_a_history_that_cannot_be_read_holds_its_own_run_only(tmp_path: Path) -> None:
    """Rows from before the triggers, or written while they were gone."""
    app = swf.App(str(tmp_path / "f.db"), settings=swf.Settings(poll_every=0.05))

    @app.workflow("t.waits.v1")
    async def waits(ctx: swf.Context) -> object:
        return await ctx.wait_for_signal("go")

    await app.migrate()
    async with app.worker():
        made = [await app.trigger(waits) for _ in range(5)]
        raw = Raw(str(tmp_path / "f.db"))
        await eventually(lambda: len(raw.rows("status = 'paused'")) == 5, "all wait")
    raw.sql("DROP TRIGGER signal_limits")
    raw.sql("DROP TRIGGER signal_limits_kept")
    raw.sql("INSERT INTO workflow_signal (id, run_id, name) VALUES ('order-4711-approved', ?, 'go')", made[2].id)
    for handle in made:
        if handle is not made[2]:
            await handle.signal("go", "well")
    async with app.worker():
        for handle in made:
            if handle is not made[2]:
                assert await handle.result(timeout=20) == "well"
        await eventually(lambda: raw.row(made[2].id)["held_at"] is not None, "the other one is held")
        await eventually(lambda: raw.row(made[2].id)["status"] != "leased", "and given back")
    run = await made[2].get()
    assert run.status is Status.PENDING
    assert "its history cannot be read" in str(run.hold_reason)
    assert "its history cannot be read" in (await app.handle(run.id).explanation()).sentence
    raw.close()
    await app.close()
