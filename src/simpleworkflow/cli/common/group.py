"""Groups of commands: help that shows whole sentences, and a hint when a word is no command."""

from __future__ import annotations

from collections.abc import Iterable

import click


class Group(click.Group):
    """A group whose help shows what each command does as a whole sentence, instead of cutting it off."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        lines = [(name, command.get_short_help_str(300)) for name, command in found.items() if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(lines)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            shown = f"{ctx.command_path} {args[0]}".removeprefix(f"{ctx.find_root().command_path} ")
            meant = self.meant_by(ctx, args[0])
            ctx.fail(f"there is no command {shown!r}{f'; did you mean {meant}?' if meant else ''}")
        return super().resolve_command(ctx, args)

    def meant_by(self, ctx: click.Context, word: str) -> str:
        """Commands of this group that are spelled alike, else what the word means outside of it."""
        from difflib import get_close_matches

        root = ctx.find_root()
        outside = root.command if isinstance(root.command, Group) else self
        if outside is not self and outside.get_command(root, word) is not None:
            return pointer(root, [word])
        near = get_close_matches(word, self.list_commands(ctx), 2)
        return pointer(ctx, near) if near or outside is self else outside.meant_by(root, word)


def pointer(ctx: click.Context, words: Iterable[str]) -> str:
    return " or ".join(f"`{ctx.command_path} {word}`" for word in words)
