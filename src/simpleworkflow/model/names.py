"""Names: of workflow types, of the ranges of types that a worker serves, and of idempotency keys.

A workflow type is a dotted name such as `billing.invoice.v1`. Workers that serve only some types say so by prefix
(WORKER_TYPE_PREFIXES=billing.,media.*), and the store turns each prefix into a half-open text range, low <= type <
high, because a range is what an index can answer on both databases while LIKE is not: its use of an index depends on
collation, pragma and driver.

The dangers are two. A range is only right where text is ordered by code point; so Python compares str as it is, and
SQL must compare under the C collation (SQLite's BINARY). And a name with a blank, a quote or a wildcard in it would
be read differently by shells, URLs, SQL and dashboards; so the alphabet is small, and it is checked in one place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from .errors import InvalidName

MAX_TYPE_LENGTH = 200
MAX_KEY_LENGTH = 255

AFTERMATH = ("on_cancel:", "dead_letter:")
"""How the keys of runs begin that the end of another run has started, with its details as their input."""

_EXAMPLE = "for example billing.invoice.v1"
_FOREIGN = re.compile(r"[^A-Za-z0-9_.-]")
_EDGE_FORBIDDEN = "-."
_WILDCARDS = "*%"
_LONGEST_SHOWN = 80


class Span(NamedTuple):
    """Every text t with low <= t < high, ordered by code point."""

    low: str
    high: str


EVERYTHING = Span("", "\U0010ffff")


def check_type(name: str, what: str = "workflow type") -> str:
    """The name itself when it can name a workflow type (or something named alike); InvalidName otherwise."""
    _check_alphabet(name, what)
    if name[0] in _EDGE_FORBIDDEN:
        raise _refusal(what, name, f"starts with {name[0]!r}; start with a letter, a digit or _")
    if name[-1] in _EDGE_FORBIDDEN:
        raise _refusal(what, name, f"ends with {name[-1]!r}; end with a letter, a digit or _")
    return name


def check_key(key: str, what: str = "idempotency key") -> str:
    """The key itself when it is 1 to 255 printable characters; InvalidName otherwise."""
    _check_length(key, what, MAX_KEY_LENGTH, "for example order-4711")
    if not key.isprintable():  # NUL, line breaks, other controls and lone surrogates are not printable
        index, bad = next((index, char) for index, char in enumerate(key) if not char.isprintable())
        raise _refusal(what, key, f"contains {bad!a} at position {index}; use printable characters")
    return key


def span_of_type(name: str) -> Span:
    """The range that holds exactly this type. \\x01 sorts below every character that a name may continue with."""
    return Span(name, name + "\x01")


def span_of_prefix(prefix: str) -> Span:
    """`billing.`, `billing.*` and `billing.%` are all types below billing; `billing` is that type alone; `*` is all."""
    if not isinstance(prefix, str):
        raise _refusal("type prefix", prefix, f"is a {type(prefix).__name__}, not a string")
    stem = prefix[:-1] if prefix.endswith(tuple(_WILDCARDS)) else prefix
    if not stem:
        return EVERYTHING
    _check_wildcards(stem, prefix)
    if stem == prefix and not prefix.endswith("."):
        return span_of_type(check_type(prefix))
    _check_alphabet(stem, "type prefix")
    if stem[0] in _EDGE_FORBIDDEN:
        raise _refusal("type prefix", prefix, f"starts with {stem[0]!r}, as no workflow type does")
    return Span(stem, stem[:-1] + chr(ord(stem[-1]) + 1))


def parse_prefixes(text: str) -> list[Span]:
    """The spans of a comma list such as WORKER_TYPE_PREFIXES, merged. Blank items are ignored; no items, no spans."""
    return merge_spans(span_of_prefix(item.strip()) for item in text.split(",") if item.strip())


def in_span(name: str, span: Span) -> bool:
    return span.low <= name < span.high


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """The same texts in the fewest spans: sorted, none empty, none touching another."""
    merged: list[Span] = []
    for span in sorted(span for span in spans if span.low < span.high):
        if merged and span.low <= merged[-1].high:
            merged[-1] = Span(merged[-1].low, max(merged[-1].high, span.high))
        else:
            merged.append(span)
    return merged


def _check_alphabet(name: str, what: str) -> None:
    _check_length(name, what, MAX_TYPE_LENGTH, _EXAMPLE)
    foreign = _FOREIGN.search(name)
    if foreign:
        where = f"contains {foreign[0]!a} at position {foreign.start()}"
        raise _refusal(what, name, f"{where}; use letters (A-Z, a-z), digits, '_', '-' and '.'")
    if ".." in name:
        raise _refusal(what, name, "contains '..'; put something between two dots")


def _check_wildcards(stem: str, prefix: str) -> None:
    found = next((char for char in stem if char in _WILDCARDS), None)
    if found:
        raise _refusal("type prefix", prefix, f"contains {found!r} before its end; a wildcard may only come last")


def _check_length(text: str, what: str, limit: int, example: str) -> None:
    if not isinstance(text, str):
        raise _refusal(what, text, f"is a {type(text).__name__}, not a string", example)
    if not text:
        raise _refusal(what, text, "is empty", example)
    if len(text) > limit:
        raise _refusal(what, text, f"has {len(text)} characters; the limit is {limit}", example)


def _refusal(what: str, name: object, why: str, example: str = _EXAMPLE) -> InvalidName:
    shown = ascii(name)  # ascii: a message with a lone surrogate could not be logged
    shown = shown if len(shown) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + "…"
    return InvalidName(f"{what} {shown} {why} ({example})")


RESULT = "@result "
"""Where a parent waits for a child: names of recorded pieces that are not steps start with @."""


def child_of(step_id: str) -> UUID | None:
    """The child that was waited for at this place; None when it is no such place."""
    name = step_id.partition("#")[0].rpartition("/")[2]
    try:
        return UUID(name.removeprefix(RESULT)) if name.startswith(RESULT) else None
    except ValueError:
        return None
