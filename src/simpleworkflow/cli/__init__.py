"""The command line: `simpleworkflow`, or `swf` for short. A face: it owns no SQL and no rules."""

from .main import main

__all__ = ["main"]
