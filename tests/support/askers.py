"""Reads the code: which files ask the store for which operations, and which statements these lead to.

An operation is a function in store/operations. It leads to the statements that it names, and to those of the functions
of store/operations that it names. A file asks for an operation when it names it, as `runs.cancel` or by itself.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path

from simpleworkflow.store.catalog import DIALECTS, statements

Function = tuple[str, str]
"""Module of store/operations, and name."""


@dataclass(slots=True)
class Body:
    """What one function names."""

    statements: set[str] = field(default_factory=set)
    functions: set[Function] = field(default_factory=set)
    is_operation: bool = False
    """A driver can run what it returns."""
    takes_entries: bool = False
    """Records, pauses and endings: which moves it makes depends on what it is given."""


class Store:
    """The functions of store/operations and who asks for them."""

    def __init__(self, package: Path, known: set[str] | None = None) -> None:
        self._package = package
        self._folder = package / "store" / "operations"
        self._known = known if known is not None else {name for dialect in DIALECTS for name in statements(dialect)}
        self.functions: dict[Function, Body] = {}
        for path in sorted(self._folder.glob("*.py")):
            self._read(path)

    def statements_of(self, function: Function) -> set[str]:
        """Everything that it may send, also by way of others."""
        found, waiting, seen = set(), [function], {function}
        while waiting:
            body = self.functions.get(waiting.pop(), Body())
            found |= body.statements
            waiting += body.functions - seen
            seen |= body.functions
        return found

    def asked(self) -> dict[str, set[Function]]:
        """The operations that each file outside of store/operations names."""
        found = {}
        for path in sorted(self._package.rglob("*.py")):
            if self._folder not in path.parents:
                names = _named(ast.parse(path.read_text()), _imports(ast.parse(path.read_text()), "operations"))
                if asked := names & self.functions.keys():
                    found[path.relative_to(self._package).as_posix()] = asked
        return found

    def entries_of(self, file: str) -> set[str]:
        """What a file can give to an operation that takes entries: the names that it has from model/moves.py."""
        tree = ast.parse((self._package / file).read_text())
        names = {name for name, found in _imports(tree, "model").items() if isinstance(found, tuple)}
        return names | {name for module, name in _named(tree, _imports(tree, "model")) if module == "moves"}

    def _read(self, path: Path) -> None:
        tree = ast.parse(path.read_text())
        imported = _imports(tree, "")
        tables = {target.id: node.value for node in tree.body for target in _targets(node) if node.value is not None}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                body = self.functions[path.stem, node.name] = Body()
                body.functions = _named(node, imported) | {(path.stem, name) for name in _words(node)}
                body.statements = self._texts(node)
                for name in _words(node) & tables.keys():
                    body.statements |= self._texts(tables[name])
                body.is_operation = _is_operation(node)
                body.takes_entries = any("Entry" in ast.unparse(arg.annotation or arg) for arg in _arguments(node))

    def _texts(self, tree: ast.AST) -> set[str]:
        return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & self._known


def _imports(tree: ast.Module, package: str) -> dict[str, Function | str]:
    """Name -> the function it stands for, or the module. `package`: the end of the imported package's name."""
    found: dict[str, Function | str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            for alias in node.names:
                if module.rpartition(".")[2] == package:
                    found[alias.asname or alias.name] = alias.name
                elif module.rpartition(".")[0].endswith(package):
                    found[alias.asname or alias.name] = (module.rpartition(".")[2], alias.name)
    return found


def _named(tree: ast.AST, imported: dict[str, Function | str]) -> set[Function]:
    found: set[Function] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(known := imported.get(node.id), tuple):
            found.add(known)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = imported.get(node.value.id)
            if isinstance(module, str):
                found.add((module, node.attr))
    return found


def _arguments(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _words(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _targets(node: ast.stmt) -> list[ast.Name]:
    if isinstance(node, ast.Assign):
        return [target for target in node.targets if isinstance(target, ast.Name)]
    return [node.target] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else []


DECORATORS = {"reading", "beholding", "scanning", "statements", "transaction"}


def _is_operation(node: ast.FunctionDef) -> bool:
    named = {one.id for one in node.decorator_list if isinstance(one, ast.Name)}
    return bool(named & DECORATORS) or (node.returns is not None and ast.unparse(node.returns).startswith("Operation["))
