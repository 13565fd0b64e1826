"""`simpleworkflow demo`: the command. The demo itself is the package `simpleworkflow.demo`, imported when it runs."""

from __future__ import annotations

import sys

import click


@click.command()
def demo() -> None:
    """Watch 24 orders survive two killed workers.

    Runs on SQLite in a temporary folder, takes about 15 seconds and leaves nothing behind. The closing table shows from
    what the steps did that no finished step ran again.
    """
    from ..demo.main import main

    sys.exit(main())
