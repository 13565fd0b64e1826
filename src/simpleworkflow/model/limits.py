"""How large one stored value may be. Apart from the JSON codec, so that settings can be read without loading it."""

from __future__ import annotations

MAX_BYTES = 1024 * 1024
"""Default limit for the UTF-8 size of one encoded value."""

MAX_DEPTH = 64
"""Containers inside containers: `[]` is 1 deep, `[[]]` is 2 deep."""
