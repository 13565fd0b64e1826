"""Puts fragments where a text names them: `{name}`, or `{name(text)}` for a fragment with a parameter.

A fragment is a piece of SQL that several statements have in common. It stands in its place as it is written, only
indented, so that what is sent can still be read. A fragment may name others. One parameter is
enough: it is for statements that are the same but for one condition, of which two copies would drift apart.

Braces mean nothing else in our SQL, so every brace that names no fragment is a mistake.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .notation import Block, CatalogError

_BRACES = re.compile(r"\{([^{}]*)\}")
_USE = re.compile(r"(\w+)(?:\((.*)\))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fragments:
    """The fragments of one database, by name, and the schema, which is `{schema}`."""

    blocks: dict[str, Block]
    schema: str

    def __post_init__(self) -> None:
        for block in self.blocks.values():
            taken = {*self.blocks, "schema"} & {block.parameter}
            if block.name == "schema" or taken:
                raise block.mistake(f"{{{block.parameter if taken else block.name}}} means something else already")

    def fill(self, statement: Block) -> str:
        """The text of a statement without braces."""
        return self._filled(statement.body, _Place(statement))

    def _filled(self, text: str, place: _Place) -> str:
        if re.search("[{}]", _BRACES.sub("", text)):
            raise place.mistake("a brace does not belong to a {fragment} or {fragment(text)}, whose text has none")
        return _BRACES.sub(lambda match: indented(self._text(match[1], place), match), text)

    def _text(self, braces: str, place: _Place) -> str:
        use = _USE.fullmatch(braces)
        if use is None:
            raise place.mistake(f"cannot read {{{braces}}}")
        name, argument = use.groups()
        if argument is None and place.inside and name == place.inside[-1].parameter:
            return place.argument
        if argument is None and name == "schema":
            return self.schema
        return self._filled(self._named(name, argument, place).body, place.within(self.blocks[name], argument or ""))

    def _named(self, name: str, argument: str | None, place: _Place) -> Block:
        block = self.blocks.get(name)
        if block is None:
            raise place.mistake(f"there is no fragment {name}")
        if block in place.inside:
            raise place.mistake(f"the fragment {name} is part of itself")
        if block.parameter is None and argument is not None:
            raise place.mistake(f"the fragment {name} takes no text: write {{{name}}}")
        if block.parameter is not None and not (argument or "").strip():
            raise place.mistake(f"the fragment {name} needs its {block.parameter}: write {{{name}(…)}}")
        return block


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a text stands: in a statement, perhaps inside fragments, the innermost last, which was given a text."""

    statement: Block
    inside: tuple[Block, ...] = ()
    argument: str = ""

    def within(self, fragment: Block, argument: str) -> _Place:
        return _Place(self.statement, (*self.inside, fragment), argument)

    def mistake(self, what: str) -> CatalogError:
        path = "".join(f"in the fragment {block.name} ({block.file}): " for block in self.inside[-1:])
        return self.statement.mistake(path + what)


def indented(text: str, place: re.Match[str]) -> str:
    """A text for this place: its further lines begin where the line of the place does, a little to the right of that
    where something else stands before it."""
    line = place.string[place.string.rfind("\n", 0, place.start()) + 1 : place.start()]
    begun = line.lstrip()
    indent = line.removesuffix(begun) + ("  " if begun else "")
    return text.replace("\n", "\n" + indent)
