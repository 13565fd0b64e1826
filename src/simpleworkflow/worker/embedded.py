"""A worker inside a program of the user's own: on a thread and an event loop of its own.

The program's own loop may be blocked, or end and begin again; leases must be renewed meanwhile. Signals stay with the
program. The thread is a daemon: a program that ends without stopping its worker leaves its runs to others.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from uuid import UUID

from ..model.duration import human
from ..model.errors import InvalidPolicy, StoreUnavailable
from .worker import Worker

log = logging.getLogger("simpleworkflow.worker")

START_TIMEOUT = 30.0
TURNS = 5


class EmbeddedWorker:
    """A worker on a thread of its own; the same object serves `with` and `async with`."""

    def __init__(self, check: Callable[[], None], make: Callable[[], Worker]) -> None:
        self._check = check
        self._make = make
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: asyncio.Runner | None = None
        self._worker: Worker | None = None
        self._up = threading.Event()
        self._trouble: BaseException | None = None

    def start(self) -> None:
        """Returns when the worker is ready; trouble with the database is raised here, not logged in a thread."""
        if self._thread is not None:
            raise InvalidPolicy("this worker has been started already; make another one with app.worker()")
        self._check()
        self._thread = threading.Thread(target=self._serve, name="simpleworkflow-worker", daemon=True)
        self._thread.start()
        in_time = self._up.wait(START_TIMEOUT)
        if in_time and self._trouble is None:
            return
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        self.stop()
        raise StoreUnavailable(f"the worker was not ready within {human(START_TIMEOUT)}")

    def nudge(self) -> None:
        """Look for work now instead of at the next poll."""
        if self._loop is not None and self._worker is not None:
            self._loop.call_soon_threadsafe(self._worker.nudge)

    def is_idle(self, run_id: UUID, wakes: int, *, but_for_bodies: bool = False) -> bool:
        """Whether this run is under way here and only waits, knowing all that has happened to it."""
        return self._worker is not None and self._worker.is_idle(run_id, wakes, but_for_bodies)

    async def turn(self) -> None:
        """Let the worker's loop go round a few times: what is about to happen there happens."""

        async def go_round() -> None:
            for _ in range(TURNS):
                await asyncio.sleep(0)

        if self._loop is not None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go_round(), self._loop))

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """Stop gracefully and wait for it; bounded by the drain deadline. Raises what ended it before, if anything."""
        if self._loop is not None and self._worker is not None and self._thread is not None:
            try:
                self._loop.call_soon_threadsafe(self._worker.stop)
            except RuntimeError:
                pass  # it has ended already
            self._thread.join()
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    def _serve(self) -> None:
        runner = self._runner = asyncio.Runner()
        try:
            self._loop = runner.get_loop()
            runner.run(self._work())
        except BaseException as error:
            if self._up.is_set():
                log.critical("the embedded worker ended; runs wait for another one", exc_info=error)
            self._trouble = error
        finally:
            self._up.set()
            if self._worker is None or self._worker.stays_behind is None:
                runner.close()
            else:
                # Closing would wait for code that does not stop, and that code may still call into this loop.
                log.warning(self._worker.stays_behind)

    async def _work(self) -> None:
        worker = self._worker = self._make()
        started = asyncio.ensure_future(worker.ready.wait())
        started.add_done_callback(lambda _: self._up.set())
        try:
            await worker.run()
        finally:
            started.cancel()

    def __enter__(self) -> EmbeddedWorker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> EmbeddedWorker:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)
