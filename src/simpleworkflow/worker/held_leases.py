"""The leases this worker holds, shared between its loop and the renewer's thread.

A lease is here from the claim until its ending is durable, so that it is renewed while the database is away and the
entry waits in the journal. Only the loop adds and removes; the renewer looks at a copy, which a dict hands out in one
piece, so nobody needs a lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from ..clock import monotonic
from ..model.records import Lease


@dataclass(slots=True)
class HeldLease:
    lease: Lease
    renewed: float


class HeldLeases:
    def __init__(self) -> None:
        self._held: dict[UUID, HeldLease] = {}
        self.claiming_since: float | None = None
        """Since when a claim is under way, or its answer not worked through: leases may exist that are not here."""
        self.is_unsure = False
        """A stop did not wait for the answer to a claim: the same, from then on."""

    def add(self, lease: Lease, sent: float) -> None:
        """`sent` is when the claim was sent: the lease is at least as young as that."""
        self._held[lease.id] = HeldLease(lease, sent)

    def remove(self, lease: Lease) -> None:
        holding = self._held.get(lease.id)
        if holding is not None and holding.lease.epoch == lease.epoch:
            del self._held[lease.id]

    def due(self) -> list[Lease]:
        """Leases held for more than a third of their time since the claim or the last renewal."""
        now = monotonic()
        return [h.lease for h in list(self._held.values()) if now - h.renewed >= h.lease.lease_seconds / 3]

    def is_fresh(self, lease: Lease) -> bool:
        """Whether the lease cannot have ended yet, by this machine's own clock."""
        holding = self._held.get(lease.id)
        return holding is not None and monotonic() - holding.renewed < lease.lease_seconds

    def find(self, run_id: UUID) -> Lease | None:
        holding = self._held.get(run_id)
        return None if holding is None else holding.lease

    def all(self) -> list[Lease]:
        return [holding.lease for holding in list(self._held.values())]

    def renewed(self, run_id: UUID, at: float) -> None:
        holding = self._held.get(run_id)
        if holding is not None:
            holding.renewed = at

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._held

    def __len__(self) -> int:
        return len(self._held)
