"""docs/modules.md, as it is written: its files make a shop, and its commands serve it.

Also what a module may do to logging while a worker loads it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.waiting import until

import simpleworkflow as swf

PAGE = Path(__file__).resolve().parents[2] / "docs" / "modules.md"
FILE = re.compile(r"^```python\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FASTAPI = """
from starlette.applications import Starlette
class FastAPI(Starlette):
    def post(self, path):
        def decorate(function):
            self.add_route(path, function, methods=["POST"])
            return function
        return decorate
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    text = PAGE.read_text()
    files = FILE.findall(text)
    assert len(files) == text.count("```python"), "each block begins with the name of its file"
    for name, code in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    (tmp_path / "fastapi.py").write_text(FASTAPI)
    return tmp_path


class Worker:
    def __init__(self, folder: Path, *words: str) -> None:
        self._file = folder / "worker.log"
        environment = {name: value for name, value in os.environ.items() if name != "SIMPLEWORKFLOW_URL"}
        with self._file.open("wb") as log:
            command = [sys.executable, "-m", "simpleworkflow", *words]
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return self._file.read_text()

    def stop(self) -> str:
        until(lambda: "is ready" in self.log or self.process.poll() is not None, "the worker is ready")
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        return self.log


Start = Callable[..., Worker]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Worker] = []

    def begin(folder: Path, *words: str) -> Worker:
        started.append(Worker(folder, *words))
        return started[-1]

    yield begin
    for worker in started:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait()


SERVED = "serves orders.fulfil.v1, shipping.ship.v1, up to 100 runs at a time"


@pytest.mark.parametrize(
    "words", re.findall(r"^simpleworkflow (worker shop.*)$", PAGE.read_text(), re.MULTILINE), ids=str
)
def test_the_commands_of_the_page_serve_what_it_says(shop: Path, start: Start, words: str) -> None:
    worker = start(shop, *words.split())
    app = swf.App(str(shop / "simpleworkflow.db"))
    try:
        until(lambda: "is ready" in worker.log, "the worker is ready")
        assert app.sync.run("orders.fulfil.v1", "4711", timeout="20s") == "parcel of 4711"
    finally:
        app.sync.close()
    log = worker.stop()
    assert worker.process.returncode == 0
    assert f"(simpleworkflow {swf.__version__}): database simpleworkflow.db, {SERVED}\n" in log
    assert "WARNING" not in log


def test_every_module_of_the_page_can_be_loaded_with_the_others(shop: Path) -> None:
    modules = [name.removesuffix(".py").replace("/", ".") for name, _ in FILE.findall(PAGE.read_text())]
    check = f"import {', '.join(modules)}; print(sorted(w.name for w in shop.core.app._client.registry.served()))"
    done = subprocess.run([sys.executable, "-c", check], cwd=shop, capture_output=True, text=True, timeout=60)
    assert done.stdout == "['orders.fulfil.v1', 'returns.accept.v1', 'shipping.ship.v1']\n", done.stderr


def test_a_worker_that_serves_nothing_warns(shop: Path, start: Start) -> None:
    log = start(shop, "worker", "shop.core:app").stop()
    assert "serves no workflow, up to 100 runs at a time" in log
    assert re.search(r"WARNING .* serves no workflow; import the modules .* --import flows$", log, re.MULTILINE)


def test_a_prefix_that_no_type_begins_with_is_told(shop: Path, start: Start) -> None:
    log = start(shop, "worker", "shop.worker:app", "--prefix", "billing.*").stop()
    types = "orders.fulfil.v1, shipping.ship.v1"
    told = f"serves no workflow; none of its App's types ({types}) begins with billing.*: look at the prefixes"
    assert told in log


def test_a_module_that_cannot_be_imported_beside_the_app_is_named(shop: Path, start: Start) -> None:
    (shop / "broken.py").write_text("1 / 0\n")
    log = start(shop, "worker", "shop.core:app", "--import", "broken").stop()
    assert "error: broken cannot be loaded: ZeroDivisionError: division by zero" in log
    log = start(shop, "worker", "shop.core:app", "--import", "shop.nowhere").stop()
    assert "there is no module 'shop.nowhere'" in log


MODULE = """
import logging, logging.config
import simpleworkflow as swf
app = swf.App()

@app.workflow("shop.order.v1")
async def order(ctx: swf.Context) -> None:
    logging.getLogger("shop").info("an order")
"""
ITS_OWN = {
    "basicConfig": 'logging.basicConfig(level="INFO", format="MINE %(name)s %(message)s")\n',
    "dictConfig": """
class Mine(logging.Formatter):
    def format(self, record):
        return f"MINE {record.name} {record.getMessage()} {getattr(record, 'run_id', 'outside')}"

logging.config.dictConfig({"version": 1,
    "formatters": {"mine": {"()": Mine}},
    "handlers": {"out": {"class": "logging.StreamHandler", "formatter": "mine"}},
    "root": {"level": "INFO", "handlers": ["out"]}})
""",
}


@pytest.mark.parametrize("how", ITS_OWN)
def test_logging_that_the_loaded_module_has_set_up_is_respected(tmp_path: Path, start: Start, how: str) -> None:
    (tmp_path / "wf.py").write_text(MODULE + ITS_OWN[how])
    worker = start(tmp_path, "worker", "wf", "--log-format", "json")
    app = swf.App(str(tmp_path / "simpleworkflow.db"))
    try:
        until(lambda: "is ready" in worker.log, "our own lines are not silenced")
        handle = app.sync.trigger("shop.order.v1")
        handle.result("20s")
    finally:
        app.sync.close()
    lines = worker.stop().splitlines()
    assert all(line.startswith("MINE ") for line in lines)
    ending = f" {handle.id}" if how == "dictConfig" else ""
    assert f"MINE shop an order{ending}" in lines


def test_what_a_module_says_while_it_is_loaded_is_written_as_everything_else(tmp_path: Path, start: Start) -> None:
    early = 'import logging, warnings\nlogging.getLogger("shop").info("early")\nwarnings.warn("old")\n'
    (tmp_path / "wf.py").write_text(early + MODULE)
    log = start(tmp_path, "worker", "wf", "--log-format", "json").stop()
    assert all(line.startswith('{"ts": ') for line in log.splitlines())
    assert '"message": "early"' in log
    assert "UserWarning: old" in log
