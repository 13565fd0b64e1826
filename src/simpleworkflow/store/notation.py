"""Reads one `.sql` file: its statements and fragments, with what is declared above each of them.

The notation is told in `sql/README.md`. Lines that begin with `-- key:` declare something, other lines that begin with
`--` are comments and are not sent, and the rest is SQL. A mistake is refused when the file is read, with the file and
the statement. That includes keys that do not exist: taken for a comment, a mistyped `-- name:` would make one statement
of two. So no line of a comment may begin with a word in lower case and a colon.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LINE = re.compile(r"--\s*([a-z_]+)\s*:\s*(.*)")
_KEYS = frozenset(["name", "fragment", "batch", "param", "each", "differs", "like"])
_NAME = re.compile(r"\w+")
_FRAGMENT = re.compile(r"(\w+)(?:\((\w+)\))?")
_BATCH = re.compile(r"(\w+)\((.*)\)")

Columns = tuple[tuple[str, str], ...]
"""The names and types of a batch."""


class CatalogError(Exception):
    """A .sql file breaks the rules of sql/README.md."""


@dataclass(slots=True)
class Block:
    """A statement or a fragment, as it is written."""

    name: str
    file: str
    is_fragment: bool = False
    parameter: str | None = None
    """What a fragment calls the text that is given to it."""
    lines: list[str] = field(default_factory=list)
    batches: dict[str, Columns] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    differs: str | None = None
    like: str | None = None
    each: str | None = None

    @property
    def body(self) -> str:
        return "\n".join(self.lines).strip()

    def mistake(self, what: str) -> CatalogError:
        """What is wrong, with the place to look at."""
        return CatalogError(f"{self.file}: {'fragment ' if self.is_fragment else ''}{self.name}: {what}")


def parse(text: str, file: str) -> list[Block]:
    """The blocks of one file, in order."""
    blocks: list[Block] = []
    for line in text.splitlines():
        head = _LINE.match(line)
        if head is not None:
            _declare(blocks, head[1], head[2].strip(), file)
        elif line.startswith("--"):
            continue
        elif blocks:
            blocks[-1].lines.append(line)
        elif line.strip():
            raise CatalogError(f"{file}: there is SQL before the first `-- name:`: {line.strip()[:60]}")
    for block in blocks:
        _check(block)
    return blocks


def _declare(blocks: list[Block], key: str, value: str, file: str) -> None:
    if key in {"name", "fragment"}:
        blocks.append(_block(key, value, file))
        return
    if not blocks:
        raise CatalogError(f"{file}: `-- {key}:` stands before the first `-- name:`")
    if key not in _KEYS:
        raise blocks[-1].mistake(
            f"there is no `-- {key}:`; a comment begins with a capital letter or has no colon there"
        )
    try:
        _annotate(blocks[-1], key, value)
    except (ValueError, IndexError):
        raise blocks[-1].mistake(f"cannot read `-- {key}: {value}`") from None


def _block(key: str, value: str, file: str) -> Block:
    match = (_NAME if key == "name" else _FRAGMENT).fullmatch(value)
    if match is None:
        raise CatalogError(f"{file}: cannot read `-- {key}: {value}`")
    if key == "name":
        return Block(value, file)
    return Block(match[1], file, is_fragment=True, parameter=match[2])


def _annotate(block: Block, key: str, value: str) -> None:
    if key == "batch":
        match = _BATCH.fullmatch(value)
        if match is None:
            raise ValueError(value)
        columns = [column.split() for column in match[2].split(",")]
        block.batches[match[1]] = tuple((name, kind) for name, kind in columns)
    elif key == "param":
        for one in value.split(","):
            name, kind = one.split()
            block.types[name] = kind
    elif not value:
        raise ValueError(key)
    else:
        setattr(block, key, value)


def _check(block: Block) -> None:
    if block.is_fragment:
        if block.batches or block.types or block.each or block.like:
            raise block.mistake("a fragment declares nothing; the statements that use it do")
        if not block.body and not block.differs:
            raise block.mistake("has no text")
        if block.parameter is not None and f"{{{block.parameter}}}" not in block.body:
            raise block.mistake(f"never uses its {{{block.parameter}}}")
    if block.like is not None and block.body:
        raise block.mistake(f"has a text of its own and is like {block.like}")
