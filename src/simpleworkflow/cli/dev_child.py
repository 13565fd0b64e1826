"""The worker of `simpleworkflow dev`, in a process of its own: started anew for every version of the code.

It holds one end of a pipe, the lifeline, whose other end only the parent has. The parent's first line says what to do;
its second one, when the database is migrated and has been looked at, that work may begin. The end of the pipe means
that the parent is gone, however it died: then this process stops as if it had been told to, and ends by force when
that takes too long. Nothing that belongs to `dev` stands on the command line, where everybody could read a password.

A second pipe tells the parent, in lines of JSON: which files were imported (to be watched), which database the App
uses (to be shown), and what is in the way. Everything that is printed here, by the worker's log or by user code, is
the parent's to show.
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

from ..logs import TextFormatter, standing_by
from ..model.errors import SimpleWorkflowError, StoreUnavailable
from ..store.url import MEMORY
from .common.exit_codes import CALLED_WRONGLY, NOT_DONE, UNCLEAN
from .common.load_app import ModuleExited, import_app, own_lines, why_not_loaded
from .common.output import fail
from .workers.serve import serve

FILES_EVERY = 0.5
TRY_AGAIN_AFTER = 1.0
GRACE = 15.0
"""How long after the drain deadline a worker may take to end by itself."""


class Parent:
    """The two pipes."""

    def __init__(self, lifeline: int, reports: int) -> None:
        for end in (lifeline, reports):
            os.set_inheritable(end, False)  # a program that user code starts must not keep them open
        self._lifeline = os.fdopen(lifeline, "rb", buffering=0)
        self._reports = os.fdopen(reports, "w", encoding="utf-8")
        self._guard = threading.Lock()
        self.may_begin = threading.Event()
        self._told: set[str] = set()

    def orders(self) -> dict[str, Any]:
        orders: dict[str, Any] = json.loads(self._lifeline.readline())
        return orders

    def die_with(self, drain: float) -> None:
        """Stop when the parent is gone. SIGTERM is the worker's own polite stop, and before it works simply the end."""

        def wait() -> None:
            if self._lifeline.readline():
                self.may_begin.set()
                self._lifeline.read()
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(drain + GRACE)
            os._exit(UNCLEAN)

        threading.Thread(target=wait, name="lifeline", daemon=True).start()

    def tell(self, **report: Any) -> None:
        with self._guard:
            try:
                print(json.dumps(report), file=self._reports, flush=True)
            except OSError:
                pass  # it is gone; the lifeline knows

    def tell_files(self, *more: str) -> None:
        """The files imported so far, as far as they were not told before."""
        new = {*imported_files(), *more} - self._told
        if new:
            self._told |= new
            self.tell(files=sorted(new))

    def keep_telling_files(self) -> None:
        def go_on() -> None:
            pause = threading.Event()
            while not pause.wait(FILES_EVERY):
                self.tell_files()

        threading.Thread(target=go_on, name="files", daemon=True).start()


def imported_files() -> set[str]:
    paths = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return {os.path.realpath(path) for path in paths if isinstance(path, str) and path.endswith(".py")}


def main() -> None:
    parent = Parent(int(sys.argv[1]), int(sys.argv[2]))
    orders = parent.orders()
    parent.die_with(orders["drain"])
    handler = logging.StreamHandler()
    handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"))
    with standing_by(handler, orders["log_level"]):
        app = _load(orders["target"], orders["imports"], parent)
    parent.keep_telling_files()
    try:
        if orders["url"] is not None:
            app._client.use(orders["url"])
        if app._client.address.target == MEMORY:
            parent.tell(hopeless=True)
            fail("dev shows what another process does, and cannot look into its memory; name a file: --url dev.db")
        parent.tell(url=app._client.url, schema=app._client.schema)
        _migrate(app, parent)
    except SimpleWorkflowError as error:
        parent.tell(unloaded=True)
        fail(str(error))
    parent.may_begin.wait()
    serve(app, drain=orders["drain"], name="dev")


def _load(target: str, imports: Sequence[str], parent: Parent) -> Any:
    """The App; a mistake in the code shows as the author would see it, without the frames of the loading itself."""
    try:
        app = import_app(target, imports)
    except SystemExit as end:
        parent.tell(unloaded=True, hopeless=end.code == CALLED_WRONGLY)
        parent.tell_files()
        raise
    except BaseException as error:
        broken = [error.filename] if isinstance(error, SyntaxError) and error.filename else []
        parent.tell_files(*(os.path.realpath(file) for file in broken))
        parent.tell(unloaded=True)
        print(own_lines(error), file=sys.stderr, flush=True, end="")
        if isinstance(error, ModuleExited):
            fail(why_not_loaded(target, error))
        sys.exit(NOT_DONE)
    parent.tell_files()
    return app


def _migrate(app: Any, parent: Parent) -> None:
    """A database that is not there yet is waited for; SIGTERM ends this as it ends any program."""
    while True:
        try:
            applied = app.sync.migrate()
        except StoreUnavailable as error:
            parent.tell(trouble=str(error))
            threading.Event().wait(TRY_AGAIN_AFTER)
            continue
        parent.tell(applied=applied)
        return


if __name__ == "__main__":
    main()
