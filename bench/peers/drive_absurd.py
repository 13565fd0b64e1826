"""absurd: several single-connection workers as threads of one process.

Its client owns one connection, so its own `concurrency` option puts all tasks on that one; ten clients in threads were
the fastest way to drain in one process, twenty with batches of three the fastest with steps. The schema is the one
that its command-line tool bundles.
"""

from __future__ import annotations

import threading
from typing import Any

import psycopg
from absurd_sdk import Absurd
from absurdctl import BUNDLED_SCHEMA_SQL
from stage import STEPS, Clock, payloads, play

QUEUE = "bench"
DRAINING = (10, 10)  # workers, tasks in a claim
STEPPING = (20, 3)


def prepare(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL.encode())
        Absurd(connection, queue_name=QUEUE).create_queue()


def enqueue(url: str, jobs: int, task: str = "noop") -> None:
    with psycopg.connect(url) as connection:  # one transaction: the fastest way in that it has
        client = Absurd(connection, queue_name=QUEUE)
        _register(client, Clock(1))
        for payload in payloads(jobs):
            client.spawn(task, payload)


def drain(url: str, jobs: int) -> dict[str, Any]:
    return _work(url, jobs, *DRAINING)


def steps(url: str, jobs: int) -> dict[str, Any]:
    enqueue(url, jobs, "ten_steps")
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


def _work(url: str, jobs: int, workers: int, batch: int) -> dict[str, Any]:
    clock = Clock(jobs)
    clients = [Absurd(url, queue_name=QUEUE) for _ in range(workers)]
    threads = []
    for number, client in enumerate(clients):
        _register(client, clock)
        choices = {"worker_id": f"worker-{number}", "batch_size": batch, "poll_interval": 0.05}
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
    play(prepare=prepare, enqueue=enqueue, drain=drain, steps=steps)
