"""Turns what cannot be a schedule into a mistake of the caller: exit code 2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from ...model.errors import InvalidInput, InvalidName, InvalidSchedule
from ..common.output import safe


@contextmanager
def refusing() -> Iterator[None]:
    try:
        yield
    except (InvalidSchedule, InvalidInput, InvalidName) as error:
        raise click.UsageError(safe(str(error))) from None
