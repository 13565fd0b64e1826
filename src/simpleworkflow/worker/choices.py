"""How a worker is to work, as people write it: app.worker(concurrency=20, lease="1 min"), checked at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict

from ..config import PREFIXES_VARIABLE, LogErrors, Settings
from ..model.duration import Duration, seconds
from ..model.errors import InvalidPolicy
from ..model.names import EVERYTHING, Span, merge_spans, parse_prefixes, span_of_prefix
from ..model.retention import Rule
from ..sinks.protocol import Sink
from .metrics_server import address
from .options import WorkerOptions
from .relay_options import relay_options, sink_of


class WorkerChoices(TypedDict, total=False):
    """How a worker is to work; every one of them optional."""

    name: str | None
    """How it calls itself in leases, logs and listings."""
    prefixes: str | Iterable[str] | None
    """Serve only types with these prefixes ("billing.,media.*"); WORKER_TYPE_PREFIXES, or everything, unless given."""
    concurrency: int | None
    """Runs at a time."""
    on_unknown: Literal["leave", "fail"]
    """What to do with routed types that have no handler here: leave them to others, or fail them."""
    lease: Duration | None
    """How long it may be silent before its runs are taken over."""
    poll_every: Duration | None
    """How often it looks for work when no hint comes."""
    drain: Duration | None
    """How long running code may go on after a stop."""
    schedules: bool
    """False: neither writes down the schedules beside the code nor starts the slots of any; others do."""
    sink: Sink | str | None
    """Take events of the outbox there: a Sink, or what `outbox dispatch --sink` takes ("https://…", "stdout:")."""
    sink_source: str | None
    """The source that these CloudEvents name; /simpleworkflow/SCHEMA unless given."""
    keep_published: Duration | None
    """How long published events stay in the outbox: "7 days" unless given, "forever" for good."""
    log_errors: LogErrors | None
    """How much of an error of user code is logged: "traceback", "message" or "type"."""
    metrics_port: int | None
    """Serve Prometheus metrics and a health check on this port; 0 for any that is free, which the log tells."""
    metrics_host: str | None
    """The address that they are served on: 127.0.0.1, this machine only, unless given."""


def plan(
    choices: WorkerChoices, settings: Settings, keep: Sequence[Rule], *, process_ends: bool = False
) -> tuple[Settings, WorkerOptions]:
    """What a worker with these choices is made of; a mistake in them is told here."""
    unknown = choices.keys() - WorkerChoices.__annotations__.keys()
    if unknown:
        raise TypeError(f"a worker has no option {', '.join(sorted(unknown))}")
    on_unknown = choices.get("on_unknown", "leave")
    if on_unknown not in {"leave", "fail"}:
        raise InvalidPolicy(f"on_unknown must be 'leave' or 'fail', not {on_unknown!r}")
    settings = _changed(settings, choices)
    return settings, WorkerOptions(
        name=choices.get("name"),
        spans=_spans(choices.get("prefixes")),
        fail_unknown=on_unknown == "fail",
        metrics=address(choices.get("metrics_host"), choices.get("metrics_port")),
        schedules=bool(choices.get("schedules", True)),
        process_ends=process_ends,
        keep=keep,
        sink=sink_of(choices.get("sink")),
        relay=relay_options(settings, choices.get("sink_source"), choices.get("keep_published", "7 days")),
    )


def _changed(settings: Settings, choices: WorkerChoices) -> Settings:
    changes: dict[str, Any] = {key: choices.get(key) for key in ("concurrency", "log_errors")}
    for key, value in (
        ("lease", choices.get("lease")),
        ("poll_every", choices.get("poll_every")),
        ("drain", choices.get("drain")),
    ):
        changes[key] = None if value is None else seconds(value, what=key)
    return replace(settings, **{key: value for key, value in changes.items() if value is not None})


def _spans(prefixes: str | Iterable[str] | None) -> list[Span]:
    if prefixes is None:
        prefixes = os.environ.get(PREFIXES_VARIABLE, "")
    if isinstance(prefixes, str):
        return parse_prefixes(prefixes) or [EVERYTHING]
    return merge_spans([span_of_prefix(prefix) for prefix in prefixes]) or [EVERYTHING]
