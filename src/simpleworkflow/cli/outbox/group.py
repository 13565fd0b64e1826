"""`simpleworkflow outbox …`: the group."""

from __future__ import annotations

import click

from ..common.group import Group
from .dispatch import dispatch
from .events import list_events, replay, skip
from .rules import rules
from .status import status


@click.group(cls=Group)
def outbox() -> None:
    """Events on their way out: show their state, take them to a sink, offer them again."""


for command in (dispatch, status, list_events, replay, skip, rules):
    outbox.add_command(command)
