"""What a log line about a run carries beside its words, so that a machine can find all lines of one run.

Every such line gets `extra=about(lease)`: the attributes of the record that docs/logging.md lists. Never a payload, a
result or an argument: what goes into a log is read by people who may not read the data.
"""

from __future__ import annotations

from ..model.records import Lease


def about(lease: Lease, **more: object) -> dict[str, object]:
    """`more`: worker=, step=, where they are known."""
    return {"run_id": str(lease.id), "workflow_type": lease.type, "epoch": lease.epoch, **more}
