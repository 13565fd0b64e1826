"""Everything that one run of the benchmark reports: the figures, the settings they depend on, and warnings."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ..store.operations.health import unsafe
from .figures import Figure
from .place import Place
from .plan import Plan


@dataclass(frozen=True)
class Report:
    place: Place
    plan: Plan
    settings: dict[str, str]
    """The settings of the database that decide how durable a commit is."""
    figures: Sequence[Figure]
    is_kept: bool
    warnings: Sequence[str]

    @property
    def unsafe(self) -> list[str]:
        """The settings with which a loss of power may take accepted runs along."""
        return [name for name, value in self.settings.items() if unsafe(name, value)]

    def as_json(self) -> dict[str, Any]:
        return {
            "simpleworkflow": version("simpleworkflow"),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "database": str(self.place.url),
            "place": {"kind": self.place.kind, "name": self.place.name, "kept": self.is_kept},
            "settings": self.settings,
            "unsafe": self.unsafe,
            "troubles": list(self.warnings),
            "runs": self.plan.runs,
            "steps": self.plan.steps,
            "figures": {figure.key: figure.as_json() for figure in self.figures},
        }
