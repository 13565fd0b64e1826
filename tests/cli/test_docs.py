"""The code in the documents runs: every ```python block, in the order of its page, and hidden checks between them.

A page is one program. Blocks share their names; a block that awaits runs inside a test environment (`env`), so that its
waits cost no time. Comments of the form <!-- test ... --> are not shown to readers: they set the stage for the next
block, or check what the one before has promised.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import simpleworkflow as swf

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/durable.md", "docs/logging.md", "docs/testing.md")
PIECE = re.compile(r"^(?:```python|(?P<hidden><!-- test))\n(?P<code>.*?)^(?:```|-->)$", re.MULTILINE | re.DOTALL)


class Piece(NamedTuple):
    line: int
    code: str
    is_hidden: bool


def pieces_of(page: str) -> list[Piece]:
    text = (ROOT / page).read_text()
    return [
        Piece(text.count("\n", 0, found.start("code")), found["code"], found["hidden"] is not None)
        for found in PIECE.finditer(text)
    ]


@pytest.fixture
def page_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module for the page's names: annotations are looked up there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIMPLEWORKFLOW_URL", raising=False)
    module = types.ModuleType("a_page_of_the_documents")
    vars(module).update(swf=swf, asyncio=asyncio, contextlib=contextlib, pytest=pytest, app=swf.App())
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


async def perform(piece: Piece, module: types.ModuleType, page: str) -> None:
    # Empty lines before it, so that a traceback names the line of the page.
    code = compile("\n" * piece.line + piece.code, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, vars(module))
        return
    app: swf.App = vars(module)["app"]
    async with swf.testing.env(app) as env:
        vars(module)["env"] = env
        await eval(code, vars(module))


@pytest.mark.parametrize("page", PAGES)
async def test_every_code_block_of_the_page_runs(page: str, page_module: types.ModuleType) -> None:
    pieces = pieces_of(page)
    assert any(not piece.is_hidden for piece in pieces)
    for piece in pieces:
        await perform(piece, page_module, page)


@pytest.mark.parametrize("page", PAGES)
def test_no_code_block_of_the_page_is_overlooked(page: str) -> None:
    text = (ROOT / page).read_text()
    shown = sum(not piece.is_hidden for piece in pieces_of(page))
    assert shown == text.count("```python")
    assert len(pieces_of(page)) - shown == text.count("<!-- test")


async def test_a_block_that_breaks_its_promise_is_found_out(page_module: types.ModuleType) -> None:
    with pytest.raises(AssertionError):
        await perform(Piece(0, "assert await asyncio.sleep(0, 1) == 2\n", False), page_module, "a page")


LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
DOCUMENTS = ("README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))))


@pytest.mark.parametrize("page", DOCUMENTS)
def test_every_link_of_the_page_leads_somewhere(page: str) -> None:
    source = ROOT / page
    for target, anchor in LINK.findall(source.read_text()):
        there = (source.parent / target).resolve() if target else source
        assert there.exists(), f"{page} links to {target}, which is not there"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{page} links to {target}#{anchor}, which is no heading"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_test_that_the_guarantees_name_exists() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text()
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    named = re.findall(r"`(test_\w+)`", text)
    assert len(named) > 20
    for name in named:
        assert f"def {name}(" in written, f"guarantees.md names {name}, which is not there"
    for path in re.findall(r"tests/[\w/.]+\w", text):
        assert (ROOT / path).exists(), f"guarantees.md names {path}, which is not there"


def test_every_public_exception_is_explained() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    kinds = [
        name for name in swf.__all__ if isinstance(kind := getattr(swf, name), type) and issubclass(kind, BaseException)
    ]
    assert len(kinds) > 20
    for name in kinds:
        assert f"`{name}" in text, f"errors.md does not explain {name}"
