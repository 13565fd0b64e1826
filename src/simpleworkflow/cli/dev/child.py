"""The worker process of `simpleworkflow dev`. A new one is started for every version of the code.

The parent writes to a pipe, the lifeline: first the options as JSON, then, after the migration and the first look at
the runs, a line that lets the worker start. The end of that pipe means that the parent is gone, however it died. Then
this process stops as at SIGTERM, and exits by force when that takes too long. Options are not on the command line,
where others could read a password.

A second pipe carries reports to the parent, one line of JSON each: the files that were imported, the database of the
App, errors. The parent also shows what this process prints.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ...logs import TextFormatter, standing_by
from ...model.errors import SimpleWorkflowError, StoreUnavailable
from ...store.url import MEMORY
from ..common.exit_codes import CALLED_WRONGLY, NOT_DONE, UNCLEAN
from ..common.load_app import ModuleExited, import_app, own_lines, why_not_loaded
from ..common.output import fail
from ..workers.serve import serve

FILES_EVERY = 0.5
TRY_AGAIN_AFTER = 1.0
GRACE = 15.0
"""Seconds after the drain deadline in which a worker may end by itself."""


class Parent:
    """The pipes from and to the parent."""

    def __init__(self, lifeline: int, reports: int) -> None:
        for end in (lifeline, reports):
            os.set_inheritable(end, False)  # programs that user code starts must not keep them open
        self._lifeline = os.fdopen(lifeline, "rb", buffering=0)
        self._reports = os.fdopen(reports, "w", encoding="utf-8")
        self._guard = threading.Lock()
        self.may_begin = threading.Event()
        self._reported: set[str] = set()

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = json.loads(self._lifeline.readline())
        return options

    def die_with(self, drain: float) -> None:
        """Stop when the parent is gone. SIGTERM drains a worker that serves, and ends one that does not yet."""

        def wait() -> None:
            if self._lifeline.readline():
                self.may_begin.set()
                self._lifeline.read()
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(drain + GRACE)
            os._exit(UNCLEAN)

        threading.Thread(target=wait, name="lifeline", daemon=True).start()

    def report(self, **fields: Any) -> None:
        with self._guard:
            try:
                print(json.dumps(fields), file=self._reports, flush=True)
            except OSError:
                pass  # the parent is gone; the lifeline stops this process

    def report_files(self, *more: str) -> None:
        """Report the imported files that were not reported yet."""
        new = {*imported_files(), *more} - self._reported
        if new:
            self._reported |= new
            self.report(files=sorted(new))

    def keep_reporting_files(self) -> None:
        def go_on() -> None:
            pause = threading.Event()
            while not pause.wait(FILES_EVERY):
                self.report_files()

        threading.Thread(target=go_on, name="files", daemon=True).start()


def imported_files() -> set[str]:
    paths = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return {os.path.realpath(path) for path in paths if isinstance(path, str) and path.endswith(".py")}


def main() -> None:
    parent = Parent(int(sys.argv[1]), int(sys.argv[2]))
    options = parent.options()
    parent.die_with(options["drain"])
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"))
    with standing_by(handler, options["log_level"]):
        app = _load(options["target"], options["imports"], parent)
    parent.keep_reporting_files()
    try:
        if options["url"] is not None:
            app._client.use(options["url"])
        if app._client.address.target == MEMORY:
            parent.report(hopeless=True)
            fail("dev shows what another process does, and cannot look into its memory; name a file: --url dev.db")
        parent.report(url=app._client.url, schema=app._client.schema)
        _migrate(app, parent)
    except SimpleWorkflowError as error:
        parent.report(unloaded=True)
        fail(str(error))
    parent.may_begin.wait()
    serve(app, drain=options["drain"], name="dev")


def _load(target: str, imports: Sequence[str], parent: Parent) -> Any:
    """Import the App. A mistake in its code is printed without the frames of the import itself."""
    try:
        app = import_app(target, imports)
    except SystemExit as end:
        parent.report(unloaded=True, hopeless=end.code == CALLED_WRONGLY)
        parent.report_files()
        raise
    except BaseException as error:
        broken = [error.filename] if isinstance(error, SyntaxError) and error.filename else []
        parent.report_files(*(os.path.realpath(file) for file in broken))
        parent.report(unloaded=True)
        print(own_lines(error), file=sys.stderr, flush=True, end="")
        if isinstance(error, ModuleExited):
            fail(why_not_loaded(target, error))
        sys.exit(NOT_DONE)
    parent.report_files()
    return app


def _migrate(app: Any, parent: Parent) -> None:
    """Migrate, as soon as the database can be reached. SIGTERM ends the process."""
    while True:
        try:
            applied = app.sync.migrate()
        except StoreUnavailable as error:
            parent.report(trouble=str(error))
            threading.Event().wait(TRY_AGAIN_AFTER)
            continue
        parent.report(applied=applied)
        return


if __name__ == "__main__":
    main()
