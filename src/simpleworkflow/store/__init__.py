"""The ledger: the only room that knows a database exists.

SQL lives in `sql/`, operations (generators that yield queries) in `operations/`, connections in `drivers/`; `ledger.py`
is the face that the other rooms use.
"""

from .ledger import Ledger, open_ledger

__all__ = ["Ledger", "open_ledger"]
