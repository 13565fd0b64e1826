"""What a doctor looks at in a SQLite file and around it: the library's version, the disk that it lies on, and its log.

The library has one bug that matters here (sqlite.org/wal.html, "the WAL-reset bug"): from 3.7.0 to 3.51.2 a checkpoint
that races a writer in another connection can corrupt the file. The driver takes care not to make such checkpoints;
other programs that write to the file may not.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path
from shlex import quote

from ...store.operations import health
from ...store.url import MEMORY
from .findings import Finding, Level, Limits, Look, size

MENDED = (3, 51, 3)
BACKPORTS = {(3, 44): 6, (3, 50): 7}
"""Older lines with the mended patch level of each."""
NETWORKED = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "glusterfs", "gfs2", "ocfs2", "beegfs", "gpfs",
    "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.juicefs",
}  # fmt: skip
MOUNTS = Path("/proc/self/mountinfo")


async def version(look: Look) -> list[Finding]:
    facts = await look.ask(health.file_facts())
    assert facts is not None
    return [judge_version(facts.version)]


def judge_version(text: str) -> Finding:
    major, minor, patch = (int(part) for part in text.split(".")[:3])
    mended = BACKPORTS.get((major, minor))
    if (major, minor, patch) >= MENDED or (mended is not None and patch >= mended):
        return Finding("version", Level.OK, f"SQLite {text}")
    seen = (
        f"SQLite {text} has the WAL-reset bug, which can corrupt a file that several connections write to; "
        "simpleworkflow's own connections avoid the race, other programs may not"
    )
    fix = "use a Python with SQLite 3.51.3 or newer; until then PRAGMA wal_autocheckpoint = 0 in every other program"
    return Finding("version", Level.WARNING, seen, fix)


async def file_system(look: Look) -> list[Finding]:
    path = look.ledger.url.target
    if path == MEMORY:
        seen = "the database is in memory: its runs end with this process"
        return [Finding("file-system", Level.NOTE, seen, "name a file in the URL to keep them")]
    kind = await asyncio.to_thread(_kind_of, path)
    if kind in NETWORKED:
        seen = (
            f"{path} lies on a network file system ({kind}), which does not lock as SQLite needs: it can be corrupted"
        )
        return [Finding("file-system", Level.PROBLEM, seen, "move the file to a local disk, or use PostgreSQL")]
    told = f"a local one ({kind})" if kind else "it cannot be told on this system"
    return [Finding("file-system", Level.OK, told)]


def _kind_of(path: str) -> str | None:
    try:
        return kind_of_mount(os.path.realpath(path), MOUNTS.read_text())
    except OSError:
        return None


def kind_of_mount(path: str, mountinfo: str) -> str | None:
    """The file system that a path lies on: of all mounts above it the longest, of those the last."""
    best: tuple[int, str] | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or not kind:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        above = point.rstrip("/") + "/"
        if (path + "/").startswith(above) and (best is None or len(above) >= best[0]):
            best = len(above), kind[0]
    return None if best is None else best[1]


async def disk_space(look: Look) -> list[Finding]:
    path = look.ledger.url.target
    if path == MEMORY:
        return []
    free = await asyncio.to_thread(lambda: shutil.disk_usage(os.path.dirname(os.path.realpath(path))).free)
    return [judge_space(free, path, look.limits)]


def judge_space(free: int, path: str, limits: Limits) -> Finding:
    seen = f"{size(free)} are free where {path} lies"
    fix = "make room on that disk: on a full one no run can be accepted and none can end"
    if free < limits.space_problem:
        return Finding("disk-space", Level.PROBLEM, seen, fix)
    if free < limits.space_warning:
        return Finding("disk-space", Level.WARNING, seen, fix)
    return Finding("disk-space", Level.OK, seen)


def log_bytes(path: str) -> int:
    """To be asked before anything opens the file: the last one to close it may empty the log."""
    try:
        return os.stat(path + "-wal").st_size
    except OSError:
        return 0


async def log(look: Look) -> list[Finding]:
    """The log grows without end while somebody keeps a read transaction open: SQLite's form of a forgotten snapshot."""
    path = look.ledger.url.target
    if path == MEMORY:
        return []
    length = look.log_bytes
    if length <= look.limits.log_bytes:
        return [Finding("log", Level.OK, f"the write-ahead log has {size(length)}")]
    seen = (
        f"the write-ahead log has {size(length)}: a program keeps a read transaction open, so that it cannot be "
        "emptied, or the last one that wrote was killed"
    )
    fix = f"find it and end it: fuser -v {quote(path)}; when nobody has the file open, the next worker empties the log"
    return [Finding("log", Level.WARNING, seen, fix)]
