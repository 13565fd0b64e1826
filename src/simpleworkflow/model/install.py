"""How this package is installed, for every message that says so.

It is not on a package index, where `pip install simpleworkflow` would find a stranger's package or none; so messages
name a checkout, as the README does. On the day that it is published, these are the lines to change.
"""

from __future__ import annotations

CHECKOUT = "/path/to/simpleworkflow"
UPGRADE = f"pip install --upgrade {CHECKOUT}, a checkout of the newer version"


def needs(what: str, package: str, extra: str) -> str:
    """The sentence of MissingExtra: "metrics need prometheus-client; install it with: pip install …"."""
    return f"{what} {package}; install it with: {install(extra)}"


def install(extra: str) -> str:
    return f"pip install '{CHECKOUT}[{extra}]'"
