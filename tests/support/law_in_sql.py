"""Reads the moves out of the SQL: which statements move a run, from which states to which, and what they prove.

A statement moves a run if it inserts into workflow_run, or sets `status` or `held_at` there. It is compared with the
rows of model/moves.py by what it says itself: the state that it sets, the states that it asks for, the proof of the
lease (the current one, or one that has ended), and whether it holds the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from simpleworkflow.model import moves
from simpleworkflow.model.moves import MOVES, Move, Needs
from simpleworkflow.model.states import OPEN, Status
from simpleworkflow.store.catalog import DIALECTS, statements

WRITE = re.compile(r"\b(INSERT (?:OR \w+ )?INTO|UPDATE) (?:workflow\.)?workflow_run\b")
PROOF = re.compile(r"\w\.status = 'leased' AND \w\.leased_by = ")
ENDED = re.compile(r"\blease_until < ")
ASKS = re.compile(r"(?<!b\.)\bstatus(?: \|\| ''\))?(?: = | IN \()((?:'\w+'(?:, )?)+)")
NOW = {":now", "now()"}


@dataclass(frozen=True, slots=True)
class Write:
    """One INSERT or UPDATE of workflow_run: what it sets, and the rest of its statement."""

    statement: str
    is_insert: bool
    sets: dict[str, str]
    rest: str

    @property
    def moves_a_run(self) -> bool:
        return self.is_insert or bool({"status", "held_at"} & self.sets.keys())

    @property
    def takes_entries(self) -> bool:
        """The state comes with each row: the endings of executions."""
        return self.sets.get("status") == "b.status"

    @property
    def sources(self) -> frozenset[Status]:
        named = {word for span in ASKS.findall(self.rest) for word in re.findall(r"\w+", span)}
        if named <= {"leased"} and re.search(r"\bfinished_at IS NULL", self.rest):
            return OPEN
        return frozenset(map(Status, named))

    @property
    def needs(self) -> Needs:
        if PROOF.search(self.rest):
            return Needs.LEASE
        return Needs.ENDED_LEASE if ENDED.search(self.rest) else Needs.NOTHING

    def makes(self, move: Move) -> bool:
        if self.is_insert:
            return not move.sources
        if (self.sources, self.needs) != (move.sources, move.needs):
            return False
        if self.takes_entries:
            return hasattr(moves, move.name)  # its constructor: only endings have one
        status = self.sets.get("status", "").strip("'")
        targets = frozenset({Status(status)}) if status else OPEN
        return targets == move.targets and (self.sets.get("held_at") in NOW) == move.holds

    def __str__(self) -> str:
        if self.is_insert:
            return f"{self.statement} inserts runs"
        from_states = ", ".join(sorted(self.sources)) or "any state"
        target = self.sets.get("status", "the same state")
        return f"{self.statement} goes from {from_states} to {target}, proves {self.needs}"


def writes(dialect: str) -> list[Write]:
    """Every INSERT and UPDATE of workflow_run that the catalogue has for a database."""
    return [write for name, one in sorted(statements(dialect).items()) for write in writes_of(name, one.source)]


def writes_of(name: str, text: str) -> Iterator[Write]:
    text = re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", text))
    for found in WRITE.finditer(text):
        if found[1] != "UPDATE":
            yield Write(name, True, {}, "")
            continue
        start = text.index(" SET ", found.end()) + 5
        end = start + _length(text[start:], (" FROM ", " WHERE ", " RETURNING "))
        sets = dict(one.strip().split(" = ", 1) for one in _split(text[start:end]))
        yield Write(name, False, sets, text[: found.start()] + text[end:])


def performed() -> dict[str, set[str]]:
    """Which moves each statement makes, on whatever database."""
    found: dict[str, set[str]] = {}
    for dialect in DIALECTS:
        for write in writes(dialect):
            if write.moves_a_run:
                found.setdefault(write.statement, set()).update(m.name for m in MOVES.values() if write.makes(m))
    return found


def _length(text: str, ends: tuple[str, ...]) -> int:
    """How far it is to the first of these words outside of parentheses and CASE."""
    for position, depth in _depths(text):
        if depth == 0 and text.startswith(ends, position):
            return position
        if depth < 0:
            return position
    return len(text)


def _split(text: str) -> list[str]:
    cuts = [position for position, depth in _depths(text) if depth == 0 and text[position] == ","]
    return [text[a:b] for a, b in zip([0, *(cut + 1 for cut in cuts)], [*cuts, len(text)], strict=True)]


def _depths(text: str) -> Iterator[tuple[int, int]]:
    depth = 0
    for position, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        yield position, depth
