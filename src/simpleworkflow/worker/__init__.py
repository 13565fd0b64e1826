"""The worker, one role per file: claim takes runs, renew keeps their leases, sweep takes back what others lost."""

from .options import WorkerOptions
from .worker import Worker

__all__ = ["Worker", "WorkerOptions"]
