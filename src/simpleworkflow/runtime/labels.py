"""What a log line about a run carries beside its words, so that a machine can find all lines of one run.

Every such line of ours gets `extra=about(lease)`: the attributes of the record that docs/logging.md lists. Lines that
others write while they execute a run get the same from `here()`, by the filter in logs.py. Never a payload, a result or
an argument: what goes into a log is read by people who may not read the data.
"""

from __future__ import annotations

from ..model.records import Lease
from .branches import IN_STEP
from .tasks import CURRENT


def about(lease: Lease, **more: object) -> dict[str, object]:
    """`more`: worker=, step=, where they are known."""
    return {"run_id": str(lease.id), "workflow_type": lease.type, "epoch": lease.epoch, **more}


def here() -> dict[str, object] | None:
    """What is being executed by the code that asks; None outside of runs. `attempt` is the step's in a step, else the
    run's; the first is 1."""
    owner = CURRENT.get()
    lease = getattr(owner, "lease", None)
    if lease is None:
        return None
    body = IN_STEP.get()
    worker = owner.services.worker  # type: ignore[union-attr]  # who has a lease is a stage
    if body is None:
        return about(lease, worker=worker, attempt=lease.attempt + lease.crashes + 1)
    return about(lease, worker=worker, step=body.step_id, attempt=body.attempt + 1)
