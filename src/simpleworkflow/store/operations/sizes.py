"""How much room the tables take: what a scrape asks beside the queue, without reading a row of them.

PostgreSQL knows the size of each table, indexes and large values included, and keeps a count of its live rows that is
about right. SQLite knows its file and how much of it is free for reuse; what one table has of that, or how many rows,
could only be found by walking all of it, so it is not told.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..protocol import Steps, query, reading


@dataclass(slots=True)
class Sizes:
    bytes: int = 0
    """SQLite: the file. PostgreSQL: the tables that grow, together."""
    free: int | None = None
    """Of those, bytes that new rows will use; None where nobody knows."""
    tables: dict[str, int] = field(default_factory=dict)
    """Bytes of each table, where the database can tell."""
    rows: dict[str, int] = field(default_factory=dict)
    """About how many rows each table has, where the database can tell."""


@reading
def table_sizes() -> Steps[Sizes]:
    sizes = Sizes()
    for row in (yield query("table_sizes")):
        size = row["bytes"] or 0  # NULL: the table went while we looked
        sizes.bytes += size
        sizes.free = row["free"]
        if row["name"] is not None:
            sizes.tables[row["name"]] = size
            sizes.rows[row["name"]] = row["live"]
    return sizes
