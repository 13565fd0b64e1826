"""`make demo`: forty orders, a worker that is killed half way, and nothing lost.

This process accepts the orders and looks on. The work is done by `simpleworkflow worker`, a process of its own on the
same SQLite file. When half of the orders are done it is killed with SIGKILL, in the middle of whatever it was doing,
and a second one is started. The closing table is made from what the executions wrote themselves (an effects log) and
from the audit trail, not from what this process believes to have seen.

Leases are short for the show: where a dead process cannot be noticed at once, its orders come back in 2 s, not in 30.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from ..app import App
from ..clock import monotonic
from ..config import Settings
from ..model.records import Run
from ..model.retry import Retry
from ..runtime.context import Context
from .demo_evidence import Evidence, note, read_effects
from .demo_screen import Screen

ORDERS = 40
TIME_LIMIT = 50.0
LOOK_EVERY = 0.1
SILENCE = 1.0
"""How long nobody works between the two workers: long enough to be seen."""

DATABASE = "demo.db"
WORKER_LOG = "worker.log"

app = App(DATABASE, settings=Settings(lease=2, sweep_every=1, concurrency=4))


@dataclass(frozen=True)
class Order:
    number: int
    seconds: float
    stumbles: bool
    """Whether its first attempt fails on purpose."""


@app.workflow("orders.ship.v1", retry=Retry(max_attempts=5, base="500ms", cap="2s"))
async def ship(ctx: Context, order: Order) -> str:
    note("start", ctx, order.number)
    await asyncio.sleep(order.seconds)
    if order.stumbles and ctx.attempt == 0:
        note("error", ctx, order.number)
        raise ConnectionError(f"the carrier did not answer for order {order.number}")
    note("end", ctx, order.number)
    return f"parcel-{order.number:02}"


class Trouble(Exception):
    """The show cannot go on."""


def perform(screen: Screen) -> Evidence:
    """The whole show, in the current folder."""
    orders = [Order(n, seconds=0.5 + n * 7 % 11 / 10, stumbles=n % 9 == 4) for n in range(1, ORDERS + 1)]
    accepted = [handle.id for handle in app.sync.trigger_many(ship, orders)]
    screen.say(f"{len(accepted)} orders are accepted; there is no worker yet")
    with worker("first", screen) as first:
        watch(screen, first, until=half_way)
        first.kill()
        first.wait()
        in_hand = sum(run.leased_by is not None for run in look())
        screen.say(f"kill -9 {first.pid}: the first worker is gone, with {in_hand} orders in its hands", "bold red")
    silent_until = monotonic() + SILENCE
    watch(screen, None, until=lambda _: monotonic() > silent_until)
    with worker("second", screen) as second:
        watch(screen, second, until=lambda runs: all(run.is_finished for run in runs))
        second.terminate()
        second.wait()
    return Evidence(read_effects(), {run_id: app.sync.events(run_id) for run_id in accepted}, first.pid)


@contextmanager
def worker(name: str, screen: Screen) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process, in a session of its own so that Ctrl-C reaches only us; it never outlives this block."""
    command = [sys.executable, "-m", "simpleworkflow", "worker", "simpleworkflow.cli.demo:app", "--name", name]
    command += ["--url", str(Path(DATABASE).resolve()), "--prefix", "orders.*"]
    with Path(WORKER_LOG).open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)  # noqa: S603 - our own
    try:
        screen.say(f"the {name} worker starts, process {process.pid}", "bold cyan")
        yield process
    finally:
        process.kill()
        process.wait()


def watch(screen: Screen, process: subprocess.Popen[bytes] | None, *, until: Callable[[list[Run]], bool]) -> None:
    """Show the orders as they move until something is so."""
    while not until(runs := look()):
        screen.show(runs)
        if process is not None and process.poll() is not None:
            raise Trouble(f"the worker ended by itself, with exit code {process.returncode}")
        if screen.seconds > TIME_LIMIT:
            raise Trouble("\n".join(app.sync.explain(run.id) for run in runs if not run.is_finished))
        threading.Event().wait(LOOK_EVERY)
    screen.show(runs, now=True)


def look() -> list[Run]:
    return sorted(app.sync.runs(type=ship.name), key=lambda run: run.payload["number"])


def half_way(runs: list[Run]) -> bool:
    """Half of the orders are done, and several are in the middle of their work."""
    in_the_middle = sum(1 if effect.what == "start" else -1 for effect in read_effects())
    return sum(run.is_finished for run in runs) >= ORDERS // 2 and in_the_middle >= 2


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
            evidence = perform(screen)
        except KeyboardInterrupt:
            screen.say("stopped; the worker is gone and so are its files")
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
