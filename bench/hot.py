"""The two statements on which a drain turns, the claim and the end of runs that succeeded, with their values.

The ceiling, the bare loop and the look at the claim's plan all use the catalogue's own texts: a copy would go on
measuring yesterday's SQL. What this file adds is the values. They are found by the names of columns and parameters, so
a new column without a value here stops the benchmark with its name, instead of measuring half of the work.

The second danger is a statement that moves away: where the catalogue logs events in statements of their own
(log_leased, log_finished), these two are not the whole work any more, and that is refused as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from simpleworkflow.config import Settings
from simpleworkflow.model.retry import DEFAULT_RETRY
from simpleworkflow.store.catalog import Statement, statements
from simpleworkflow.store.drivers.postgres import _SESSION as SESSION
from simpleworkflow.store.drivers.postgres import bind

__all__ = [
    "BATCH",
    "SESSION",
    "TYPE",
    "Moved",
    "claim",
    "claim_values",
    "literal",
    "quoted",
    "settle",
    "settle_arrays",
    "settle_columns",
    "settle_values",
]

BATCH = 100
TYPE = "bench.noop.v1"
"""The type that drive_ours.py triggers and drains."""

_CLAIM = {
    "type": TYPE,
    "priority": 100,
    "max_attempts": DEFAULT_RETRY.max_attempts,
    "lease": int(Settings().lease * 1_000_000),
    "timeout": None,
    "limit": BATCH,
    "worker": "bench-0123456789abcdef",
}
_SETTLE = {"elapsed": 100, "result": "null"}


class Moved(Exception):
    """The catalogue is no longer what this file knows: teach it the change before trusting a figure."""


def claim() -> Statement:
    return _statement("claim_lanes", "log_leased")


def settle() -> Statement:
    return _statement("finish_counted", "log_finished")


def claim_values(low: Any = None) -> list[Any]:
    """What the claim is given, in the order of its text for one lane: that lane, and a batch of a hundred. `low` is
    when the last run of the claim before was due: as our worker does, nobody starts from the beginning each time."""
    statement, values = claim(), _CLAIM | {"low": low}
    named = {
        name: [tuple(_known(values, column) for column, _ in statement.batches[name])]
        if name in statement.batches
        else _known(values, name)
        for name in statement.order
    }
    return bind(statement, named, alone=True)


def quoted(value: Any) -> str:
    """A value as SQL has it."""
    return "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"


def settle_values(ids: Sequence[Any], epochs: Sequence[Any]) -> list[Any]:
    """The settle's parameters: these runs have succeeded here. One array for each column, the worker, and no hint."""
    return [*settle_arrays(ids, epochs), _CLAIM["worker"], False]


def settle_arrays(ids: Sequence[Any], epochs: Sequence[Any]) -> list[Sequence[Any]]:
    mine = {"run_id": ids, "epoch": epochs}
    return [mine[column] if column in mine else [_known(_SETTLE, column)] * len(ids) for column, _ in settle_columns()]


def settle_columns() -> tuple[tuple[str, str], ...]:
    batch, *others = settle().order
    if others != ["worker", "telling"]:
        raise Moved(f"finish_counted takes {settle().order}, not one batch, the worker and whether to tell")
    return settle().batches[batch]


def literal(values: Iterable[Any]) -> str:
    """A PostgreSQL array in text form."""
    quoted = ("NULL" if v is None else '"' + str(v).replace("\\", "\\\\").replace('"', '\\"') + '"' for v in values)
    return "{" + ",".join(quoted) + "}"


def _statement(name: str, log: str) -> Statement:
    known = statements("postgres")
    if log in known and known[log].text:
        raise Moved(f"{name} is no longer all of the work: {log} has a text of its own")
    return known[name]


def _known(values: dict[str, Any], name: str) -> Any:
    if name not in values:
        raise Moved(f"no value for {name!r}; add one to bench/hot.py")
    return values[name]
