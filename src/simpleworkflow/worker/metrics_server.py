"""`GET /metrics` and `GET /healthz`, on a thread and an event loop of their own.

A worker whose loop is blocked, or whose database is away, is exactly the one that somebody wants to look at: so
answering needs neither. The port is bound before the worker does anything else, and a port that cannot be had ends it
there with a sentence. HTTP is as small as it can be: one request per connection, a few kilobytes of head, a few
seconds, no body. It listens on loopback unless told otherwise: metrics name workflow types, and nobody logs in here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ..clock import monotonic
from ..model.duration import human
from ..model.errors import InvalidPolicy, MissingExtra, PortUnavailable
from ..model.install import needs
from ..model.records import Lease
from ..runtime.meter import Histogram, Meter
from ..store import Ledger
from . import metrics
from .claim import Claimer
from .held_leases import HeldLeases
from .metrics_database import QueueReader, Reading
from .slots import Slots

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

log = logging.getLogger("simpleworkflow.metrics")

LOOPBACK = "127.0.0.1"
SILENCE = 30.0
"""Seconds without a turn of looking for work that went well, after which a worker is no longer healthy."""
PATIENCE = 10.0
LONGEST_HEAD = 16 * 1024
TEXT = "text/plain; charset=utf-8"
LAG_EVERY = 0.25
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Address(NamedTuple):
    host: str
    port: int


class Answer(NamedTuple):
    status: int
    type: str
    body: bytes


def address(host: str | None, port: int | None) -> Address | None:
    """Where to serve, checked; None: nowhere."""
    if port is None:
        if host is not None:
            raise InvalidPolicy(f"metrics_host={host!r} says where metrics are served; say metrics_port too")
        return None
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65_535:
        raise InvalidPolicy(f"metrics_port must be a number from 0 (any free port) to 65535, not {port!r}")
    _require_prometheus()
    return Address(host or LOOPBACK, port)


def _require_prometheus() -> None:
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise MissingExtra(needs("metrics need", "prometheus-client", "metrics")) from None


def bind(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server(address, family=family, backlog=32)
    except OSError as error:
        # create_server adds an essay to the system's own words; names that cannot be resolved have no such number.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise PortUnavailable(
            f"metrics cannot be served on {address.host} port {address.port}: {why};"
            " choose another port, or 0 for any that is free"
        ) from error


class MetricsServer(threading.Thread):
    """`vitals` is asked in this thread: it may only copy and count."""

    def __init__(
        self, listener: socket.socket, meter: Meter, ledger: Ledger, *, name: str, vitals: Callable[[], metrics.Vitals]
    ) -> None:
        super().__init__(name="simpleworkflow-metrics", daemon=True)
        self._listener = listener
        self._meter = meter
        self._ledger = ledger
        self._worker = name
        self._vitals = vitals
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def stop(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._stopping.set)
        except RuntimeError:
            pass  # the thread has ended

    # Runs in this thread.

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._queue = QueueReader(self._ledger)
        server = await asyncio.start_server(self._connected, sock=self._listener, limit=LONGEST_HEAD)
        try:
            await self._stopping.wait()
        finally:
            server.close()
            await self._queue.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(*await self._answer(head)))
                await writer.drain()
        except asyncio.LimitOverrunError:
            writer.write(_response(False, Answer(400, TEXT, b"that request is too long\n")))
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # the client has gone, or never finished its request; or the worker ends
        except Exception:
            log.exception("a request for metrics could not be answered")
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> tuple[bool, Answer]:
        """Whether only the head is wanted, and what to say."""
        first, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in {"GET", "HEAD"}:
            return False, Answer(405, TEXT, b"only GET and HEAD are served here\n")
        if path == "/metrics":
            fields = (line.partition(":") for line in lines)
            accept = next((value.strip() for name, _, value in fields if name.lower() == "accept"), "")
            answer = _metrics(accept, Scrape(self._meter, self._worker, self._vitals, await self._queue.read()))
        elif path == "/healthz":
            answer = _health(self._meter)
        else:
            answer = Answer(404, TEXT, b"there is /metrics and /healthz\n")
        return method == "HEAD", answer


class Scrape:
    """One look at the numbers, as prometheus-client wants to see it."""

    def __init__(self, meter: Meter, name: str, vitals: Callable[[], metrics.Vitals], reading: Reading) -> None:
        self._numbers = meter, name, vitals, reading

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        makers = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
        found: dict[str, Any] = {}
        for name, family in metrics.FAMILIES.items():
            found[name] = makers[family.kind](name, family.help, labels=family.labels)
        for name, labels, value in metrics.read(*self._numbers):
            if isinstance(value, Histogram):
                found[name].add_metric(labels, *_buckets(value))
            else:
                found[name].add_metric(labels, value)
        yield from found.values()


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Cumulative, as the format wants them, from one copy: a bucket never exceeds the next."""
    counts, total, found = list(histogram.counts), 0, []
    for bound, count in zip((*histogram.bounds, float("inf")), counts, strict=True):
        total += count
        found.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(total)))
    return found, histogram.sum


def _metrics(accept: str, scrape: Scrape) -> Answer:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    registry.register(scrape)  # anything with collect() is a collector
    encode, content_type = choose_encoder(accept)
    return Answer(200, content_type, encode(registry))


def _health(meter: Meter) -> Answer:
    trouble = _trouble(meter)
    return Answer(200, TEXT, b"ok\n") if trouble is None else Answer(503, TEXT, f"{trouble}\n".encode())


def _trouble(meter: Meter) -> str | None:
    if meter.is_stopping:
        return "stopping"
    if meter.polled_at is None:
        return "starting: it has not looked for work yet"
    silence = monotonic() - meter.polled_at
    if silence > SILENCE:
        return f"it has not managed to look for work for {human(round(silence))}"
    return None


def _response(head_only: bool, answer: Answer) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: {answer.type}\r\n"
        f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if head_only else answer.body)


class Metrics:
    """What a worker sees of all this. Without an address there is no meter, nothing is counted and nothing served."""

    def __init__(
        self,
        address: Address | None,
        name: str,
        slots: Slots,
        held_leases: HeldLeases,
        claimer: Claimer,
        concurrency: int,
    ) -> None:
        self.meter = None if address is None else Meter(held_leases.find)
        self._address = address
        self._name = name
        self._parts = slots, held_leases, concurrency
        self._claimer = claimer

    def stopping(self) -> None:
        if self.meter is not None:
            self.meter.is_stopping = True

    def lost(self, lease: Lease) -> None:
        """It is no longer ours, and there is nothing to write."""
        if self.meter is not None:
            self.meter.lost[lease.type] += 1

    def refused(self, lease: Lease) -> None:
        """The database refuses its ending for good."""
        if self.meter is not None:
            self.meter.refused[lease.type] += 1

    @asynccontextmanager
    async def serving(self, ledger: Ledger) -> AsyncIterator[None]:
        """Around a worker's whole life, from before it meets its database until after it has handed everything back."""
        if self.meter is None or self._address is None:
            yield
            return
        try:
            listener = bind(self._address)
        except PortUnavailable:
            await ledger.close()
            raise
        self.meter.serves(workflow.name for workflow in self._claimer.routed())
        server = MetricsServer(listener, self.meter, ledger.twin(), name=self._name, vitals=self._vitals)
        server.start()
        log.info("metrics of worker %s are at %s/metrics", self._name, server.url)
        watch = asyncio.ensure_future(_watch_loop(self.meter))
        try:
            yield
        finally:
            watch.cancel()
            server.stop()
            await asyncio.to_thread(server.join, 3.0)

    def _vitals(self) -> metrics.Vitals:
        """In the server's thread: copies and counts, nothing else."""
        assert self.meter is not None
        slots, held_leases, concurrency = self._parts
        executions = list(slots)
        resident = sum(execution.is_resident for execution in executions)
        executing = len(executions) - resident
        return metrics.Vitals(concurrency, executing, resident, len(held_leases), self.meter.unwritten())


async def _watch_loop(meter: Meter) -> None:
    """How late the loop that this runs on comes back from a nap: what blocks it holds up everybody."""
    while True:
        began = monotonic()
        await asyncio.sleep(LAG_EVERY)
        meter.loop_lag.observe(max(monotonic() - began - LAG_EVERY, 0.0))
