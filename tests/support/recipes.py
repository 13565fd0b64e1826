"""Follows a recipe of CONTRIBUTING.md in a copy of the tree, whole or without a step, and runs its checks there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .scratch import ROOT, Scratch

Step = Callable[[Scratch], None]
Recipe = dict[str, Step]

SRC = "src/simpleworkflow"
ON_SQLITE = "not (test_matrix and postgres) and not (test_outbox and postgres)"
EVERYWHERE = "not nothing"


def recipe_text(title: str) -> str:
    """One recipe of CONTRIBUTING.md, to the beginning of the next one."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    return page.partition(f"**{title}.**")[2].partition("\n**")[0]


def assert_recipe_works(
    folder: Path, recipe: Recipe, files: tuple[str, ...], chosen: str, where: str = ON_SQLITE
) -> None:
    """`chosen`: which tests of these files are checks of the recipe, as pytest's -k takes it."""
    status, said = _follow(folder, recipe, files, f"({chosen}) and {where}")
    assert status == 0, said


def assert_step_is_missed(
    folder: Path, recipe: Recipe, step: str, message: str, files: tuple[str, ...], chosen: str
) -> None:
    """Without that step the checks fail, and say so."""
    others = {name: follow for name, follow in recipe.items() if name != step}
    status, said = _follow(folder, others, files, f"({chosen}) and {ON_SQLITE}")
    assert status != 0, f"nothing misses {step}"
    assert message in " ".join(said.split()), said[-3000:]


def _follow(folder: Path, recipe: Recipe, files: tuple[str, ...], chosen: str) -> tuple[int, str]:
    scratch = Scratch(folder)
    for follow in recipe.values():
        follow(scratch)
    done = scratch.pytest(*files, "-k", chosen, "-m", "not slow")
    return done.returncode, done.stdout
