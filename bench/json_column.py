"""json or jsonb for payload and result? The same insert, claim-like and finish-like statements on both.

Writes bench/results/json_column.json: microseconds and WAL bytes per run, with the number of full-page images beside
them, since those depend on when a checkpoint fell. Median of five interleaved rounds.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.postgres import LaunchedServer, find_system, find_wheel  # noqa: E402

RUNS, BATCH, ROUNDS = 20_000, 200, 5
PAYLOADS = {
    "100 bytes": {"order": 4711, "note": "x" * 70},
    "4 KiB": {"items": [{"sku": f"a-{n}", "n": n} for n in range(150)]},
}


def measure(connection: psycopg.Connection[Any], kind: str, payload: str) -> dict[str, float]:
    connection.execute("DROP TABLE IF EXISTS t")
    connection.execute(
        f"CREATE TABLE t (id int PRIMARY KEY, status text, result {kind}, payload {kind}) WITH (fillfactor = 60)"
    )
    connection.execute("CHECKPOINT")
    before = wal(connection)
    started = time.perf_counter()
    for first in range(0, RUNS, BATCH):
        ids = list(range(first, first + BATCH))
        connection.execute(
            f"INSERT INTO t SELECT i, 'pending', NULL, p FROM unnest(%s::int[], %s::{kind}[]) AS n(i, p)",
            (ids, [payload] * BATCH),
        )
    for first in range(0, RUNS, BATCH):
        ids = list(range(first, first + BATCH))
        connection.execute(
            "UPDATE t SET status = 'leased' WHERE id = ANY(%s) RETURNING id, payload::text", (ids,)
        ).fetchall()
        connection.execute(
            f"UPDATE t SET status = 'succeeded', result = r"
            f" FROM unnest(%s::int[], %s::{kind}[]) AS n(i, r) WHERE id = i",
            (ids, ['{"ok": true}'] * BATCH),
        )
    seconds = time.perf_counter() - started
    after = wal(connection)
    return {
        "us_per_run": seconds / RUNS * 1e6,
        "wal_bytes_per_run": (after[0] - before[0]) / RUNS,
        "full_page_images": after[1] - before[1],
    }


def wal(connection: psycopg.Connection[Any]) -> tuple[int, int]:
    row = connection.execute("SELECT wal_bytes, wal_fpi FROM pg_stat_wal").fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def main() -> None:
    report: dict[str, Any] = {}
    binaries = find_system() or find_wheel()
    if binaries is None:
        raise SystemExit("there is no PostgreSQL here")
    with (
        LaunchedServer(binaries, durable=True) as server,
        psycopg.connect(server.url(), autocommit=True) as connection,
    ):
        for name, payload in PAYLOADS.items():
            rounds: dict[str, list[dict[str, float]]] = {"json": [], "jsonb": []}
            for _ in range(ROUNDS):
                for kind, found in rounds.items():
                    found.append(measure(connection, kind, json.dumps(payload)))
            report[name] = {
                kind: {key: round(statistics.median(r[key] for r in found), 1) for key in found[0]}
                for kind, found in rounds.items()
            }
    target = ROOT / "bench" / "results" / "json_column.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
