"""A process may fork in the middle of anything: its children work, and are not locked out by ghosts."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import simpleworkflow as swf
from simpleworkflow.store.drivers.fork import ForkGate

CHILDREN = 12


def test_children_forked_in_the_middle_of_transactions_can_work(tmp_path: Path) -> None:
    app = swf.App(str(tmp_path / "fork.db"), settings=swf.Settings(store_timeout=5))
    app.sync.doctor.check()
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            app.sync.trigger_many("t.fork.v1", range(50))

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        codes = [_child(app) for _ in range(CHILDREN)]
    finally:
        stop.set()
        busy.join()
    assert codes == [0] * CHILDREN
    app.sync.close()


def _child(app: swf.App) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            for number in range(3):
                app.sync.trigger("t.child.v1", number)
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def test_the_gate_waits_for_those_inside_and_lets_nobody_in_meanwhile() -> None:
    gate = ForkGate()
    inside, leave, order = threading.Event(), threading.Event(), []

    def work() -> None:
        inside.set()
        leave.wait(10)
        order.append("worked")

    def fork() -> None:
        gate.close()
        order.append("forked")

    first = threading.Thread(target=gate.through, args=(work,))
    first.start()
    assert inside.wait(10)
    forker = threading.Thread(target=fork)
    forker.start()
    leave.set()
    forker.join(10)
    late = threading.Thread(target=gate.through, args=(lambda: order.append("late"),))
    late.start()
    gate.open()
    late.join(10)
    assert order == ["worked", "forked", "late"]
