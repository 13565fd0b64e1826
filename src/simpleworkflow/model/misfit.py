"""What a JSON reader says of a value that does not fit its type, in the words of Python.

``Expected `null`, got `object` - at `$` `` becomes "expected None, got dict", and ``… - at `$.tags[0]` `` becomes
"tags[0]: expected str, got int".
"""

from __future__ import annotations

import re

_WORDS = {"null": "None", "object": "dict", "array": "list", "duration": "timedelta"}
_TYPES = re.compile(r"^Expected `([^`]*)`(?:, got `([^`]*)`)?")
_PLACE = re.compile(r" - at (`key` in )?`\$\.?([^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `([^`]*)`")
_UNKNOWN = re.compile(r"^Object contains unknown field `([^`]*)`")


def in_python(told: str) -> str:
    """The sentence of msgspec, or anybody else's as it is."""
    found = _PLACE.search(told)
    of_a_key, place = (found[1], found[2]) if found else (None, "")
    where = f"a key of {place or 'it'}" if of_a_key else place
    told = _PLACE.sub("", told)
    told = _MISSING.sub(r"the field \1 is missing", told)
    told = _UNKNOWN.sub(r"there is no field \1", told)
    told = _TYPES.sub(_expected, told)
    return f"{where}: {told}" if where else told


def _expected(found: re.Match[str]) -> str:
    got = f", got {_types(found[2])}" if found[2] else ""
    return f"expected {_types(found[1])}{got}"


def _types(text: str) -> str:
    return " | ".join(_WORDS.get(word, word) for word in text.split(" | "))
