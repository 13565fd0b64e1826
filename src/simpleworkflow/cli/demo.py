"""`make demo`: orders of several steps, two workers killed in the middle of them, and no finished step runs again.

This process accepts the orders, approves them by signals and looks on. The work is done by `simpleworkflow worker`
processes on the same SQLite file, two at a time. Twice one of them is killed with SIGKILL while it is inside several
steps; the other one goes on with them, and a new one joins. The closing table is made from what the steps wrote
themselves (an effects log) and from the tables, not from what this process believes to have seen (demo_evidence.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn
from uuid import UUID

from ..clock import SystemClock
from ..model.records import Run
from ..model.states import Status
from .demo_evidence import Effect, Evidence, Story, bodies_under_way, note, read_effects
from .demo_orders import APPROVED, DATABASE, Order, app, fulfil, label
from .demo_screen import Screen

ORDERS = 24
KILL_AFTER = (0.25, 0.6)
"""The share of all steps that must be done before each kill."""
TIME_LIMIT = 50.0
LOOK_EVERY = 0.1
THINK = 0.6
"""How long an order waits for its approval, so that the wait can be seen."""
WORKER_LOG = "worker.log"


class Trouble(Exception):
    """The show cannot go on."""


class Worker:
    """A worker process, in a session of its own so that Ctrl-C reaches only us."""

    def __init__(self, name: str) -> None:
        self.name = name
        command = [sys.executable, "-m", "simpleworkflow", "worker", "simpleworkflow.cli.demo_orders:app"]
        command += ["--name", name, "--url", str(Path(DATABASE).resolve()), "--prefix", "orders.*"]
        with Path(WORKER_LOG).open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)  # noqa: S603 - our own

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Show:
    def __init__(self, screen: Screen, processes: ExitStack) -> None:
        self.screen = screen
        self._processes = processes
        self._alive: list[Worker] = []
        self._dead: set[str] = set()
        self._approved: set[UUID] = set()
        self._waiting_since: dict[UUID, float] = {}
        self.steps = 0

    def perform(self) -> Evidence:
        """The whole show, in the current folder."""
        orders = [make_order(number) for number in range(1, ORDERS + 1)]
        self.steps = sum(3 + len(order.parcels) for order in orders)
        accepted = [handle.id for handle in app.sync.trigger_many(fulfil, orders)]
        self.screen.say(f"{ORDERS} orders are accepted, {self.steps} steps in all; there is no worker yet")
        for run_id, order in zip(accepted, orders, strict=True):
            if order.number % 4 == 1:
                self._approve(run_id, order.number)  # before anybody waits for it
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
        return Evidence(read_effects(), {run: story(run) for run in accepted}, {run: story(run) for run in labels})

    def _start(self, name: str) -> None:
        worker = Worker(name)
        self._processes.callback(worker.kill)  # it never outlives the show
        self._alive.append(worker)
        self.screen.say(f"worker {name} starts, process {worker.pid}", "bold cyan")

    def _kill(self, name: str, *, when_done: float) -> None:
        """Kill that worker when so much is done and it is in the middle of several steps."""
        (victim,) = [worker for worker in self._alive if worker.name == name]

        def is_ripe(_: list[Run], effects: list[Effect]) -> bool:
            done = sum(line.what == "end" for line in effects)
            return done >= when_done * self.steps and bodies_under_way(effects, victim.pid) >= 2

        self._watch(until=is_ripe)
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
                if self.screen.seconds - since >= THINK:
                    self._approve(run.id, run.payload["number"])

    def _approve(self, run_id: UUID, order: int) -> None:
        app.sync.signal(run_id, APPROVED, "by the showman")
        self._approved.add(run_id)
        note(Effect("signal", SystemClock().wall(), os.getpid(), order, str(run_id), APPROVED))

    def _watch(self, *, until: Callable[[list[Run], list[Effect]], bool]) -> None:
        """Show the orders as they move, and approve those that wait for it, until something is so."""
        while not until(runs := look(), effects := read_effects()):
            self.screen.show(runs, effects, self._dead)
            self._approve_waiting(runs)
            for worker in self._alive:
                if worker.process.poll() is not None:
                    raise Trouble(f"worker {worker.name} ended by itself, with exit code {worker.process.returncode}")
            if self.screen.seconds > TIME_LIMIT:
                raise Trouble("\n".join(app.sync.explain(run.id) for run in runs if not run.is_finished))
            threading.Event().wait(LOOK_EVERY)
        self.screen.show(runs, effects, self._dead, now=True)


def make_order(number: int) -> Order:
    parcels = [f"{number:02}-{letter}" for letter in "abc"[: 1 + number % 3]]
    return Order(number, parcels, stumbles=number % 9 == 4)


def look() -> list[Run]:
    return sorted(app.sync.runs(type=fulfil.name), key=lambda run: run.payload["number"])


def story(run_id: UUID) -> Story:
    return Story(app.sync.handle(run_id).events(), app.sync.handle(run_id).history(), app.sync.handle(run_id).signals())


def leave(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)  # an exception, so that every `with` and `finally` cleans up
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with it ignored
    screen = Screen()
    with TemporaryDirectory(prefix="simpleworkflow-demo-") as folder, screen.live or nullcontext():
        os.chdir(folder)
        try:
            with ExitStack() as processes:
                evidence = Show(screen, processes).perform()
        except KeyboardInterrupt:
            screen.say("stopped; the workers are gone and so are their files")
            return 128 + signal.SIGINT
        except Trouble as trouble:
            screen.say(f"{trouble}\n\n{Path(WORKER_LOG).read_text(errors='replace')[-4000:]}", "red")
            return 1
        finally:
            app.sync.close()
            os.chdir("/")
    screen.conclude(evidence)
    return 0 if evidence.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
