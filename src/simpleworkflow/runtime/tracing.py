"""Traces: one tree that joins a trigger, every execution of its run, the steps, and the children that they start.

    trigger orders.ship.v1          PRODUCER, in the program that called trigger; its context travels in the run's row
    ├─ run orders.ship.v1           CONSUMER, one per execution: the first one ended with the event `paused`,
    ├─ run orders.ship.v1           and this one, perhaps on another machine, went on
    │  ├─ step charge               a body that was executed; what is only replayed leaves no span
    │  └─ run media.label.v1        a child run, wherever it was executed

OpenTelemetry is never loaded by us. A program that traces has loaded it and has set a provider; any other one pays for
one look at `on`, which is None, per run and per step. This is the only file that knows OpenTelemetry.

Dangers, and what is done about them:
- A broken exporter, or nonsense in the row's `traceparent` (anyone may write it), must not fail a run: every call into
  the provider is guarded, and nonsense counts as absent.
- A run that nobody traced at its trigger still has one trace: its ids are a digest of the run's id, so that executions
  on different machines agree without a word. The sampler is asked as if the trace began there.
- Payloads, results and arguments never enter a span; errors do, with passwords masked.
"""

from __future__ import annotations

import contextvars
import logging
import sys
from collections.abc import Callable, Sequence
from hashlib import blake2b
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from ..model import failure, payload
from ..model.moves import Ending, Pause
from ..model.records import Created, Lease
from ..model.states import EventType
from ..store.url import mask_text
from .branches import Body

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TracerProvider

log = logging.getLogger("simpleworkflow.tracing")

API = "opentelemetry.trace"
NAME = "simpleworkflow"
MOST_REMEMBERED = 10_000
FLUSH_MILLISECONDS = 2_000
LOST = "lost"
STOPPED = "stopped"

on: Tracing | None = None
"""What hot paths look at: None as long as nobody traces."""
_is_chosen = False


def trace_with(provider: TracerProvider | None) -> None:
    """Trace with this OpenTelemetry provider instead of the global one; None turns tracing off."""
    global on, _is_chosen
    on, _is_chosen = None if provider is None else Tracing(provider), True


def trace_by_default() -> None:
    """Whatever the program's global provider is, from the moment that there is one."""
    global on, _is_chosen
    on, _is_chosen = None, False


def look() -> Tracing | None:
    """The same as `on`, after a look whether the program has set a provider meanwhile; for now and then."""
    global on
    if on is None and not _is_chosen and API in sys.modules:
        on = _global_tracing()
    return on


def current_ids() -> tuple[str, str] | None:
    """(trace id, span id) of the span that this code runs in, as a log line shows them."""
    return None if on is None else on.current_ids()


def for_child(lease: Lease) -> str | None:
    """What the row of a new child carries: the span that starts it; where nobody traces, what its parent carries."""
    own = lease.traceparent if isinstance(lease.traceparent, str) else None  # SQLite lets a stranger store bytes
    return own if on is None else on.carried() or own


def _global_tracing() -> Tracing | None:
    try:
        from opentelemetry import trace

        provider = trace.get_tracer_provider()
        # FastAPI and others load the API alone; without a provider there is nobody to tell.
        idle = isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
        return None if idle else Tracing(provider)
    except Exception as error:  # half loaded by another thread, or broken: the next look finds out
        log.debug("OpenTelemetry cannot be used: %s", error)
        return None


class Tracing:
    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._api, self._context = trace, context
        self._notation = TraceContextTextMapPropagator()
        self._provider = provider
        self._tracer = provider.get_tracer(NAME)
        self._last: dict[UUID, SpanContext] = {}
        """The newest execution of runs that went on elsewhere or later: in memory only, a link is a courtesy."""

    # What our own calls open. Each is entered at once and never raises anything of its own.

    def trigger(self, type: str, count: int) -> TriggerSpan:
        """One for all runs of one call."""
        about = {f"{NAME}.workflow_type": type, f"{NAME}.runs": count}
        return TriggerSpan(self, self.start(f"trigger {type}", self._api.SpanKind.PRODUCER, None, about))

    def step(self, body: Body) -> InnerSpan:
        about = {**_about(body.lease), f"{NAME}.step": body.name, f"{NAME}.step_id": body.step_id}
        about[f"{NAME}.attempt"] = body.attempt
        return InnerSpan(self, self.start(f"step {body.name}", self._api.SpanKind.INTERNAL, None, about))

    def execution(self, lease: Lease, *, worker: str, replays: int) -> ExecutionSpan:
        """Becomes the current span of the calling context for good: that context is the execution's own."""
        about = {
            **_about(lease),
            f"{NAME}.attempt": lease.attempt,
            f"{NAME}.worker": worker,
            f"{NAME}.resumed": lease.epoch > 1,
            f"{NAME}.replayed_records": replays,
        }
        name, kind = f"run {lease.type}", self._api.SpanKind.CONSUMER
        before = self._last.pop(lease.id, None)
        links = [] if before is None else [self._api.Link(before)]
        span = self.start(name, kind, self._origin(lease, name), about, links)
        self.enter(span)
        return ExecutionSpan(self, span, lease.id)

    def carried(self) -> str | None:
        """The span that this code runs in, as the row of a new run carries it."""
        return _written(self._api.get_current_span().get_span_context())

    def current_ids(self) -> tuple[str, str] | None:
        current = self._api.get_current_span().get_span_context()
        return (f"{current.trace_id:032x}", f"{current.span_id:016x}") if current.is_valid else None

    def flush(self) -> None:
        """Before the process ends without its usual farewell."""
        flush = getattr(self._provider, "force_flush", None)
        if flush is not None:
            _guarded(lambda: flush(FLUSH_MILLISECONDS))

    # The provider's own calls, guarded.

    def start(
        self,
        name: str,
        kind: SpanKind,
        parent: Context | None,
        about: dict[str, Any],
        links: Sequence[Link] = (),
    ) -> Span:
        """A child of the current span unless a parent is given."""
        started = _guarded(lambda: self._tracer.start_span(name, parent, kind, about, links))
        if started is None:  # nothing is told, but what was told before still finds its way to children
            started = self._api.NonRecordingSpan(self._api.get_current_span(parent).get_span_context())
        span: Span = started
        return span

    def enter(self, span: Span) -> Any:
        return self._context.attach(self._api.set_span_in_context(span))

    def follow(self, context: contextvars.Context) -> None:
        """What will run in that context belongs to the span of this one."""
        context.run(self._context.attach, self._context.get_current())

    def leave(self, token: Any) -> None:
        _guarded(lambda: self._context.detach(token))

    def tell_error(self, span: Span, as_json: str, line: str | None) -> None:
        """An error as it stands in the run's row."""

        def tell() -> None:
            details = payload.decode(as_json, what="error")
            kind = ".".join(str(details[part]) for part in ("module", "type") if details.get(part))
            told = {"type": kind, "message": details.get("message"), "stacktrace": details.get("traceback")}
            span.add_event("exception", {f"exception.{key}": mask_text(str(v)) for key, v in told.items() if v})
            span.set_status(self._api.StatusCode.ERROR, mask_text(line or kind))

        if span.is_recording():
            _guarded(tell)

    def remember(self, run_id: UUID, span: Span) -> None:
        while len(self._last) >= MOST_REMEMBERED:
            self._last.pop(next(iter(self._last)), None)
        self._last[run_id] = span.get_span_context()

    # Where an execution belongs.

    def _origin(self, lease: Lease, name: str) -> Context:
        """What the row says, or what its id says when the row has nothing to say."""
        api, nowhere = self._api, self._context.Context()
        if isinstance(lease.traceparent, str):
            found: Context = self._notation.extract({"traceparent": lease.traceparent}, nowhere)
            if api.get_current_span(found).get_span_context().is_valid:
                return found
        digest = blake2b(lease.id.bytes, digest_size=24, person=NAME.encode()).digest()
        trace_id, span_id = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:], "big")
        flags = api.TraceFlags(api.TraceFlags.SAMPLED if self._samples(trace_id, name) else api.TraceFlags.DEFAULT)
        context = api.SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
        derived: Context = api.set_span_in_context(api.NonRecordingSpan(context), nowhere)
        return derived

    def _samples(self, trace_id: int, name: str) -> bool:
        """What the provider's sampler says of a trace that begins here; a provider that shows none wants all."""
        sampler = getattr(self._provider, "sampler", None)
        if sampler is None:
            return True
        decided = _guarded(lambda: sampler.should_sample(None, trace_id, name, self._api.SpanKind.CONSUMER, None, None))
        return decided is None or bool(decided.decision.is_sampled())


class InnerSpan:
    """A span around a piece of code, for `with`; an error that passes through is told."""

    __slots__ = ("_token", "_tracing", "span")

    def __init__(self, tracing: Tracing, span: Span) -> None:
        self._tracing = tracing
        self.span = span

    def __enter__(self) -> Self:
        self._token = self._tracing.enter(self.span)
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        span = self.span
        self._tracing.leave(self._token)
        if isinstance(error, Exception | SystemExit):
            self._tracing.tell_error(span, *failure.describe(error))
        elif error is not None:  # it is being unwound: no failure of its own
            _guarded(lambda: span.set_attribute(f"{NAME}.outcome", STOPPED))
        _guarded(span.end)


class TriggerSpan(InnerSpan):
    __slots__ = ()

    @property
    def carried(self) -> str | None:
        return _written(self.span.get_span_context())

    def made(self, answers: Sequence[object]) -> None:
        """What came of it; the id only when there is one to name."""
        if len(answers) == 1 and isinstance(made := answers[0], Created):
            about: dict[str, Any] = {f"{NAME}.run_id": str(made.id), f"{NAME}.is_new": made.is_new}
            _guarded(lambda: self.span.set_attributes(about))


class ExecutionSpan:
    """From the first line of an execution to its ending."""

    __slots__ = ("_run_id", "_span", "_tracing")

    def __init__(self, tracing: Tracing, span: Span, run_id: UUID) -> None:
        self._tracing = tracing
        self._span = span
        self._run_id = run_id

    def over(self, ending: Ending | Pause | None) -> None:
        """Once. None: the run was no longer ours, or was left behind."""
        span = self._span
        outcome = LOST if ending is None else EventType.PAUSED if isinstance(ending, Pause) else ending.event
        _guarded(lambda: span.set_attribute(f"{NAME}.outcome", str(outcome)))
        if isinstance(ending, Pause):
            _guarded(lambda: span.add_event(str(outcome), _about_pause(ending)))
        elif ending is not None and ending.error is not None:
            self._tracing.tell_error(span, ending.error, ending.last_error)
        if isinstance(ending, Pause) or (ending is not None and not ending.status.is_terminal):
            _guarded(lambda: self._tracing.remember(self._run_id, span))
        _guarded(span.end)


def _about(lease: Lease) -> dict[str, Any]:
    told = {"run_id": str(lease.id), "workflow_type": lease.type, "epoch": lease.epoch}
    return {f"{NAME}.{key}": value for key, value in told.items()}


def _about_pause(pause: Pause) -> dict[str, Any]:
    return {} if pause.due_in is None else {f"{NAME}.due_in": round(pause.due_in, 3)}


def _written(context: SpanContext) -> str | None:
    """In W3C's notation; vendors' own lists (tracestate) and baggage stay behind."""
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xFF:02x}"


def _guarded(call: Callable[[], Any]) -> Any:
    """None when the provider fails: a trace is worth less than the run that it tells of."""
    try:
        return call()
    except Exception as error:
        log.debug("OpenTelemetry failed: %s: %s", type(error).__name__, error)
        return None
