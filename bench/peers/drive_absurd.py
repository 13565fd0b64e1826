"""absurd: several single-connection workers as threads of one process.

Its client owns one connection, so its own `concurrency` option puts all tasks on that one; ten clients in threads were
the fastest way to drain in one process, twenty with batches of three the fastest with steps. Callers share twenty
clients. It has no way to spawn many tasks at once: one transaction around all of them is its bulk. An idle worker polls
(default 0.25 s); for the latency it polls every millisecond, with one worker, because ten of them polling like that
only disturb each other. Whoever waits for a result looks again after 50 ms, then ever later; that is not to be set. The
schema is the one that its command-line tool bundles.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from absurd_sdk import Absurd
from absurdctl import BUNDLED_SCHEMA_SQL
from stage import STEPS, Clock, make_clock, payloads, play

QUEUE = "bench"
DRAINING = (10, 10, 0.05)  # workers, tasks in a claim, seconds between looks
STEPPING = (20, 3, 0.05)
SERVING = (1, 1, 0.001)
CLIENTS = 20


class Door:
    def __init__(self, clients: list[Absurd], bulk: psycopg.Connection[Any]) -> None:
        self._free: queue.SimpleQueue[Absurd] = queue.SimpleQueue()
        for client in clients:
            self._free.put(client)
        self._bulk = bulk

    def one(self, payload: dict[str, Any]) -> str:
        client = self._free.get()
        try:
            return str(client.spawn("noop", payload)["task_id"])
        finally:
            self._free.put(client)

    def result(self, task_id: str) -> None:
        client = self._free.get()
        try:
            client.await_task_result(task_id)
        finally:
            self._free.put(client)

    def many(self, everything: Sequence[dict[str, Any]], task: str = "noop") -> None:
        with self._bulk.transaction():
            client = Absurd(self._bulk, queue_name=QUEUE)
            _register(client, Clock(1))
            for payload in everything:
                client.spawn(task, payload)


@contextmanager
def door(url: str) -> Iterator[Door]:
    with ExitStack() as everything:
        clients = [Absurd(url, queue_name=QUEUE) for _ in range(CLIENTS)]
        for client in clients:
            everything.callback(client.close)
            _register(client, Clock(1))
        yield Door(clients, everything.enter_context(psycopg.connect(url, autocommit=True)))


def prepare(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL.encode())
        Absurd(connection, queue_name=QUEUE).create_queue()


def steps(url: str, jobs: int) -> dict[str, Any]:
    with door(url) as opened:
        opened.many(payloads(jobs), "ten_steps")
    return _work(url, jobs, *STEPPING)


def _register(client: Absurd, clock: Clock) -> None:
    @client.register_task("noop")
    def noop(params: Any, ctx: Any) -> None:
        clock.tick()

    @client.register_task("ten_steps")
    def ten_steps(params: Any, ctx: Any) -> None:
        clock.tick()
        for number in range(STEPS):
            ctx.step(f"nothing-{number}", lambda: None)


def _work(url: str, jobs: int, workers: int, batch: int, poll: float) -> dict[str, Any]:
    clients = [Absurd(url, queue_name=QUEUE) for _ in range(workers)]
    clock = make_clock(jobs)
    threads = []
    for number, client in enumerate(clients):
        _register(client, clock)
        choices = {"worker_id": f"worker-{number}", "batch_size": batch, "poll_interval": poll}
        threads.append(threading.Thread(target=client.start_worker, kwargs=choices, daemon=True))
    with psycopg.connect(url, autocommit=True) as looking:

        def done() -> int:
            row = looking.execute("SELECT count(*) FROM absurd.t_bench WHERE state = 'completed'").fetchone()
            return int(row[0]) if row else 0

        for thread in threads:
            thread.start()
        try:
            return clock.wait(done)
        finally:
            for client in clients:
                client.stop_worker()
            for thread in threads:
                thread.join(10)


if __name__ == "__main__":
    play(
        prepare=prepare,
        door=door,
        drain=lambda url, jobs: _work(url, jobs, *DRAINING),
        steps=steps,
        serve=lambda url, jobs: _work(url, jobs, *SERVING),
    )
