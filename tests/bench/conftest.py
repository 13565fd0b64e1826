"""The benchmark is a folder of programs, not a package: its modules find each other beside themselves."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
