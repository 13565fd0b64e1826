"""dbos on SQLite: the same driver, with a SQLite that is new enough for it.

dbos 3.3.0 needs `unixepoch('subsec')`, which SQLite 3.40 (Debian 12) does not know: it does not start there. The
pysqlite3-binary wheel brings a newer SQLite; putting it in the place of the standard module before anything imports
that one is the way the wheel documents.
"""

from __future__ import annotations

import sys

import pysqlite3
import pysqlite3.dbapi2

sys.modules["sqlite3"] = pysqlite3
sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2

from drive_dbos import main  # noqa: E402

if __name__ == "__main__":
    main()
