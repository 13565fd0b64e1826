"""Runs the demo in a temporary folder and removes the folder afterwards, also after Ctrl-C or SIGTERM.

Exit codes: 0 when every promise was kept; 1 when one was broken or the demo could not go on; 128 + N after signal N.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, nullcontext
from tempfile import TemporaryDirectory
from typing import NoReturn

from .orders import app
from .scenario import CannotGoOn, Scenario
from .screen import Screen
from .worker_process import last_lines_of_log


def main() -> int:
    _handle_signals()
    _make_python_path_absolute()
    screen = Screen()
    try:
        folder = TemporaryDirectory(prefix="simpleworkflow-demo-")
    except OSError as error:
        screen.say(f"the demo needs a temporary folder: {error}", "red")
        return 1
    with folder, screen.live or nullcontext():
        os.chdir(folder.name)
        try:
            with ExitStack() as processes:
                evidence = Scenario(screen, processes).run()
        except KeyboardInterrupt:
            screen.say("stopped; the workers are gone and so are their files")
            return 128 + signal.SIGINT
        except CannotGoOn as error:
            screen.say(f"{error}\n\n{last_lines_of_log()}", "red")
            return 1
        finally:
            app.sync.close()
            os.chdir("/")  # the folder is removed next
    screen.conclude(evidence)
    return 0 if evidence.is_sound else 1


def _handle_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with it ignored


def _make_python_path_absolute() -> None:
    """The workers start in another folder, and must find this package there."""
    if paths := os.environ.get("PYTHONPATH"):
        os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in paths.split(os.pathsep))


def _exit(number: int, _: object) -> NoReturn:
    """Raise, so that every `with` and `finally` cleans up."""
    raise SystemExit(128 + number)
