"""The URL of a webhook, read strictly: what two readers could understand differently is refused.

Most tricks that lead a program to an address it should not call live in the spelling: `http://127.1/`, `0x7f.1`,
`2130706433`, `①②⑦.⓪.⓪.①`, `https://good@evil/`, `https://good\\@evil`, a line end that starts a second request. So
nothing is guessed or normalised here: a host is ASCII labels, or an address in its usual spelling, and everything else
is a mistake that names its cure. What a *name* leads to is seen when it is resolved (connections.py).

Paths and queries of webhooks are often secrets themselves. Messages show only where a URL leads: `https://host/…`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

from ..model.errors import InvalidURL
from .addresses import Address, Allowed

_URL = re.compile(r"(?P<scheme>https?)://(?P<place>[^/?]*)(?P<rest>[^#]*)", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"\[(?P<host>[0-9a-fA-F:.]+)\](?::(?P<port>[0-9]{1,5}))?")
_NAMED = re.compile(r"(?P<host>[^:\[\]]+)(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_ORDINARY_PORTS = {80, 443}
HTTPS_ONLY = (
    "webhooks are sent by https://; http:// must be allowed (allow_http=True, or SIMPLEWORKFLOW_WEBHOOK_ALLOW_HTTP=1)"
)
PUBLIC_ONLY = "webhooks go to public addresses; others must be allowed (allow=, or SIMPLEWORKFLOW_WEBHOOK_ALLOW)"
_LOOPBACK = IPv4Address("127.0.0.1")


@dataclass(frozen=True, slots=True)
class Target:
    is_tls: bool
    host: str
    """Lower case, without brackets or a final dot."""
    port: int
    path: str = field(repr=False)
    """With the query, as it was written."""
    address: Address | None = None
    """When the host is written as one."""

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.host_header}/…"


def parse_target(url: str, allowed: Allowed, *, allow_http: bool = False) -> Target:
    """The parts of the URL, or InvalidURL, which never shows the URL itself."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or set(url) & set(' \\"<>^`{|}'):
        raise InvalidURL(
            "a webhook's URL holds plain ASCII only, without spaces, backslashes or quotes: percent-encode its path, "
            "and write an international host name in its xn-- form"
        )
    found = _URL.fullmatch(url)
    if found is None:
        raise InvalidURL("a webhook's URL is written https://host/path, without a #fragment")
    if "@" in found["place"]:
        raise InvalidURL(
            "a webhook's URL must not hold a user name or password; sign the events (secrets=) or pass headers="
        )
    is_tls = found["scheme"].lower() == "https"
    host, address, port = _read_place(found["place"])
    rest = found["rest"]
    target = Target(is_tls, host, port or (443 if is_tls else 80), rest if rest[:1] == "/" else f"/{rest}", address)
    # All that must be allowed in one sentence: each refusal costs its reader a restart.
    refusals = [] if is_tls or allow_http else [HTTPS_ONLY]
    if refusals := refusals + _known_to_be_wrong(target, allowed):
        raise InvalidURL("; and ".join(refusals))
    return target


def _read_place(place: str) -> tuple[str, Address | None, int | None]:
    found = _IN_BRACKETS.fullmatch(place) or _NAMED.fullmatch(place)
    if found is None:
        raise InvalidURL(
            "the host of a webhook's URL cannot be read; write https://host/path or https://host:8443/path"
        )
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 1 <= port <= 65535:
        raise InvalidURL(f"port {port} does not exist; ports are 1 to 65535")
    host = found["host"].lower()
    if place.startswith("["):
        try:
            six = IPv6Address(host)
        except ValueError:
            raise InvalidURL("what stands in brackets in a webhook's URL is not an IPv6 address") from None
        return str(six), six, port
    host = host.removesuffix(".")
    labels = host.split(".")
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise InvalidURL(
            "the host name of a webhook's URL has labels of letters, digits and hyphens, such as example.com"
        )
    if not _NUMBER.fullmatch(labels[-1]):
        return host, None, port
    try:
        return host, IPv4Address(host), port
    except ValueError:
        raise InvalidURL("an IPv4 address is written as four decimal numbers without leading zeros") from None


def _known_to_be_wrong(target: Target, allowed: Allowed) -> list[str]:
    """Before anything is sent, so that the operator sees it at once; names are judged again by what they resolve to."""
    if allowed.has_name(target.host):
        return []
    is_localhost = target.host == "localhost" or target.host.endswith(".localhost")
    address = _LOOPBACK if is_localhost else target.address
    if address is not None and (why := allowed.refuses(address)):
        return [f"{target.host} is {why}; {PUBLIC_ONLY}"]
    is_http = target.port >= 1024 or target.port in _ORDINARY_PORTS
    if is_http or (address is not None and allowed.has_address(address)):
        return []
    return [f"port {target.port} belongs to something else than HTTP; allow the host (allow=) if it does not"]
