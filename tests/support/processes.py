"""How other processes are, asked of the machine: tests that kill or stop some look at what has become of them."""

from __future__ import annotations

import os
from pathlib import Path


def state_of(pid: int) -> str:
    """One letter, as in ps: T is stopped by a signal, Z is dead and not yet buried. Empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(pid: int) -> bool:
    """A zombie that nobody buries has ended as well as one that is gone."""
    if Path("/proc/self").exists():
        return state_of(pid) not in ("", "Z")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
