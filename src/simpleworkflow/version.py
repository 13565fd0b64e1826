"""The version of the package, also for its own rooms."""

__version__ = "0.1.0"
