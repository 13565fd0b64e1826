"""What the benchmark command asks a database besides its ordinary work. Nothing else may use this.

Dropping a schema takes everything in it along, so it is refused for every schema that does not carry the benchmark's
own prefix: a wrong name here must never cost anybody their runs.
"""

from __future__ import annotations

from ...model.errors import StoreError
from ..protocol import Steps, query, statements, transaction

SCHEMA_PREFIX = "simpleworkflow_bench_"


@statements
def wal_position() -> Steps[int | None]:
    """Bytes of write-ahead log so far, everybody's; None where there is no such count."""
    rows = yield query("wal_position")
    return int(rows[0]["bytes"]) if rows else None


@transaction
def drop_schema(schema: str) -> Steps[None]:
    """Drop the schema that this connection works in, with its tables, if it is the benchmark's own."""
    if not schema.startswith(SCHEMA_PREFIX):
        raise StoreError(f"schema {schema!r} was not made by the benchmark and is not dropped")
    yield query("lock_schema")
    yield query("drop_schema")
