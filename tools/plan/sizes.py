"""How sizes are told: in steps, so that the map changes when the house does and not with every line."""

from __future__ import annotations

STEP = 50
"""Lines that one block of a bar stands for."""


def blocks(lines: int) -> int:
    """The length of a file's bar."""
    return (lines + STEP // 2) // STEP


def told(lines: int) -> str:
    """The size of a room, to the nearest hundred."""
    return f"{(lines + 50) // 100 * 100:,}" if lines >= 50 else "<50"
