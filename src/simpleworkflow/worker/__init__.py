"""The crew: one role per file. claim takes runs, renew keeps them, sweep takes back what others lost, wake listens."""

from .worker import Worker, WorkerOptions

__all__ = ["Worker", "WorkerOptions"]
