"""The tree of commands. The module of a command is imported when the command is called, so that `--help` is fast."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from ..model.errors import InvalidURL, SimpleWorkflowError
from .common.exit_codes import CALLED_WRONGLY
from .common.group import Group, pointer
from .common.output import fail
from .common.streams import not_text, prepare, why_unwritable

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo:demo", "Watch 24 orders survive two killed workers."),
    "init": ("project.init:init", "Write a small example project."),
    "dev": ("dev.command:dev", "Run a worker that reloads when the code changes, and watch its runs."),
    "worker": ("workers.worker:worker", "Run a worker for the App that MODULE holds."),
    "explain": ("runs.explain:explain", "Say where a run stands and why."),
    "trigger": ("runs.trigger:trigger", "Start a run."),
    "runs": ("runs.group:runs", "List, show, watch and change runs."),
    "history": ("history.command:history", "Draw the timeline of a run and tell its history."),
    "schedule": ("schedules.group:schedule", "List, write, pause, resume, delete and run schedules."),
    "workers": ("workers.listing:workers", "List the workers that are alive."),
    "events": ("history.events:events", "Print the audit trail of all runs."),
    "top": ("top.command:top", "Show counts, rates, lateness and workers, live."),
    "outbox": ("outbox.group:outbox", "Take events to others; see what waits, offer again, skip."),
    "doctor": ("maintenance.doctor:doctor", "Examine a database and the work in it."),
    "prune": ("maintenance.prune:prune", "Delete old finished runs for good."),
    "migrate": ("schema.group:migrate", "Bring the tables of a database up or down; or print the SQL."),
    "bench": ("bench.command:bench", "Measure what a database gives on this machine."),
    "completion": ("completion:completion", "Print a completion script for a shell."),
}
"""Name -> (module:command, the line that `--help` shows for it)."""
GROUPS = ("runs", "schedule", "outbox", "migrate")
OTHER_WORDS = {"status": ["explain", "runs show"], "start": ["trigger", "worker"], "run": ["trigger", "worker"]}
"""What people type -> commands that they may mean, where no command is spelled alike."""


class Commands(Group):
    """The root. Mistakes of users end with one sentence, never with a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        found = getattr(import_module(f".{module}", __package__), attribute)
        assert isinstance(found, click.Command)
        return found

    def meant_by(self, ctx: click.Context, name: str) -> str:
        """The group that has a command of that name, or a command that is spelled alike."""
        from difflib import get_close_matches

        groups = {group: self.get_command(ctx, group) for group in GROUPS}
        inside = [group for group, found in groups.items() if isinstance(found, click.Group) and name in found.commands]
        found = OTHER_WORDS.get(name) or [f"{group} {name}" for group in inside]
        return pointer(ctx, found or get_close_matches(name, COMMANDS, 2))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InvalidURL as error:
            fail(str(error), CALLED_WRONGLY)
        except SimpleWorkflowError as error:
            fail(str(error))

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        prepare()
        given = list(sys.argv[1:] if args is None else args)
        if (shown := not_text(given)) is not None:
            fail(f"the argument {shown} is not UTF-8; write it as text", CALLED_WRONGLY)
        try:
            return super().main(given, *rest, **options)
        except OSError as error:
            if (why := why_unwritable(error)) is None:
                raise
            fail(f"standard output cannot be written: {why}")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="simpleworkflow", prog_name="simpleworkflow")
def main() -> None:
    """Durable workflows for Python, on SQLite or PostgreSQL."""
