"""dbos: its queue without a concurrency limit to drain, four workflows in flight for steps.

Without a limit it takes the whole queue into the process, which was its fastest way by far (a limit combines with the
polling interval into a cap). For steps, workflows started directly with four in flight were faster than 1, 16 and 64,
and faster than the queue; starting them is then inside the clock.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import sqlalchemy as sa
from dbos import DBOS, DBOSClient
from stage import STEPS, Clock, payloads, play

APP, QUEUE = "bench", "bench"
IN_FLIGHT = 4
clock = Clock(1)


@DBOS.workflow(name="noop")
def noop(payload: dict[str, Any]) -> None:
    clock.tick()


@DBOS.step(name="nothing")
def nothing() -> None:
    return None


@DBOS.workflow(name="ten_steps")
def ten_steps(payload: dict[str, Any]) -> None:
    clock.tick()
    for _ in range(STEPS):
        nothing()


@contextlib.contextmanager
def launched(url: str) -> Any:
    DBOS(config={"name": APP, "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy()


def prepare(url: str) -> None:
    with launched(url):
        DBOS.register_queue(QUEUE)


def enqueue(url: str, jobs: int) -> None:
    client = DBOSClient(system_database_url=url, application_name=APP)
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.begin() as connection:  # one transaction: the fastest way in that it has
        for payload in payloads(jobs):
            client.enqueue_in_transaction(connection, {"queue_name": QUEUE, "workflow_name": "noop"}, payload)
    engine.dispose()
    client.destroy()


def drain(url: str, jobs: int) -> dict[str, Any]:
    global clock
    clock = Clock(jobs)
    with psycopg.connect(url, autocommit=True) as looking, launched(url):
        return clock.wait(lambda: succeeded(looking))


def steps(url: str, jobs: int) -> dict[str, Any]:
    global clock
    clock = Clock(jobs)
    with psycopg.connect(url, autocommit=True) as looking, launched(url), ThreadPoolExecutor(IN_FLIGHT) as threads:
        for payload in payloads(jobs):
            threads.submit(lambda one: DBOS.start_workflow(ten_steps, one).get_result(), payload)
        return clock.wait(lambda: succeeded(looking))


def succeeded(looking: psycopg.Connection[Any]) -> int:
    row = looking.execute("SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'").fetchone()
    return int(row[0]) if row else 0


if __name__ == "__main__":
    play(prepare=prepare, enqueue=enqueue, drain=drain, steps=steps)
