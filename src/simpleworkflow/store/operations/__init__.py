"""What can be done to the ledger, one file per noun. Each operation is a small generator (see store/protocol.py)."""
