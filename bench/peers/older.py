"""An older commit of ours as a peer: its source from git, an environment of its own, and a driver that it understands.

The source is exported into the cache folder of the other peers and installed into an environment there, with the
versions of all packages that are installed beside us: what differs between the two is our own code alone. Each commit
has a folder of its own, so that two comparisons at a time cannot exchange each other's code.

The driver is ours of today, so that both do the same work. If the older commit cannot run it because its API was
another one, it gets the driver of its own time, and the report says so.

The danger is to compare this working tree with itself: a PYTHONPATH of the shell would be enough. So the environment is
asked where its package comes from before anything is measured.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ground import ROOT

from peers.driving import BEFORE, HERE, NotDone, drive, older_command
from peers.venvs import CannotInstall, build, fill_with_pip, python_of, said

SOURCE = "source"
DRIVERS = {"current": HERE / "drive_ours.py", "its own": Path("bench", "peers", "drive_ours.py")}
"""In the order in which they are tried; the second is a path in the exported source."""
TRIAL = (("prepare", "3"), ("drain", "3"), ("steps", "2"), ("trigger-concurrent", "2"))


class NoSuchCommit(Exception):
    """The commit is not in this repository, or none was named and there is no tag."""


@dataclass(frozen=True, slots=True)
class Older:
    """The commit, ready to be measured."""

    commit: str
    driver: str
    """Which one it runs: the current one or its own."""

    @property
    def about(self) -> dict[str, Any]:
        """For the report."""
        return {"against": self.commit[:10], "driver_of_before": self.driver}


def commit_of(name: str, repository: Path = ROOT) -> str:
    """The full hash of what was named; of the newest tag where nothing was."""
    if not name:
        name = _git(repository, "describe", "--tags", "--abbrev=0")
        if not name:
            raise NoSuchCommit("there is no tag to compare with; name a commit: make bench-before BASE=<commit>")
    found = _git(repository, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    if not found:
        raise NoSuchCommit(f"there is no commit {name!r} in this repository")
    return found


def make(commit: str, cache: Path) -> Older:
    """Its environment, built or kept, and the driver that runs in it."""
    versions = _our_versions()
    asked = "\n".join([f"python {sys.version.split()[0]}", f"commit {commit}", *versions]) + "\n"

    def fill(folder: Path) -> None:
        export(commit, folder / SOURCE)
        (folder / "constraints.txt").write_text("\n".join(versions) + "\n")
        fill_with_pip(folder, "--constraint", str(folder / "constraints.txt"), f"{folder / SOURCE}[postgres]")

    folder = cache.resolve() / f"{BEFORE}-{commit[:12]}"
    build(folder, asked, fill)
    check_origin(folder)
    return Older(commit, choose_driver(folder))


def export(commit: str, folder: Path, repository: Path = ROOT) -> None:
    """The files of a commit."""
    folder.mkdir(parents=True)
    packed = folder.with_suffix(".tar")
    said(["git", "-C", str(repository), "archive", "--format=tar", "-o", str(packed), commit])
    said(["tar", "-xf", str(packed), "-C", str(folder)])
    packed.unlink()


def choose_driver(folder: Path) -> str:
    """The first one that does a few jobs on a SQLite file. From then on it is the driver of the older commit."""
    complaints = []
    for name, path in DRIVERS.items():
        driver = folder / SOURCE / path  # an absolute path stays what it is
        older_command[:] = [str(python_of(folder.name, folder.parent)), str(driver)]
        try:
            _try()
        except NotDone as error:
            complaints.append(f"with the driver that is {name}: {error}")
        else:
            return name
    raise CannotInstall("the older commit runs neither driver: " + "; ".join(complaints))


def _try() -> None:
    with tempfile.TemporaryDirectory(prefix="simpleworkflow-bench-") as folder:
        for command, jobs in TRIAL:
            drive(BEFORE, command, f"{folder}/trial.db", jobs)


def _our_versions() -> list[str]:
    """Of everything that is installed beside us, pinned; without ourselves."""
    frozen = said([sys.executable, "-m", "pip", "--disable-pip-version-check", "freeze", "--exclude-editable"])
    return [line for line in frozen.splitlines() if "==" in line and not line.startswith(("#", "simpleworkflow=="))]


def check_origin(folder: Path) -> None:
    """Refuse an environment that imports a package from elsewhere."""
    program = "import simpleworkflow; print(simpleworkflow.__file__)"
    found = said([str(python_of(folder.name, folder.parent)), "-P", "-c", program]).strip()
    if not Path(found).resolve().is_relative_to(folder.resolve()):
        raise CannotInstall(f"the environment of the older commit imports {found}; is PYTHONPATH set?")


def _git(repository: Path, *words: str) -> str:
    """What it says, or nothing where it refuses."""
    try:
        command = ["git", "-C", str(repository), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
