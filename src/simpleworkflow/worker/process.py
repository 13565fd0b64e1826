"""Who holds a lease: an identity that another process on the same host can check. Short, since every lease carries it.

    orders@5f3a9c1d.4711.88392017.7e02
    name   host     pid  start    chance

The host part is drawn from the kernel's boot id and the pid namespace, so that two containers with equal hostnames are
different hosts; the start time guards against a reused pid. Where /proc is missing (not Linux) the host part is random
per process: nothing is ever judged dead early there, and leases run out by the clock.
"""

from __future__ import annotations

import gc
import hashlib
import os
import re
import secrets
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_HOLDER = re.compile(r"@([0-9a-f]{8})\.(\d+)\.(\d+)(?:\.[0-9a-f]+)?$")


@dataclass(frozen=True, slots=True)
class Identity:
    id: str
    name: str
    host: str
    pid: int


def own_identity(name: str | None = None) -> Identity:
    """A new identity for a worker in this process; unique even for two workers side by side."""
    hostname = socket.gethostname()
    pid = os.getpid()
    shown = re.sub(r"[^\w.:-]", "-", name or hostname)[:120]
    token = f"{host_token()}.{pid}.{start_time(pid) or 0}.{secrets.token_hex(2)}"
    return Identity(f"{shown}@{token}", shown, hostname, pid)


@cache
def host_token() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return secrets.token_hex(4)
    return hashlib.sha256(f"{boot}:{namespace}".encode()).hexdigest()[:8]


def start_time(pid: int) -> int | None:
    """When that process started, in the kernel's ticks; 0 for a zombie; None when it cannot be told."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])


def is_dead(holder: str) -> bool:
    """Whether this lease holder certainly lived on this host and certainly lives no more."""
    match = _HOLDER.search(holder)
    if match is None or match[1] != host_token():
        return False
    pid, started = int(match[2]), int(match[3])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it lives, as somebody else
    now = start_time(pid)
    return now is not None and now != started  # unreadable (hidepid) is not dead


def spare_collector() -> None:
    """The process is ours: what is loaded need not be looked through again and again; runs leave few circles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, *gc.get_threshold()[1:])
