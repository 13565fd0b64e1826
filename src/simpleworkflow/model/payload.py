"""JSON in and out: the one format in which inputs, results, step values and events are stored.

Everything a run remembers is JSON text, so that SQLite, PostgreSQL, plain SQL and programs in other languages read
the same thing, and so that a run started by yesterday's code can be continued by tomorrow's. Pickle would keep more
types and none of those promises.

The danger is a value that is accepted today and cannot be read, or means something else, when the run is recovered:
NaN (msgspec writes `null` without a word), NUL and lone surrogates (PostgreSQL refuses them, SQLite does not),
integers beyond 64 bits (other readers round them), two dict keys that become one text (one silently wins), values
that contain themselves. Such a value is refused here, before it reaches a database, with the path to the culprit:
`$.orders[3].price`.

How: one walk looks at the raw value and returns it untouched when it is made of JSON builtins, the usual case, so
small payloads cost a few microseconds; only what JSON does not know is rebuilt on the way. msgspec then writes the
text, and stays the authority on how a Struct, a date or a UUID looks. Three consequences:

- The walk counts what it sees and stops early, because a few lists that share each other can be small in memory and
  astronomically large as JSON.
- Sets are written in sorted order: their natural order changes from process to process, and a recovered run must
  find the same text.
- Reading is more lenient than writing (duplicate keys: the last wins; integers of any size that Python can hold):
  a foreign writer's row should be readable even where we would not have written it.

pydantic is never imported here. Its models are recognised by their methods; by the time one arrives, somebody else
has imported it.
"""

from .limits import MAX_BYTES, MAX_DEPTH
from .payload_keeping import Keeper, glance, keeper
from .payload_reading import Unresolved, decode, reader, same_json
from .payload_writing import encode

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "Keeper",
    "Unresolved",
    "decode",
    "encode",
    "glance",
    "keeper",
    "reader",
    "same_json",
]
