"""How long finished runs are kept: the policy of pruning, without a database and without a clock.

    keep = [swf.Retention("billing.*", "90 days", succeeded="30 days"), swf.Retention("*", "365 days")]

An age counts from the run's end, a deleted run's from its deletion. For each type one rule decides, the one with the
most specific prefix, whatever the order they are written in; what it gives no age is kept for ever and does not fall
through to a wider rule. So `Retention("audit.*")` alone protects a domain from the `Retention("*", …)` beside it.

What is pruned is gone, so the danger is an age that means something else than its author thought. Numbers are refused:
30 would be seconds here, and everybody means days. Open statuses have no age: no policy can name an open run.

Pruning walks ids, because no index knows `finished_at` (it would cost every run something, for a job that has time).
Ids of version 7 begin with the millisecond they were made in, so those made within the shortest age cannot belong to
a run that is old enough, and the walk leaps over that stretch. Other ids that happen to lie there wait until the
stretch has moved on, which takes no longer than that age.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from .duration import microseconds
from .errors import InvalidPolicy
from .names import Span, span_of_prefix
from .states import TERMINAL, Status

Age = timedelta | str
FOREVER = "forever"
ENDS = tuple(status for status in Status if status in TERMINAL)
FIRST_ID, LAST_ID = UUID(int=0), UUID(int=(1 << 128) - 1)
_TIME_BITS = 80
"""Below the 48 bits of milliseconds that an id of version 7 begins with."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long finished runs of the types below a prefix are kept, by how they ended. Without an age: for ever."""

    prefix: str = "*"
    """`billing.*` (or `billing.`) for everything below, `billing.invoice.v1` for one type, `*` for all."""
    age: Age | None = None
    """For every end that has no age of its own."""
    _: KW_ONLY
    succeeded: Age | None = None
    failed: Age | None = None
    cancelled: Age | None = None
    timed_out: Age | None = None
    deleted: Age | None = None
    """For runs that were deleted (`app.delete`), since then; as long as others that ended like them unless given."""

    def __post_init__(self) -> None:
        span_of_prefix(self.prefix)
        for name in ("age", "deleted", *ENDS):
            _age(self, name)

    @property
    def span(self) -> Span:
        return span_of_prefix(self.prefix)

    def age_of(self, status: Status, *, is_deleted: bool) -> int | None:
        """Microseconds that a run is kept; None for ever."""
        ended = _age(self, status) if getattr(self, status) is not None else _age(self, "age")
        return _age(self, "deleted") if is_deleted and self.deleted is not None else ended


def _age(keep: Retention, name: str) -> int | None:
    value = getattr(keep, name)
    if value is None or value == FOREVER:
        return None
    if not isinstance(value, str | timedelta):
        raise InvalidPolicy(
            f"Retention({keep.prefix!r}).{name} is {value!r}; write how long with its unit, such as '30 days' or "
            f"timedelta(days=30), or {FOREVER!r}"
        )
    return microseconds(value, what=f"Retention({keep.prefix!r}).{name}")


class Rule(NamedTuple):
    """Runs whose types lie in a span and that ended so: how many microseconds they are kept. Rules never overlap."""

    low: str
    high: str
    status: Status
    is_deleted: int
    age: int


def rules_of(keeps: Iterable[Retention]) -> list[Rule]:
    """The policy as rows: who keeps for ever has none."""
    named: dict[Span, Retention] = {}
    for keep in keeps:
        if not isinstance(keep, Retention):
            raise InvalidPolicy(f"keep= takes rules such as swf.Retention('billing.*', '30 days'), not {keep!r}")
        if keep.span in named:
            raise InvalidPolicy(f"keep= has two rules for {keep.prefix!r}; one of them could never apply")
        named[keep.span] = keep
    return [
        Rule(span.low, span.high, status, int(is_deleted), age)
        for span, keep in _apart(named)
        for status in ENDS
        for is_deleted in (False, True)
        if (age := keep.age_of(status, is_deleted=is_deleted)) is not None
    ]


def _apart(named: dict[Span, Retention]) -> Iterable[tuple[Span, Retention]]:
    """The spans cut into pieces that do not overlap, each with the innermost rule around it."""
    places = sorted({place for span in named for place in span})
    for low, high in pairwise(places):
        around = [span for span in named if span.low <= low and high <= span.high]
        if around:  # prefixes lie inside one another or apart, never across
            innermost = max(span.low for span in around), min(span.high for span in around)
            yield Span(low, high), named[Span(*innermost)]


def chosen(
    older_than: Age | None, deleted_older_than: Age | None, prefixes: Sequence[str], statuses: Sequence[Status]
) -> list[Rule]:
    """The rules of one call: everything of these prefixes (or all) that ended so (or at all) longer ago than that."""
    still_open = [status for status in statuses if not status.is_terminal]
    if still_open:
        raise InvalidPolicy(f"{still_open[0]} runs are open, and only finished ones are pruned; cancel them first")
    if older_than is None and deleted_older_than is None:
        raise InvalidPolicy("say how old runs must be to go: older_than='30 days', or deleted_older_than='7 days'")
    wanted = dict.fromkeys(span_of_prefix(prefix) for prefix in prefixes or ["*"])
    spelled = {span_of_prefix(prefix): prefix for prefix in prefixes or ["*"]}
    rules = rules_of([Retention(spelled[span], older_than, deleted=deleted_older_than) for span in wanted])
    return [rule for rule in rules if not statuses or rule.status in statuses]


def fingerprint(rules: Sequence[Rule]) -> str:
    """A name for a policy: workers with the same one take turns."""
    return hashlib.sha256(repr(sorted(map(tuple, rules))).encode()).hexdigest()[:16]


def stretches(rules: Sequence[Rule], now: int) -> list[tuple[UUID, UUID]]:
    """Which ids a pass looks at, ends included: all but those that were made within the shortest age. `now` in
    microseconds since 1970; a clock that is wrong makes the leap smaller, or runs go later, never earlier."""
    cutoff = now - min(rule.age for rule in rules)
    leap_from, leap_to = (cutoff // 1000 + 1) << _TIME_BITS, (now // 1000) << _TIME_BITS
    if leap_from >= leap_to:
        return [(FIRST_ID, LAST_ID)]
    before = [(FIRST_ID, UUID(int=leap_from - 1))] if leap_from > 0 else []
    return [*before, (UUID(int=leap_to), LAST_ID)]


class Kept(StrEnum):
    """Why a run that is old enough stays all the same."""

    PARENT = "open_parent"
    """Its parent is open and may still ask for it."""
    OUTBOX = "unpublished_events"
    """Some of its outbox events are not out yet."""
    NEWEST = "newest_events"
    """SQLite: it holds the newest line of the audit trail, whose number would be given again."""
    LOCKED = "locked"
    """Somebody is at it right now; the next pass looks again."""


@dataclass(slots=True)
class PruneResult:
    """What a pass has done so far, or would do."""

    examined: int = 0
    runs: Counter[tuple[str, Status]] = field(default_factory=Counter)
    """By type and status: how many went, or would go."""
    kept: Counter[Kept] = field(default_factory=Counter)
    """Old enough, and still there."""
    is_dry: bool = False

    @property
    def total(self) -> int:
        return self.runs.total()
