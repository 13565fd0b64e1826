"""The worker's log as an operator collects it: every line is JSON, and no secret is in any of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until

import simpleworkflow as swf

SECRET = "4111-1111-1111-1111"
PASSWORD = "hunter2"
MODULE = """
import simpleworkflow as swf

app = swf.App()

@app.workflow("log.pay.v1", retry=swf.Retry(max_attempts=2, initial="1ms"))
async def pay(ctx: swf.Context, card: str) -> str:
    ctx.log.info("paying", extra={"customer": "ada"})
    def charge() -> None:
        raise ValueError(f"the card {card} was refused by postgresql://ada:hunter2@bank/accounts")
    await ctx.step("charge", charge)
    return card

@app.workflow("log.echo.v1")
def echo(ctx: swf.SyncContext, card: str) -> str:
    ctx.log.error("no way to %s", "postgresql://ada:hunter2@bank/accounts")
    return card
"""


class Worker:
    def __init__(self, folder: Path, url: str, *options: str) -> None:
        self.log = folder / "log"
        command = [sys.executable, "-m", "simpleworkflow", "worker", "shop:app", *options]
        environment = {**os.environ, "SIMPLEWORKFLOW_URL": url}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)

    def text(self) -> str:
        return self.log.read_text()

    def wait_for(self, words: str) -> None:
        until(lambda: words in self.text(), words)

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(MODULE)
    return tmp_path


def told(worker: Worker) -> list[dict[str, Any]]:
    return [json.loads(line) for line in worker.text().splitlines()]


def test_every_line_of_a_worker_is_json_and_none_holds_a_payload_or_a_password(folder: Path, url: str) -> None:
    worker = Worker(folder, url, "--log-format", "json", "--name", "till", "--log-errors", "type")
    app = swf.App(url)
    try:
        worker.wait_for("is ready")
        paid, echoed = app.sync.trigger("log.pay.v1", SECRET), app.sync.trigger("log.echo.v1", SECRET)
        with pytest.raises(swf.RunFailed):
            paid.result("20s")
        assert echoed.result("20s") == SECRET
        assert worker.stop() == 0
    finally:
        worker.kill()
        app.sync.close()
    assert SECRET not in worker.text()
    assert PASSWORD not in worker.text()
    lines = told(worker)
    assert all({"ts", "level", "logger", "message"} <= line.keys() for line in lines)
    paying = [line for line in lines if line["message"] == "paying"]
    assert {line["run_id"] for line in paying} == {str(paid.id)}
    assert {line["customer"] for line in paying} == {"ada"}
    failed = [line for line in lines if line["logger"] == "simpleworkflow.execute"]
    assert [(line["workflow_type"], line["epoch"], line["level"], line.get("step")) for line in failed] == [
        ("log.pay.v1", 1, "WARNING", "charge#0"),
        ("log.pay.v1", 1, "WARNING", None),
        ("log.pay.v1", 2, "WARNING", "charge#0"),
        ("log.pay.v1", 2, "ERROR", None),
    ]
    assert [line["message"].rpartition(" ")[2] for line in failed] == ["ValueError", "StepFailed"] * 2
    assert all(line["worker"].startswith("till") for line in failed)
    (error,) = [line for line in lines if line["level"] == "ERROR" and line not in failed]
    assert (error["message"], error["run_id"]) == ("no way to postgresql://ada:***@bank/accounts", str(echoed.id))


def test_a_failed_run_is_an_error_with_its_traceback_and_without_passwords(folder: Path, url: str) -> None:
    worker = Worker(folder, url, "--log-format", "json")
    app = swf.App(url)
    try:
        worker.wait_for("is ready")
        with pytest.raises(swf.RunFailed):
            app.sync.run("log.pay.v1", "a card", timeout="20s")
        assert worker.stop() == 0
    finally:
        worker.kill()
        app.sync.close()
    assert PASSWORD not in worker.text()
    (error,) = [line for line in told(worker) if line["level"] == "ERROR"]
    assert "failed for good (attempt 2 of 2): StepFailed: step charge failed: ValueError: the card" in error["message"]
    assert 'await ctx.step("charge", charge)' in error["exception"]
    steps = [line for line in told(worker) if line.get("step") == "charge#0"]
    assert all("by postgresql://ada:***@bank/accounts" in line["exception"] for line in steps)
    assert [line["attempt"] for line in steps] == [1, 1]


def test_text_is_for_people_and_names_the_run_of_each_line(folder: Path, url: str) -> None:
    worker = Worker(folder, url)
    app = swf.App(url)
    try:
        worker.wait_for("is ready")
        echoed = app.sync.trigger("log.echo.v1", SECRET)
        echoed.result("20s")
        assert worker.stop() == 0
    finally:
        worker.kill()
        app.sync.close()
    (line,) = [line for line in worker.text().splitlines() if "no way" in line]
    assert line.endswith(
        "ERROR   simpleworkflow.run.log.echo.v1: "
        f"no way to postgresql://ada:***@bank/accounts (run {echoed.id})"
    )  # fmt: skip
    assert SECRET not in worker.text()


@pytest.fixture
def strict_server() -> Iterator[int]:
    """A PostgreSQL that asks for a password, refuses it, and is tactless enough to repeat it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                visitor, _ = listener.accept()
            except OSError:
                return
            with visitor:
                try:
                    refuse(visitor)
                except OSError:
                    pass  # it went away

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


def refuse(visitor: socket.socket) -> None:
    if visitor.recv(4096)[4:8] == struct.pack("!i", 80877103):  # it asks for TLS
        visitor.sendall(b"N")
        visitor.recv(4096)
    visitor.sendall(b"R" + struct.pack("!ii", 8, 3))  # in clear text, please
    password = visitor.recv(4096)[5:].rstrip(b"\0")
    fields = {b"S": b"FATAL", b"C": b"28P01", b"M": b"no entry for postgresql://ada:" + password + b"@here/orders"}
    body = b"".join(key + value + b"\0" for key, value in fields.items()) + b"\0"
    visitor.sendall(b"E" + struct.pack("!i", len(body) + 4) + body)


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_wrong_password_is_told_without_the_password(folder: Path, strict_server: int, format: str) -> None:
    url = f"postgresql://ada:{PASSWORD}@127.0.0.1:{strict_server}/orders"
    worker = Worker(folder, url, "--log-format", format, "--log-level", "DEBUG")
    try:
        worker.wait_for("until it is back")
        until(lambda: worker.text().count("no entry for") >= 2, "it has tried again")
        assert worker.stop() == 0
    finally:
        worker.kill()
    assert PASSWORD not in worker.text()
    assert f"postgresql://ada:***@127.0.0.1:{strict_server}/orders refused the connection" in worker.text()
    if format == "json":
        assert {line["level"] for line in told(worker)} >= {"WARNING"}


def test_a_module_that_breaks_is_told_without_the_password_in_its_error(folder: Path, url: str) -> None:
    (folder / "shop.py").write_text('raise RuntimeError("no way to postgresql://ada:hunter2@bank/accounts")\n')
    worker = Worker(folder, url, "--log-format", "json")
    try:
        until(lambda: worker._process.poll() is not None, "it has ended")
    finally:
        worker.kill()
    assert worker._process.returncode == 1
    (line,) = told(worker)
    assert line["level"] == "CRITICAL"
    assert "RuntimeError: no way to postgresql://ada:***@bank/accounts" in line["exception"]


def test_an_unknown_format_is_refused_by_name(folder: Path) -> None:
    worker = Worker(folder, "shop.db", "--log-format", "xml")
    assert worker._process.wait(30) == 2
    assert "'xml' is not one of 'text', 'json'" in worker.text()
