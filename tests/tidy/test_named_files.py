"""What documents and docstrings name exists: files, folders, links, and names in the code.

A file that is moved leaves its name behind in prose, which no type checker reads. ARCHITECTURE.md is read closely: it
also names files without their folder (that of a file or folder named before it in the same paragraph), and functions,
statements and columns. Elsewhere a path counts when it begins with a room or a folder of the repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from support.scratch import ROOT

PACKAGE = ROOT / "src" / "simpleworkflow"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "tests" / "README.md"]
SOURCES = [*sorted(PACKAGE.rglob("*.py")), *sorted(PACKAGE.rglob("*.sql"))]
HISTORY = "CHANGELOG.md"
"""It may name what there was."""
FOLDERS = {path.name for parent in (ROOT, PACKAGE) for path in parent.iterdir() if path.is_dir()}
KIND = r"(?:py|sql|md|svg|txt|toml|tmpl)"
PATH = re.compile(rf"(?<![\w./:<{{-])((?:[a-z_]\w*/)+[\w.*-]+\.{KIND})\b")
PLACEHOLDER = re.compile(r"NOUN|NNNN")
MAP = re.compile(r"<!-- map:.*?<!-- end of map -->", re.DOTALL)


def near(place: str, *folders: Path) -> Path | None:
    """The file or folder of that name; of several with an asterisk, the first."""
    for folder in folders:
        found = next(iter(sorted(folder.glob(place.rstrip("/")))), None) if place else None
        if found is not None:
            return found
    return None


def lost_in_page(page: str) -> Iterator[str]:
    """Files and folders in backticks that are nowhere, in a page like ARCHITECTURE.md."""
    for paragraph in re.split(r"\n\n|\n(?=\||\d+\. )", MAP.sub("", page)):
        folders = [ROOT, PACKAGE]
        for name in re.findall(r"`([\w./*-]+)`", paragraph):
            if not (re.search(rf"\w\.{KIND}$", name) or "/" in name) or PLACEHOLDER.search(name):
                continue
            found = near(name, *folders)
            if found is None:
                yield name
            elif found.is_relative_to(PACKAGE):
                folders.append(found if found.is_dir() else found.parent)


def lost_names(page: str, code: str) -> Iterator[str]:
    """Words in backticks that occur nowhere in the code, such as functions that have another name now."""
    for span in re.findall(r"`([^`\n]+)`", MAP.sub("", page)):
        if re.fullmatch(r"[\w.]+", span) and not re.search(rf"\.{KIND}$", span):
            last = span.rpartition(".")[2]
            if not re.search(rf"\b{last}\b", code):
                yield span


def lost_paths(text: str, beside: Path) -> Iterator[str]:
    """Paths that begin with a folder of ours and lead nowhere."""
    for name in PATH.findall(text):
        if name.partition("/")[0] in FOLDERS and near(name, ROOT, PACKAGE, beside, PACKAGE / "store") is None:
            yield name


def lost_links(page: str, folder: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)#\s]+)", page):
        if "://" not in target and not (folder / target).exists():
            yield target


def whole_code() -> str:
    files = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "tools").rglob("*.py"))]
    return "\n".join(path.read_text() for path in files) + (ROOT / "Makefile").read_text()


def test_every_file_that_the_architecture_names_exists() -> None:
    assert list(lost_in_page((ROOT / "ARCHITECTURE.md").read_text())) == []
    assert list(lost_in_page((ROOT / "CONTRIBUTING.md").read_text())) == []


def test_every_name_of_code_in_the_architecture_occurs_in_the_code() -> None:
    assert list(lost_names((ROOT / "ARCHITECTURE.md").read_text(), whole_code())) == []


def test_paths_in_documents_and_docstrings_lead_to_files() -> None:
    lost = {
        str(path.relative_to(ROOT)): found
        for path in [*PAGES, *SOURCES]
        if path.name != HISTORY and (found := list(lost_paths(path.read_text(), path.parent)))
    }
    assert lost == {}


def test_links_between_documents_lead_somewhere() -> None:
    lost = {
        str(page.relative_to(ROOT)): found
        for page in PAGES
        if (found := list(lost_links(page.read_text(), page.parent)))
    }
    assert lost == {}


def test_a_name_that_is_nowhere_is_noticed() -> None:
    """The checks above on text that is wrong: each would otherwise pass on whatever is written."""
    page = (
        "See `model/moves.py`, `states.py` and `laws.py`; `worker/claims.py`, `worker/`, `gone/`, `store/sql/*.sqlite`."
    )
    assert list(lost_in_page(page)) == ["laws.py", "worker/claims.py", "gone/", "store/sql/*.sqlite"]
    assert list(lost_in_page("`model/moves.py`\n\n`states.py`")) == ["states.py"], "another paragraph, another folder"
    assert list(lost_names("`runs.cancel`, `Execution._finish`", "def cancel(): ...")) == ["Execution._finish"]
    text = "in client/gone.py, see model/moves.py, shop/orders.py and docs/decisions/0999-none.md"
    assert list(lost_paths(text, ROOT)) == ["client/gone.py", "docs/decisions/0999-none.md"]
    assert list(lost_links("[a](docs/errors.md) [b](docs/gone.md#here) [c](https://x.example/y.md)", ROOT)) == [
        "docs/gone.md"
    ]
