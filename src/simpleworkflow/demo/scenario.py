"""What happens in the demo: orders are accepted, worker processes do the work, and two of them are killed.

The demo process accepts the orders and approves them by signals. Two `simpleworkflow worker` processes run them on one
SQLite file. Each of them is killed with SIGKILL while it is inside several steps; another one takes over, and a new one
starts. What happened is read from the effects log and from the tables, not from what this process has seen.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from uuid import UUID

from ..clock import SystemClock
from ..model.records import Run
from ..model.states import Status
from .effects_log import Effect, bodies_under_way, note, read_effects
from .evidence import Evidence, RunRecord
from .orders import APPROVED, Order, app, fulfil, label
from .screen import Screen
from .worker_process import WorkerProcess

ORDERS = 24
KILL_AFTER = (0.25, 0.6)
"""The share of all steps that must be done before each kill."""
TIME_LIMIT = 50.0
LOOK_EVERY = 0.1
APPROVE_AFTER = 0.6
"""How long an order waits for its approval, so that the wait can be seen."""


class CannotGoOn(Exception):
    """A worker ended by itself, or the demo takes too long."""


class Scenario:
    def __init__(self, screen: Screen, processes: ExitStack) -> None:
        self.screen = screen
        self._processes = processes
        self._alive: list[WorkerProcess] = []
        self._dead: set[str] = set()
        self._approved: set[UUID] = set()
        self._waiting_since: dict[UUID, float] = {}
        self.steps = 0

    def run(self) -> Evidence:
        """Play everything, in the current folder."""
        orders = [make_order(number) for number in range(1, ORDERS + 1)]
        self.steps = sum(3 + len(order.parcels) for order in orders)
        accepted = [handle.id for handle in app.sync.trigger_many(fulfil, orders)]
        self.screen.say(f"{ORDERS} orders are accepted, {self.steps} steps in all; there is no worker yet")
        for run_id, order in zip(accepted, orders, strict=True):
            if order.number % 4 == 1:
                self._approve(run_id, order.number)  # sent before the run waits for it
        self._start("north")
        self._start("south")
        for share, victim, relief in zip(KILL_AFTER, ("north", "south"), ("east", "west"), strict=True):
            self._kill(victim, when_done=share)
            self._start(relief)
        self._watch(until=lambda runs, _: all(run.is_finished for run in runs))
        for worker in self._alive:
            worker.process.terminate()
        for worker in self._alive:
            worker.process.wait()
        labels = [run.id for run in app.sync.runs(type=label.name)]
        return Evidence(read_effects(), records_of(accepted), records_of(labels))

    def _start(self, name: str) -> None:
        worker = WorkerProcess(name)
        self._processes.callback(worker.kill)  # it never outlives the demo
        self._alive.append(worker)
        self.screen.say(f"worker {name} starts, process {worker.pid}", "bold cyan")

    def _kill(self, name: str, *, when_done: float) -> None:
        """Kill that worker once that share of the steps has ended and it is inside at least two."""
        (victim,) = [worker for worker in self._alive if worker.name == name]

        def may_kill(_: list[Run], effects: list[Effect]) -> bool:
            done = sum(line.what == "end" for line in effects)
            return done >= when_done * self.steps and bodies_under_way(effects, victim.pid) >= 2

        self._watch(until=may_kill)
        at = SystemClock().wall()
        victim.kill()
        note(Effect("kill", at, victim.pid))
        self._alive.remove(victim)
        self._dead.add(name)
        inside = bodies_under_way(read_effects(), victim.pid)
        self.screen.say(f"kill -9 {victim.pid}: worker {name} is gone, in the middle of {inside} steps", "bold red")

    def _approve_waiting(self, runs: list[Run]) -> None:
        for run in runs:
            if run.status is Status.PAUSED and run.id not in self._approved:
                since = self._waiting_since.setdefault(run.id, self.screen.seconds)
                if self.screen.seconds - since >= APPROVE_AFTER:
                    self._approve(run.id, run.payload["number"])

    def _approve(self, run_id: UUID, order: int) -> None:
        app.sync.signal(run_id, APPROVED, "by the demo")
        self._approved.add(run_id)
        note(Effect("signal", SystemClock().wall(), os.getpid(), order, str(run_id), APPROVED))

    def _watch(self, *, until: Callable[[list[Run], list[Effect]], bool]) -> None:
        """Show the orders and approve those that wait for it, until the condition holds."""
        while not until(runs := read_orders(), effects := read_effects()):
            self.screen.show(runs, effects, self._dead)
            self._approve_waiting(runs)
            for worker in self._alive:
                if (code := worker.process.poll()) is not None:
                    raise CannotGoOn(f"worker {worker.name} ended by itself, with exit code {code}")
            if self.screen.seconds > TIME_LIMIT:
                raise CannotGoOn("\n".join(app.sync.explain(run.id) for run in runs if not run.is_finished))
            threading.Event().wait(LOOK_EVERY)
        self.screen.show(runs, effects, self._dead, now=True)


def make_order(number: int) -> Order:
    parcels = [f"{number:02}-{letter}" for letter in "abc"[: 1 + number % 3]]
    return Order(number, parcels, stumbles=number % 9 == 4)


def read_orders() -> list[Run]:
    return sorted(app.sync.runs(type=fulfil.name), key=lambda run: run.payload["number"])


def records_of(run_ids: Iterable[UUID]) -> dict[UUID, RunRecord]:
    handles = [app.sync.handle(run_id) for run_id in run_ids]
    return {handle.id: RunRecord(handle.events(), handle.history(), handle.signals()) for handle in handles}
