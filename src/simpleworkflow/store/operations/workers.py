"""Definitions and live workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...clock import to_us
from ...model import payload as json
from ...model.records import Definition, WorkerInfo
from ..protocol import Row, Steps, query, reading, statements


@statements
def define(definitions: Sequence[Definition]) -> Steps[None]:
    """Tell the database what it must know of these workflows; whether they are enabled stays as it is."""
    if definitions:
        yield query("upsert_definitions", d=definition_rows(definitions))


def definition_rows(definitions: Sequence[Definition]) -> list[tuple[str | None, ...]]:
    by_name = sorted(definitions, key=lambda one: one.name)
    return [(d.name, d.description, d.on_cancel, d.dead_letter, d.on_exhausted) for d in by_name]


@statements
def create_definition(name: str, description: str | None, known: Sequence[Definition] = ()) -> Steps[None]:
    if known:
        yield query("introduce_definitions", d=definition_rows(known))
    yield query("create_definition", name=name, description=description)


@statements
def enable(name: str, is_enabled: bool, known: Sequence[Definition] = ()) -> Steps[None]:
    if known:
        yield query("introduce_definitions", d=definition_rows(known))
    yield query("enable_definition", name=name, is_enabled=is_enabled)


@reading
def known_names(*, limit: int = 10_000) -> Steps[list[str]]:
    return [row["workflow_name"] for row in (yield query("definition_names", limit=limit))]


@reading
def definitions(names: Sequence[str]) -> Steps[list[Definition]]:
    rows = yield query("get_definitions", d=[(name,) for name in names])
    return [
        Definition(
            name=row["workflow_name"],
            description=row["description"],
            on_cancel=row["on_cancel"],
            dead_letter=row["dead_letter"],
            on_exhausted=row["on_exhausted"],
            runtime=row["runtime"],
            is_enabled=bool(row["is_enabled"]),
        )
        for row in rows
    ]


@statements
def announce(
    worker_id: str,
    name: str,
    host: str,
    pid: int,
    spans: Sequence[tuple[str, str]],
    load: Mapping[str, object] | None = None,
) -> Steps[None]:
    """Among the living, with what it serves and, if it says so, how full it is."""
    text = json.encode([list(span) for span in spans], what="spans")
    told = None if load is None else json.encode(load, what="load")
    yield query("announce_worker", id=worker_id, name=name, host=host, pid=pid, spans=text, load=told)


@statements
def retire(worker_id: str) -> Steps[None]:
    yield query("retire_worker", id=worker_id)


@statements
def forget(*, silence: float) -> Steps[None]:
    yield query("forget_workers", silence=to_us(silence))


@reading
def alive(*, silence: float) -> Steps[list[WorkerInfo]]:
    """Workers heard of within so many seconds."""
    return [WorkerInfo(**introduction(row)) for row in (yield query("live_workers", silence=to_us(silence)))]


def introduction(row: Row) -> dict[str, Any]:
    """What every record of a worker begins with."""
    same = ("name", "host", "pid", "started_at", "seen_at", "spans_json")
    return {"id": row["worker_id"], **{name: row[name] for name in same}}
