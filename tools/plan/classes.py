"""Reads which classes of the package are made of which others.

A class is known by its file and its name, because some names are used in several files. The base of a class is a class
of the same file, or else of a file that it imports.
"""

from __future__ import annotations

import ast
from functools import cached_property
from pathlib import Path

from .reading import PACKAGE, imports

Class = tuple[str, str]
"""File and name."""


class Classes:
    def __init__(self, package: Path = PACKAGE) -> None:
        self._package = package
        self._imported = {(link.source, link.target) for link in imports(package)}

    def chains(self) -> dict[str, int]:
        """How many classes of ours each class is a chain of, itself included, longest first; without exceptions."""
        depths: dict[str, int] = {}
        for one in self._bases:
            if not self._is_exception(one):
                depths[one[1]] = max(self._depth(one), depths.get(one[1], 0))
        return dict(sorted(depths.items(), key=lambda item: (-item[1], item[0])))

    @cached_property
    def _bases(self) -> dict[Class, list[str]]:
        return {
            (path.relative_to(self._package).as_posix(), node.name): [_name(base) for base in node.bases]
            for path in sorted(self._package.rglob("*.py"))
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ClassDef)
        }

    def _ours(self, one: Class) -> list[Class]:
        """The classes of the package that this one is made of."""
        return [found for base in self._bases[one] if (found := self._look_up(one, base)) is not None]

    def _look_up(self, one: Class, base: str) -> Class | None:
        known = [other for other in self._bases if other[1] == base and other != one]
        here = [other for other in known if other[0] == one[0]]
        imported = [other for other in known if (one[0], other[0]) in self._imported]
        return next(iter([*here, *imported, *(known if len(known) == 1 else [])]), None)

    def _depth(self, one: Class) -> int:
        return 1 + max(map(self._depth, self._ours(one)), default=0)

    def _is_exception(self, one: Class) -> bool:
        direct = any(base.endswith(("Error", "Exception")) for base in self._bases[one])
        return direct or any(map(self._is_exception, self._ours(one)))


def _name(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):
        return _name(base.value)
    return base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
