"""`simpleworkflow completion SHELL`: prints click's script that completes commands and options, for both names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .common.output import fail

NAMES = ("simpleworkflow", "swf")
SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script for SHELL.

    \b
    bash:  eval "$(simpleworkflow completion bash)"      in ~/.bashrc
    zsh:   eval "$(simpleworkflow completion zsh)"       in ~/.zshrc, after compinit
    fish:  simpleworkflow completion fish | source       in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        fail(f"this version of click has no completion for {shell}")
    for name in NAMES:
        click.echo(kind(ctx.find_root().command, {}, name, f"_{name.upper()}_COMPLETE").source())
