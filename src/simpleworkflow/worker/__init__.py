"""The crew: one role per file. claim takes runs, renew keeps them, sweep takes back what others lost, wake listens."""

from .options import WorkerOptions
from .worker import Worker

__all__ = ["Worker", "WorkerOptions"]
