"""The exit codes of the commands; 0 means done."""

from __future__ import annotations

NOT_DONE = 1
"""The work could not be done, or the check found a problem; the message says why."""
CALLED_WRONGLY = 2
"""Nothing was sent."""
UNCLEAN = 3
"""A worker stopped with code still running or entries unwritten."""
