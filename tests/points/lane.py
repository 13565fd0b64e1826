"""One database on which crash points are tried one after another, and many of them side by side.

A point is one run: it is triggered, told its first signal, and given to a worker that carries the fault. When that
worker is dead another one takes over; when it survived an error it goes on by itself. The second signal is sent when
the run waits for it. Waiting is most of the time, so lanes are cheap: a few threads fill the machine.
"""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from uuid import UUID

import simpleworkflow as swf

from . import checker, parcels, workers
from .faults import DEATHS, Fault

LIMIT = 40.0
LOOK_EVERY = 0.03

NewDatabase = Callable[[], str]


@dataclass
class Trial:
    """One run from its trigger to the evidence it left."""

    url: str
    folder: Path
    fault: Fault | None
    number: int
    staff: list[BaseProcess] = field(default_factory=list)
    sights: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.effects = self.folder / "effects.log"
        self.tables = checker.Tables(self.url)
        self.app = swf.App(self.url)
        self.survived = True

    def perform(self) -> dict[str, Any]:
        """Run it to its end, whatever that is; returns the evidence."""
        try:
            handle = self.app.sync.trigger("points.order.v1", self.number)
            handle.signal("early", f"early {self.number}")
            self._hire("victim", self.fault or Fault())
            self._watch(handle)
            self._await_fault()
            return self._evidence(handle.id)
        finally:
            for worker in self.staff:
                worker.kill()
            for worker in self.staff:
                worker.join()
            self.app.sync.close()
            self.tables.close()

    def _hire(self, name: str, fault: Fault) -> None:
        self.staff.append(workers.start(self.url, self.folder, name, fault))

    def _watch(self, handle: Any) -> None:
        """Until the run has ended: note what is on record, send what it waits for, replace a dead worker."""
        run_id, told = str(handle.id), False
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            dead = not self.staff[-1].is_alive()
            self._note(checker.sight(self.tables, run_id, self.effects))
            run = self.tables.run(run_id)
            if run["status"] in checker.ENDS:
                return
            if dead and len(self.staff) == 1:
                self._hire("heir", Fault())
            if not told and run["status"] == "paused" and self._waits_for_signal(run_id):
                handle.signal("late", f"late {self.number}")
                told = True
            time.sleep(LOOK_EVERY)

    def _note(self, sight: dict[str, Any]) -> None:
        """The first sight of each state of the record is the strictest; later ones of the same say less."""
        if not self.sights or self.sights[-1]["steps"] != sight["steps"]:
            self.sights.append(sight)

    def _waits_for_signal(self, run_id: str) -> bool:
        return any(row["kind"] == "signal" and row["status"] == "waiting" for row in self.tables.steps(run_id))

    def _await_fault(self) -> None:
        """A fault in the last round trip strikes about when the end is seen; a death that was marked must follow."""
        deadline = time.monotonic() + (1.0 if self.fault else 0.0)
        while time.monotonic() < deadline and not checker.read_lines(self.folder / "marks.log"):
            time.sleep(LOOK_EVERY)
        if self.fault is not None and self.fault.kind in DEATHS and checker.read_lines(self.folder / "marks.log"):
            self.staff[0].join(10.0)
        self.survived = self.staff[0].exitcode is None

    def _evidence(self, run_id: UUID) -> dict[str, Any]:
        return {
            "run_id": str(run_id),
            "number": self.number,
            "emits": parcels.EMITS,
            "fault": self.fault,
            "marks": checker.read_lines(self.folder / "marks.log"),
            "effects": checker.read_lines(self.effects),
            "sights": self.sights,
            **self.tables.ledger(str(run_id), emits=parcels.EMITS),
        }

    def complaints(self, evidence: dict[str, Any]) -> list[str]:
        """What the judge says, and whether the first worker fared as its fault would have it."""
        found = checker.judge(evidence)
        dies = self.fault is not None and self.fault.kind in DEATHS and bool(evidence["marks"])
        if dies == self.survived:
            found.append("the worker outlived its death" if dies else "the worker did not survive; see victim.log")
        return found


class Lanes:
    """Tries points, several at a time, each on a database that no other point uses meanwhile."""

    def __init__(self, folder: Path, new_database: NewDatabase) -> None:
        self._folder = folder
        self._new_database = new_database
        self._serial = itertools.count(1)
        self._free: SimpleQueue[str] = SimpleQueue()

    def clean_run(self, times: int = 3) -> list[dict[str, Any]]:
        """The round trips of a run that nothing happens to: the fewest of some such runs, since one that a busy machine
        holds up may need another one, and a fault in that would strike nobody else."""
        return min((self._clean_run() for _ in range(times)), key=len)

    def _clean_run(self) -> list[dict[str, Any]]:
        trial, found = self._try(None)
        assert not found, f"even a run without faults breaks promises: {found}\n{logs(trial.folder)}"
        (trips,) = trial.folder.glob("trips-*.log")
        return checker.read_lines(trips)

    def try_all(self, faults: Iterable[Fault], *, side_by_side: int = 8, tries: int = 3) -> dict[Fault, list[str]]:
        """The points that broke a promise, with what they broke.

        A fault that did not fire is tried again: the child can be faster or slower than its parent by a round trip.
        """
        wanted = list(faults)
        with ThreadPoolExecutor(side_by_side) as threads:
            verdicts = list(threads.map(lambda fault: self._verdict(fault, tries), wanted))
        return {fault: verdict for fault, verdict in zip(wanted, verdicts, strict=True) if verdict}

    def _verdict(self, fault: Fault, tries: int) -> list[str]:
        found: list[str] = []
        for _ in range(tries):
            trial, found = self._try(fault)
            if checker.read_lines(trial.folder / "marks.log") or len(found) > 1:
                return [*found, logs(trial.folder)] if found else []
        return found

    def _try(self, fault: Fault | None) -> tuple[Trial, list[str]]:
        number = next(self._serial)
        url = self._database()
        trial = Trial(url, self._folder / f"point-{number}", fault, number)
        evidence = trial.perform()
        found = trial.complaints(evidence)
        (trial.folder / "evidence.json").write_text(json.dumps(evidence))
        if not found:
            self._free.put(url)  # nothing is open in it; what broke a promise is left alone
        return trial, found

    def _database(self) -> str:
        try:
            return self._free.get_nowait()
        except Empty:
            return self._new_database()


def logs(folder: Path) -> str:
    return "\n".join(f"{path}:\n{path.read_text()[-2000:]}" for path in sorted(folder.glob("*.log")))


def copies_of(template: Path) -> NewDatabase:
    """New SQLite files with the tables in them."""
    serial = itertools.count()

    def copy() -> str:
        target = template.with_name(f"copy-{next(serial)}.db")
        shutil.copy(template, target)
        return str(target)

    return copy
