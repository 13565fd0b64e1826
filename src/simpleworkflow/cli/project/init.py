"""`simpleworkflow init [DIR]`: writes a small project: a workflow, a program that starts it, a test.

Nothing is overwritten: when one of the files exists, none is written. The templates are package data; their suffix
`.tmpl` keeps tools from taking them for code of this package.
"""

from __future__ import annotations

import os
import shlex
from importlib.resources import files
from pathlib import Path

import click

from ..common.options import json_option
from ..common.output import fail, say_json

FILES = {
    "workflows.py": "workflows.py.tmpl",
    "order.py": "order.py.tmpl",
    "test_workflows.py": "test_workflows.py.tmpl",
    "README.md": "README.md.tmpl",
    "requirements.txt": "requirements.txt.tmpl",
    ".gitignore": "gitignore.tmpl",
}
"""File of the project -> template."""


@click.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@json_option
def init(folder: Path, as_json: bool) -> None:
    """Write a small example project into DIR, or here."""
    _refuse_to_overwrite(folder)
    written = _write(folder)
    enter = "" if folder == Path(".") else f"cd {shlex.quote(str(folder))} && "
    commands = [f"{enter}simpleworkflow dev workflows:app", f"{enter}python order.py"]
    if as_json:
        say_json({"folder": str(folder), "files": [str(path) for path in written], "next": commands})
        return
    for path in written:
        click.echo(f"wrote {path}")
    click.echo(f"\nStart a worker that reloads when you change the code:\n\n    {commands[0]}\n")
    click.echo(f"Then give an order, in another terminal:\n\n    {commands[1]}")


def _refuse_to_overwrite(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        fail(f"{folder} is not a folder; name one that is empty or does not exist yet")
    there = [name for name in FILES if os.path.lexists(folder / name)]
    if there:
        fail(f"nothing was written, for these are there already: {', '.join(str(folder / name) for name in there)}")


def _write(folder: Path) -> list[Path]:
    templates = files(__package__) / "templates"
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, template in FILES.items():
            with (folder / name).open("x", encoding="utf-8") as file:  # x: refuses a file that was made meanwhile
                file.write((templates / template).read_text(encoding="utf-8"))
            written.append(folder / name)
    except OSError as error:
        fail(f"the project could not be written: {error}")
    return written
