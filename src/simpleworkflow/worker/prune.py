"""The pruning role: workers whose App says `keep=` take turns at removing what is older than that.

One worker at a time walks for a policy. Whose turn it is stands in a row of the database with a time limit, so that a
worker that dies leaves it to the next; no leader, no election. How far the pass has come stands there too: the next one
goes on from there, and a deploy does not start it anew. Should two walk at once all the same (one was frozen past its
time), they skip each other's rows. A turn is bounded, stops at once when the worker stops, and a pass is followed by a
rest that is long compared with it, so that a large table which keeps everything is not read all day.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ..clock import monotonic
from ..config import Settings
from ..model.retention import Rule, fingerprint
from ..runtime.meter import Meter
from ..runtime.pruning import Counts, Pass
from ..store import Ledger
from ..store.operations import prune
from .loop import forever, pause_unless

log = logging.getLogger("simpleworkflow.prune")

LOOK_EVERY = 30.0
"""How often a worker asks whether it is its turn."""
TURN = 30.0
SAVE_EVERY = 5.0
LEASE = 60.0
"""How long a turn may go without saving its place before another worker takes it."""
RESTS = 10.0
LONGEST_REST = 3600.0
FORGET_AFTER = 30 * 24 * 3600.0


class Pruner:
    def __init__(
        self,
        ledger: Ledger,
        rules: Sequence[Rule],
        stopping: asyncio.Event,
        *,
        me: str,
        every: float,
        meter: Meter | None,
    ) -> None:
        self._ledger = ledger
        self._rules = rules
        self._policy = fingerprint(rules)
        self._stopping = stopping
        self._me = me
        self._every = every
        self._meter = meter

    async def turn(self) -> None:
        """Take the turn if nobody has it, and walk until the pass is over, the time is up or the worker stops."""
        turn = await self._ledger.run(prune.take_turn(self._policy, self._me, lease=LEASE))
        if turn is None:
            return
        began = saved = monotonic()

        def is_over() -> bool:
            return self._stopping.is_set() or monotonic() - began >= TURN

        walk = Pass(
            self._ledger.run,
            self._rules,
            self._ledger.clock.wall(),
            start=turn.place,
            rest=self._pause,
            tell=self._count,
            is_over=is_over,
        )
        told = 0
        while await walk.go_on():
            assert walk.place is not None
            over = is_over()
            if over or monotonic() - saved >= SAVE_EVERY:
                more, told, saved = walk.done.total - told, walk.done.total, monotonic()
                lease = 0.0 if over else LEASE
                held = await self._ledger.run(
                    prune.save_turn(self._policy, self._me, walk.place, more=more, lease=lease)
                )
                if over or not held:
                    break
        else:
            took = turn.passed + monotonic() - began
            rest = min(max(self._every, RESTS * took), max(self._every, LONGEST_REST))
            await self._ledger.run(
                prune.end_pass(
                    self._policy, self._me, more=walk.done.total - told, rest=rest, forget_after=FORGET_AFTER
                )
            )
            if self._meter is not None:
                self._meter.pruned_at = monotonic()
        if walk.done.total:
            log.info("pruned %d runs of %d examined", walk.done.total, walk.done.examined, extra={"worker": self._me})

    async def _pause(self, seconds: float) -> None:
        await pause_unless(self._stopping, seconds)

    def _count(self, runs: Counts) -> None:
        if self._meter is not None:
            self._meter.pruned.update(runs)


def pruning(
    ledger: Ledger, rules: Sequence[Rule], settings: Settings, stopping: asyncio.Event, me: str, meter: Meter | None
) -> list[asyncio.Task[None]]:
    """The role's task, in the running loop; none without a policy."""
    if not rules:
        return []
    pruner = Pruner(ledger, rules, stopping, me=me, every=settings.prune_every, meter=meter)
    look_every = min(LOOK_EVERY, settings.prune_every)
    return [asyncio.get_running_loop().create_task(forever("prune", look_every, pruner.turn, stopping))]
