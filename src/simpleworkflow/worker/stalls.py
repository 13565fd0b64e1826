"""Who keeps the event loop from turning: code of a run that blocks where it should await.

While an `async def` stands still, every other run of the worker does. A thread of its own asks the loop for a sign of
life; when none comes it looks at what the loop's thread is executing, twice, and blames a run only if both looks show
the same code of it: a loop that is merely busy with many short things has no culprit. Nothing is done per step or run.

Dangers: a process that was stopped as a whole (a suspended machine, a debugger) blames nobody, since this thread was
late as well. Code that keeps Python's interpreter lock to itself is not seen, for the same reason.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from types import FrameType
from typing import NamedTuple

from ..clock import monotonic
from ..model.duration import human
from ..model.records import Lease
from ..python_internals import locals_of
from ..runtime.durable.steps import Steps
from ..runtime.execute import Execution
from ..runtime.labels import about
from ..runtime.tasks import contained

log = logging.getLogger("simpleworkflow.worker")

LOOK_EVERY = 0.25
SUSPICIOUS = 0.5
LONG = 1.0
"""Seconds that code may keep the loop before it is told."""
DEEPEST = 500
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Culprit(NamedTuple):
    lease: Lease
    step: str | None
    step_id: str | None
    frame: int
    """Which call of our own it was executed by; the same number means that it is still the same one."""
    where: str
    """The line of the run's own code, for people."""

    def is_still(self, other: Culprit | None) -> bool:
        return other is not None and (self.lease, self.step_id, self.frame) == (other.lease, other.step_id, other.frame)


class Ping:
    """One question to the loop. Each is an object of its own, so that the two threads need no lock."""

    __slots__ = ("answered", "asked")

    def __init__(self, asked: float) -> None:
        self.asked = asked
        self.answered: float | None = None

    def answer(self) -> None:
        """In the loop: it turns."""
        self.answered = monotonic()


class StallWatch(threading.Thread):
    def __init__(self, loop: asyncio.AbstractEventLoop, worker: str) -> None:
        """Made in the loop's own thread."""
        super().__init__(name="simpleworkflow-stalls", daemon=True)
        self._loop = loop
        self._thread = threading.get_ident()
        self._worker = worker
        self._stopping = threading.Event()
        self._ping = Ping(monotonic())
        self._ping.answer()
        self._looked = monotonic()
        self._seen: Culprit | None = None
        self._blamed: Culprit | None = None

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY):
            try:
                self._look(monotonic())
            except RuntimeError:
                return  # the loop has been closed

    def _look(self, now: float) -> None:
        was_late, self._looked = now - self._looked > LOOK_EVERY + SUSPICIOUS, now
        ping = self._ping
        if ping.answered is not None:
            if self._blamed is not None:
                self._absolve(self._blamed, ping.answered - ping.asked)
            self._ping, self._seen, self._blamed = Ping(now), None, None
            self._loop.call_soon_threadsafe(self._ping.answer)
        elif was_late:
            ping.asked, self._seen = now, None
        elif self._blamed is None and now - ping.asked >= LONG:
            culprit = self._find()
            if culprit is not None and culprit.is_still(self._seen):
                self._blame(culprit, now - ping.asked)
            self._seen = culprit
        elif self._seen is None and now - ping.asked >= SUSPICIOUS:
            self._seen = self._find()

    def _absolve(self, blamed: Culprit, length: float) -> None:
        told = "the event loop of worker %s turns again; run %s kept it for %s"
        words = self._worker, blamed.lease.id, human(round(length, 1))
        log.warning(told, *words, extra=self._labels(blamed))

    def _blame(self, culprit: Culprit, waited: float) -> None:
        self._blamed = culprit
        lease = culprit.lease
        what = f"run {lease.id} ({lease.type})"
        log.warning(
            "the event loop of worker %s has stood still for %s in %s, at %s; nothing else goes on here meanwhile: "
            "await what takes long, or write it as a plain def, which runs in a thread",
            *(self._worker, human(round(waited, 1))),
            *(what if culprit.step is None else f"step {culprit.step} of {what}", culprit.where),
            extra=self._labels(culprit),
        )

    def _labels(self, culprit: Culprit) -> dict[str, object]:
        step = {} if culprit.step_id is None else {"step": culprit.step_id}
        return about(culprit.lease, worker=self._worker, **step)

    def _find(self) -> Culprit | None:
        frame = sys._current_frames().get(self._thread)
        try:
            return None if frame is None else culprit_in(frame)
        finally:
            del frame  # it holds on to everything that user code knows


def watch_stalls(loop: asyncio.AbstractEventLoop, worker: str) -> StallWatch:
    """Begin, in the loop's own thread."""
    watch = StallWatch(loop, worker)
    watch.start()
    return watch


_BODY, _ROOT, _TASK = Steps._body.__code__, Execution._perform.__code__, contained.__code__


def culprit_in(frame: FrameType) -> Culprit | None:
    """The run whose code is executed there, seen from the innermost frame outwards."""
    where, at, owner = "", None, None
    for _ in range(DEEPEST):
        code = frame.f_code
        if code is _BODY or code is _ROOT or code is _TASK:
            at = id(frame) if at is None else at
            owner = _named(frame)
            if code is not _TASK or owner is not None:
                break
        elif at is None and not code.co_filename.startswith(_OURS):
            where = f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    if owner is None or at is None:
        return None
    lease, step, step_id = owner
    return Culprit(lease, step, step_id, at, where or "an unknown line")


def _named(frame: FrameType) -> tuple[Lease, str | None, str | None] | None:
    known = locals_of(frame)
    body = known.get("body")
    if frame.f_code is _BODY and body is not None:
        return body.lease, body.name, body.step_id
    lease = getattr(known.get("owner" if frame.f_code is _TASK else "self"), "lease", None)
    return None if lease is None else (lease, None, None)
