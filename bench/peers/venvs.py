"""One environment per peer, at pinned versions, so that a comparison can be made again next year.

Peers disagree about their dependencies (drivers above all), so none shares an environment with another or with us. The
environments live in a cache folder outside the repository: `--cache`, else SIMPLEWORKFLOW_BENCH_CACHE, else
~/.cache/simpleworkflow-bench. Every virtual environment uses the interpreter that runs this file, which is ours: a
comparison between two Pythons would be a comparison of Pythons. A peer written for Node gets a folder of its own as
well, filled by npm.

The danger is a half-made environment that looks finished. The list of what was asked for is written into the
environment last, and an environment whose list differs from the pins is made anew. What came along with the pins is
kept beside it: the frozen list of pip, the lock file of npm.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

PINS: dict[str, tuple[str, ...]] = {
    "dbos": ("dbos==3.3.0", "psycopg[binary]==3.3.8"),
    # Its own SQLite: the one of an older system lacks what dbos needs (unixepoch with 'subsec').
    "dbos_sqlite": ("dbos==3.3.0", "psycopg[binary]==3.3.8", "pysqlite3-binary==0.5.4.post2"),
    "pgqueuer": ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
    "procrastinate": ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8"),
    "absurd": ("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]==3.3.8"),
    "pgqrs": ("pgqrs==0.15.3", "psycopg[binary]==3.3.8"),
}
NODE_PINS: dict[str, tuple[str, ...]] = {"graphile": ("graphile-worker@0.17.3",)}
STAMP = "pins.txt"


class CannotInstall(Exception):
    """A peer cannot be had here: no such program, no network, no such version."""


def cache_folder() -> Path:
    named = os.environ.get("SIMPLEWORKFLOW_BENCH_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "simpleworkflow-bench"


def python_of(peer: str, cache: Path | None = None) -> Path:
    """The interpreter that runs a peer's driver."""
    return (cache or cache_folder()) / peer / "bin" / "python"


def wanted(peer: str) -> str:
    """What the stamp must say. The interpreter belongs to it: an upgraded one is another environment."""
    if peer in NODE_PINS:
        return "\n".join([f"node {said(['node', '--version']).strip()}", *NODE_PINS[peer]]) + "\n"
    return "\n".join([f"python {sys.version.split()[0]}", *PINS[peer]]) + "\n"


def make(peer: str, cache: Path) -> None:
    """Build a peer's environment, or keep the one that has these pins already."""

    def fill(folder: Path) -> None:
        if peer in NODE_PINS:
            _fill_with_npm(peer, folder)
        else:
            fill_with_pip(folder, *PINS[peer])

    build(cache / peer, wanted(peer), fill)


def build(folder: Path, asked: str, fill: Callable[[Path], None]) -> None:
    """Keep the folder if its stamp is what is asked for; otherwise fill an empty one."""
    stamp = folder / STAMP
    if stamp.is_file() and stamp.read_text() == asked:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    fill(folder)
    stamp.write_text(asked)


def fill_with_pip(folder: Path, *wanted: str) -> None:
    """Make the folder a virtual environment, and install into it."""
    said([sys.executable, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    said([*pip, "install", *wanted])
    (folder / "frozen.txt").write_text(said([*pip, "freeze"]))


def _fill_with_npm(peer: str, folder: Path) -> None:
    (folder / "package.json").write_text('{"private": true}\n')
    npm = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--save-exact"]
    said([*npm, *NODE_PINS[peer]])


def said(command: list[str]) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except subprocess.CalledProcessError as error:
        told = f"{error.stderr or ''}".strip()[-500:]
        raise CannotInstall(f"{' '.join(command)} ended with {error.returncode}: {told}") from error
    except OSError as error:
        raise CannotInstall(f"{command[0]}: {error}") from error


def main() -> int:
    everyone = [*PINS, *NODE_PINS]
    parser = argparse.ArgumentParser(description="Create the peers' environments.")
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"all of them by default: {', '.join(everyone)}")
    parser.add_argument("--cache", type=Path, default=cache_folder())
    options = parser.parse_args()
    unknown = sorted(set(options.peers) - set(everyone))
    if unknown:
        parser.error(f"no such peer: {', '.join(unknown)}")
    failed = 0
    for peer in options.peers or everyone:
        try:
            make(peer, options.cache)
            print(f"{peer}: ready in {options.cache / peer}")
        except CannotInstall as error:  # one peer that cannot be had must not cost us the others
            failed += 1
            print(f"{peer}: not installed ({error})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
