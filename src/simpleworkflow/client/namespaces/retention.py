"""Removing finished runs for good, by the App's policy or by what one call says; workers follow the policy anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy

from ...clock import SystemClock
from ...model.errors import InvalidInput, InvalidPolicy
from ...model.retention import Age, PruneResult, Retention, Rule, chosen, rules_of
from ...model.states import Status
from ...runtime.pruning import BATCH, Pass
from ..client import Client
from ..request import statuses

MOST_AT_ONCE = 10_000


class Pruning:
    """How long finished runs stay: `await app.retention.prune(older_than="90 days")`."""

    def __init__(self, client: Client, keep: tuple[Retention, ...]) -> None:
        self._client = client
        self._keep = keep

    async def prune(
        self,
        *,
        older_than: Age | None = None,
        deleted_older_than: Age | None = None,
        prefix: str | Iterable[str] | None = None,
        status: Status | str | Iterable[Status | str] | None = None,
        batch: int = BATCH,
        dry_run: bool = False,
        tell: Callable[[PruneResult], object] | None = None,
    ) -> PruneResult:
        """Delete finished runs for good, with their steps, events and signals; their idempotency keys are free again.

        older_than: runs that ended longer ago than this; of deleted ones, those that were deleted longer ago.
        deleted_older_than: deleted runs have this age instead; alone, only they go.
        prefix, status: only these; everything that is finished unless given.
        dry_run: only count what would go.
        tell: called now and then with what has been done so far.

        Without any of the first four, what the App's own keep= says. Runs whose parent is open and runs with events
        that are not published yet stay. May be stopped at any point: what is gone is gone whole.
        """
        if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= MOST_AT_ONCE:
            raise InvalidInput(f"batch must be a whole number from 1 to {MOST_AT_ONCE}, not {batch!r}")
        given = any(value is not None for value in (older_than, deleted_older_than, prefix, status))
        if given:
            prefixes = [prefix] if isinstance(prefix, str) else list(prefix or [])
            rules = chosen(older_than, deleted_older_than, prefixes, statuses(status))
        else:
            rules = self._own_rules()
        client, clock = self._client, self._client.clock or SystemClock()
        walk = Pass(client.run, rules, clock.wall(), batch=batch, is_dry=dry_run, tell=lambda _: _tell(walk, tell))
        while await walk.go_on():
            pass
        return walk.done

    def _own_rules(self) -> list[Rule]:
        if not self._keep:
            raise InvalidPolicy("this App has no keep=; say how old runs must be to go: older_than='30 days'")
        return rules_of(self._keep)


def _tell(walk: Pass, tell: Callable[[PruneResult], object] | None) -> None:
    if tell is not None:
        tell(deepcopy(walk.done))
