"""dbos: its queue without a concurrency limit to drain, four workflows in flight for steps.

Without a limit it takes the whole queue into the process, which was its fastest way by far (a limit combines with the
polling interval into a cap). For steps, workflows called directly with four in flight were faster than 1, 16 and 64,
no slower than 2 and 8, and faster than the queue; starting them is then inside the clock. Asynchronous workflows ran at
0.7 to 0.8 of that pace (22 pairs, 2 to 64 in flight). Its bulk is one transaction around many enqueues.
For the latency its queue polls every 5 ms instead of every second, and whoever waits for a result likewise:
`polling_interval_sec` is the documented lever, and 1 ms was slower than 5.
The URL may be that of a SQLite file (drive_dbos_sqlite.py), where one workflow in flight was its best for steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSClient
from stage import STEPS, Clock, make_clock, payloads, play

APP, QUEUE = "bench", "bench"
IN_FLIGHT = {"postgresql": 4, "sqlite": 1}
CONNECTIONS = 20
SERVING_POLL_SECONDS = 0.005
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


class Door:
    def __init__(self, client: DBOSClient, engine: sa.Engine) -> None:
        self._client = client
        self._engine = engine

    def one(self, payload: dict[str, Any]) -> Any:
        return self._client.enqueue({"queue_name": QUEUE, "workflow_name": "noop"}, payload)

    def result(self, handle: Any) -> None:
        handle.get_result(polling_interval_sec=SERVING_POLL_SECONDS)

    def many(self, everything: Sequence[dict[str, Any]]) -> None:
        options = {"queue_name": QUEUE, "workflow_name": "noop"}
        with self._engine.begin() as connection:
            for payload in everything:
                self._client.enqueue_in_transaction(connection, options, payload)


@contextlib.contextmanager
def door(url: str) -> Iterator[Door]:
    client = DBOSClient(system_database_url=url, application_name=APP, system_database_pool_size=CONNECTIONS)
    engine = engine_of(url)
    try:
        yield Door(client, engine)
    finally:
        engine.dispose()
        client.destroy()


def engine_of(url: str) -> sa.Engine:
    return sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))


@contextlib.contextmanager
def launched(url: str) -> Iterator[None]:
    DBOS(config={"name": APP, "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy()


@contextlib.contextmanager
def looking_at(url: str) -> Iterator[sa.Connection]:
    engine = engine_of(url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield connection
    engine.dispose()


def prepare(url: str) -> None:
    with launched(url):
        DBOS.register_queue(QUEUE)


def drain(url: str, jobs: int) -> dict[str, Any]:
    global clock
    with looking_at(url) as looking:
        clock = make_clock(jobs)
        with launched(url):
            return clock.wait(lambda: succeeded(looking))


def serve(url: str, jobs: int) -> dict[str, Any]:
    with launched(url):
        DBOS.register_queue(QUEUE, polling_interval_sec=SERVING_POLL_SECONDS)
    return drain(url, jobs)


def steps(url: str, jobs: int) -> dict[str, Any]:
    global clock
    threads = ThreadPoolExecutor(IN_FLIGHT[url.partition(":")[0]])
    with looking_at(url) as looking, launched(url), threads:
        clock = make_clock(jobs)
        for payload in payloads(jobs):
            threads.submit(ten_steps, payload)
        return clock.wait(lambda: succeeded(looking))


def succeeded(looking: sa.Connection) -> int:
    table = "workflow_status" if looking.dialect.name == "sqlite" else "dbos.workflow_status"
    return int(looking.execute(sa.text(f"SELECT count(*) FROM {table} WHERE status = 'SUCCESS'")).scalar_one())


def main() -> None:
    play(prepare=prepare, door=door, drain=drain, steps=steps, serve=serve)


if __name__ == "__main__":
    main()
