"""Reads the package: its files with their sizes, and which file imports which.

Imports come from the syntax trees, also those inside functions. Names that are looked up at run time, such as the
modules of the commands in cli/main.py, are strings and no imports; no arrow shows them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "simpleworkflow"
KINDS = (".py", ".sql")
"""What counts as source. Templates, the marker of typed packages and the notes on SQL do not."""


@dataclass(frozen=True, slots=True)
class File:
    """A source file; `path` is relative to the package, with slashes."""

    path: str
    lines: int

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, order=True)
class Import:
    """One file imports another one, however often it says so."""

    source: str
    target: str
    for_types: bool
    """Only type checkers see it."""


def files(package: Path = PACKAGE) -> list[File]:
    found = sorted(path for kind in KINDS for path in package.rglob(f"*{kind}"))
    return [File(path.relative_to(package).as_posix(), path.read_text().count("\n")) for path in found]


def imports(package: Path = PACKAGE) -> list[Import]:
    """Every pair of files of the package, once; for types only if no line does it when the program runs."""
    modules = dict(_modules(package))
    found: dict[tuple[str, str], bool] = {}
    for module, path in modules.items():
        source = path.relative_to(package).as_posix()
        parent = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for target, for_types in _targets(ast.parse(path.read_text()), parent, modules):
            pair = source, target.relative_to(package).as_posix()
            found[pair] = found.get(pair, True) and for_types
    return sorted(Import(*pair, for_types) for pair, for_types in found.items() if pair[0] != pair[1])


def sentence_of(path: Path) -> str:
    """The first sentence of a module's docstring: what the file, or the package, is for."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".:") + "."


def _modules(package: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _targets(tree: ast.Module, parent: str, modules: dict[str, Path]) -> Iterator[tuple[Path, bool]]:
    for_types = {id(node) for block in _blocks_for_types(tree) for node in ast.walk(block)}
    for node in ast.walk(tree):
        for name in _imported(node, parent, modules):
            if name in modules:
                yield modules[name], id(node) in for_types


def _imported(node: ast.AST, parent: str, modules: dict[str, Path]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = parent.split(".")[: len(parent.split(".")) - node.level + 1] if node.level else []
    base = ".".join([*above, *([node.module] if node.module else [])])
    full = [f"{base}.{alias.name}" for alias in node.names]
    return [name if name in modules else base for name in full]


def _blocks_for_types(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            yield from node.body
