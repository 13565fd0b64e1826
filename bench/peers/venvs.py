"""One virtual environment per peer, at pinned versions, so that a comparison can be made again next year.

Peers disagree about their dependencies (drivers above all), so none shares an environment with another or with us. The
environments live in a cache folder outside the repository: `--cache`, else SIMPLEWORKFLOW_BENCH_CACHE, else
~/.cache/simpleworkflow-bench. Every environment uses the interpreter that runs this file, which is ours: a comparison
between two Pythons would be a comparison of Pythons.

The danger is a half-made environment that looks finished. The list of what was asked for is written into the
environment last, and an environment whose list differs from the pins is made anew. `pip freeze` is kept beside it:
the pins name the peer and its driver, the frozen list says what came along.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

PINS: dict[str, tuple[str, ...]] = {
    "dbos": ("dbos==3.3.0", "psycopg[binary]==3.3.8"),
    "pgqueuer": ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
    "procrastinate": ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8"),
    "absurd": ("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]==3.3.8"),
    "pgqrs": ("pgqrs==0.15.3", "psycopg[binary]==3.3.8"),
}
STAMP = "pins.txt"


def cache_folder() -> Path:
    named = os.environ.get("SIMPLEWORKFLOW_BENCH_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "simpleworkflow-bench"


def python_of(peer: str, cache: Path | None = None) -> Path:
    """The interpreter that runs a peer's driver."""
    return (cache or cache_folder()) / peer / "bin" / "python"


def is_ready(peer: str, cache: Path) -> bool:
    stamp = cache / peer / STAMP
    return stamp.is_file() and stamp.read_text() == wanted(peer)


def wanted(peer: str) -> str:
    """What the stamp must say. The interpreter belongs to it: an upgraded Python is another environment."""
    return "\n".join([f"python {sys.version.split()[0]}", *PINS[peer]]) + "\n"


def make(peer: str, cache: Path) -> None:
    """Build a peer's environment, or keep the one that has these pins already."""
    if is_ready(peer, cache):
        return
    folder = cache / peer
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python_of(peer, cache)), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *PINS[peer]], check=True)
    frozen = subprocess.run([*pip, "freeze"], check=True, capture_output=True, text=True).stdout
    (folder / "frozen.txt").write_text(frozen)
    (folder / STAMP).write_text(wanted(peer))


def main() -> int:
    parser = argparse.ArgumentParser(description="Create the peers' virtual environments.")
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"all of them by default: {', '.join(PINS)}")
    parser.add_argument("--cache", type=Path, default=cache_folder())
    options = parser.parse_args()
    unknown = sorted(set(options.peers) - set(PINS))
    if unknown:
        parser.error(f"no such peer: {', '.join(unknown)}")
    failed = 0
    for peer in options.peers or PINS:
        try:
            make(peer, options.cache)
            print(f"{peer}: ready in {options.cache / peer}")
        except subprocess.CalledProcessError as error:  # one peer that cannot be had must not cost us the others
            failed += 1
            print(f"{peer}: not installed ({' '.join(map(str, error.cmd))} ended with {error.returncode})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
