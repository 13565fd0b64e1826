"""Which addresses a webhook may be sent to: public ones, and those that somebody has allowed by name or network.

A webhook's URL often comes from somebody else, and the worker stands inside a network that this somebody cannot reach:
databases without passwords, cloud metadata with credentials, admin pages on loopback. So everything that is not public
is refused unless an operator has listed it.

Written as a table of networks rather than with `ipaddress.is_global`, whose answers differ between the Pythons that we
support. For IPv6 the rule is the other way round, since most of it is not handed out: only 2000::/3 is public, less the
exceptions. Forms that carry an IPv4 address inside are judged by that address (IPv4-mapped, NAT64: a network with DNS64
gives every IPv4 host such an address), or refused as a whole where nobody needs them any more (6to4, Teredo).
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from ..model.errors import InvalidPolicy

Address = IPv4Address | IPv6Address

_NOT_PUBLIC_4 = [
    (IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared with a provider's customers (CGNAT)"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's metadata service"),  # Azure's, in public space
        ("169.254.0.0/16", "link-local, where clouds keep their metadata"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
]
_NOT_PUBLIC_6 = [
    (IPv6Network(network), what)
    for network, what in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "private (unique local)"),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
        ("2001::/32", "Teredo, which hides an IPv4 address"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "for documentation"),
        ("2002::/16", "6to4, which hides an IPv4 address"),
        ("3fff::/20", "for documentation"),
    )
]
_PUBLIC_6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


def why_not_public(address: Address) -> str | None:
    """What the address is instead, or None when it is public."""
    address = _carried(address)
    if isinstance(address, IPv4Address):
        return next((what for network, what in _NOT_PUBLIC_4 if address in network), None)
    found = next((what for network, what in _NOT_PUBLIC_6 if address in network), None)
    return found or (None if address in _PUBLIC_6 else "reserved")


def _carried(address: Address) -> Address:
    """The IPv4 address that this one only wraps, if it does."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address


class Allowed:
    """What may be called although it is not public: networks (`10.0.0.0/8`, `::1`) and host names (`hooks.internal`).

    A name is trusted with whatever it resolves to.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        if isinstance(entries, str):
            raise InvalidPolicy('allow= takes a tuple, such as ("10.0.0.0/8", "hooks.internal")')
        self._names: set[str] = set()
        self._networks: list[IPv4Network | IPv6Network] = []
        for entry in entries:
            self._add(entry)

    def has_name(self, host: str) -> bool:
        return host in self._names

    def has_address(self, address: Address) -> bool:
        return any(address in network or _carried(address) in network for network in self._networks)

    def refuses(self, address: Address) -> str | None:
        """Why the address must not be called, or None."""
        return None if self.has_address(address) else why_not_public(address)

    def _add(self, entry: str) -> None:
        try:
            self._networks.append(ip_network(entry, strict=False))
            return
        except ValueError:
            pass
        name = entry.lower().removesuffix(".")
        if not name or not set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_."):
            raise InvalidPolicy(
                f"{entry!r} can be allowed neither as a network (10.0.0.0/8, ::1) nor as a host name (hooks.internal)"
            )
        self._names.add(name)
