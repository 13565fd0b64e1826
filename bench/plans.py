"""What one claim of a hundred costs the server, by its own account: pages touched and time, from EXPLAIN ANALYZE.

The very statement of the catalogue, prepared once on a session with our settings and executed as often as PostgreSQL
needs to make up its mind between a plan for these values and one for all; then it is explained, inside transactions
that are rolled back, so that each look finds the same backlog.

A trap: the pages of the whole statement are not those of its top node. A WITH query that writes and that nobody reads
(the events) runs after the main part and is counted beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from hot import BATCH, SESSION, Moved, claim, claim_values, quoted

WARM_UPS = 8
"""PostgreSQL compares plans after the fifth execution."""


@dataclass(frozen=True, slots=True)
class Look:
    buffers: int
    milliseconds: float


def look(url: str, times: int) -> list[Look]:
    """Explain the claim so many times, each time in a transaction that leaves nothing behind."""
    options = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
    with psycopg.connect(url, autocommit=True, options=options) as connection:
        connection.execute(f"PREPARE claim AS {claim().for_one}".encode())
        for _ in range(WARM_UPS):
            _rolled_back(connection, _execute())
        return [
            _read(_rolled_back(connection, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {_execute()}"))
            for _ in range(times)
        ]


def total_buffers(plan: dict[str, Any]) -> int:
    """Pages found in memory and pages read: of the top node, and of the WITH queries that nobody reads."""
    nodes = list(_walk(plan))
    read = {node["CTE Name"] for node in nodes if "CTE Name" in node}
    unread = [node for node in nodes if node.get("Subplan Name", "").removeprefix("CTE ") not in read]
    alone = [node for node in unread if node.get("Subplan Name", "").startswith("CTE ")]
    return sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in (plan, *alone))


def _read(answer: Any) -> Look:
    told = json.loads(answer) if isinstance(answer, str) else answer
    plan = told[0]["Plan"]
    claimed = max(node["Actual Rows"] for node in _walk(plan) if node["Node Type"] == "LockRows")
    if plan["Actual Rows"] != BATCH or claimed != BATCH:
        raise Moved(f"a claim of {BATCH} brought {plan['Actual Rows']} and locked {claimed}")
    return Look(total_buffers(plan), told[0]["Execution Time"])


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


def _execute() -> str:
    return f"EXECUTE claim({', '.join(map(quoted, claim_values()))})"


def _rolled_back(connection: psycopg.Connection[tuple[Any, ...]], statement: str) -> Any:
    with connection.transaction(force_rollback=True):
        row = connection.execute(statement.encode()).fetchone()
    if row is None:
        raise Moved(f"the claim found nothing: {statement[:80]}")
    return row[0]
