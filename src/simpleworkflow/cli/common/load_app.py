"""Imports the App that MODULE:APP names. The module is user code and may fail in any way.

An error is shown with the frames of the user's code, without those of the import itself, and with one sentence. A
module that calls sys.exit() while it is imported is reported as well: it would end the command without a message.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import click

from ...app import App
from ...model.errors import SimpleWorkflowError
from ...store.url import mask_text
from .exit_codes import CALLED_WRONGLY, NOT_DONE
from .output import fail

log = logging.getLogger("simpleworkflow.cli")

BLAMED = "__simpleworkflow_module__"
"""On an error: which module of --import raised it."""


class ModuleExited(Exception):
    """The module called sys.exit() while it was imported; the cause is its SystemExit."""


def load_app(target: str, imports: Sequence[str] = (), *, as_json: bool = False) -> App:
    """Import the App and the modules of --import; an error of theirs is printed, or logged, and ends the command."""
    try:
        return import_app(target, imports)
    except SimpleWorkflowError:
        raise  # it is one sentence already
    except Exception as error:
        why = mask_text(why_not_loaded(target, error))
        if as_json:
            log.critical("%s", why, exc_info=error)
            sys.exit(NOT_DONE)
        click.echo(mask_text(own_lines(error)), err=True, nl=False)
        fail(why)


def import_app(target: str, imports: Sequence[str] = ()) -> App:
    """The App at module:name; `module` alone means module:app. What a module raises is not caught."""
    module_name, _, name = target.partition(":")
    sys.path.insert(0, os.getcwd())
    module = _import(module_name, target)
    found = getattr(module, name or "app", None)
    if not isinstance(found, App):
        apps = [key for key, value in vars(module).items() if isinstance(value, App)]
        hint = f"; it has {', '.join(apps)}" if apps else "; it has no simpleworkflow App at all"
        fail(f"{module_name} has no App called {name or 'app'!r}{hint}", CALLED_WRONGLY)
    for each in imports:
        try:
            _import(each, each)
        except BaseException as error:
            error.__dict__.setdefault(BLAMED, each)
            raise
    return found


def _import(name: str, target: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        example = _meant(target) or "orders.work:app"
        fail(f"{name!r} is not a module; name it as in `import orders.work`: {example}", CALLED_WRONGLY)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            where = f"in {os.getcwd()} or among the installed packages"
            meant = _meant(target)
            hint = f"; did you mean {meant}?" if meant is not None else ""
            fail(f"there is no module {name!r} {where}{hint}", CALLED_WRONGLY)
        raise
    except SystemExit as end:
        raise ModuleExited("" if end.code is None else str(end.code)) from end


def _meant(target: str) -> str | None:
    """MODULE:APP for the name of a file (wf.py:app, jobs/wf.py) or a dotted name (wf.app), if that module exists here.

    Nothing is imported to find out.
    """
    file, _, name = target.partition(":")
    if file.endswith(".py"):
        module, name = file.removesuffix(".py").replace("\\", "/").removeprefix("./").replace("/", "."), name or "app"
    else:
        dotted, _, last = file.rpartition(".")
        module, name = dotted, name or last
    path = Path(*module.split("."))
    there = module and (path.with_suffix(".py").is_file() or path.is_dir() or module in sys.modules)
    return f"{module}:{name}" if there else None


def why_not_loaded(target: str, error: BaseException) -> str:
    module = error.__dict__.get(BLAMED) or target.partition(":")[0]
    if isinstance(error, ModuleExited):
        code = f": {error}" if str(error) else ""
        advice = 'keep what starts a program behind `if __name__ == "__main__":`'
        return f"{module} ends the program while it is loaded{code}; {advice}"
    return f"{module} cannot be loaded: {traceback.format_exception_only(error)[-1].strip()}"


def own_lines(error: BaseException) -> str:
    """The traceback without the frames of the command and of importlib."""
    shown = error.__cause__ or error if isinstance(error, ModuleExited) else error
    report = traceback.TracebackException.from_exception(shown)
    command_line = str(Path(__file__).parents[1])
    report.stack[:] = [f for f in report.stack if not f.filename.startswith((command_line, "<frozen importlib"))]
    for frame in list(report.stack):
        if frame.filename.endswith(f"importlib{os.sep}__init__.py"):
            report.stack.remove(frame)
    return "".join(report.format())
