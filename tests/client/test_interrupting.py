"""Ctrl-C ends a blocking call, whichever thread the system hands the signal to."""

from __future__ import annotations

import signal
import threading
import time

import pytest

import simpleworkflow as swf

STUCK = 20.0
"""Seconds after which a wait that nothing has interrupted is over, so that the test can fail."""


def test_an_interrupt_that_another_thread_takes_ends_a_blocking_wait(app: swf.App) -> None:
    """The interpreter notes it and acts in the main thread, which sleeps in a lock that nothing has disturbed. The same
    happens to a signal that comes between the last look for signals and that sleep."""
    handle = app.sync.trigger("test.nobody.v1")
    waits = threading.Event()

    def interrupt() -> None:
        waits.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    waits.set()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        app.sync.handle(handle.id).wait(timeout=STUCK)
    assert time.monotonic() - began < STUCK / 2
