"""Which internet addresses may be asked for a file: public ones, so that no address in a catalogue reaches inward."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Sequence[str]]
"""Host and port to numeric addresses, none when there are none."""

_INWARD_4 = tuple(
    ipaddress.IPv4Network(block)
    for block in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # a cloud's metadata service, on an address that looks public
    )
)
"""IANA's special-purpose registry for IPv4, multicast and reserved space."""

_OUTWARD_6 = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that is assigned as global unicast; mapped, compatible and translated IPv4 lie outside it."""

_INWARD_6 = tuple(
    ipaddress.IPv6Network(block)
    for block in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "3ffe::/16")
)
"""Exceptions within it: protocol assignments with Teredo, documentation, 6to4, and what is not routed."""


def is_allowed(address: Address, allow: Sequence[Network] = ()) -> bool:
    """Whether `address` is public, or in one of the networks `allow`."""
    if any(address in network for network in allow):
        return True
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _INWARD_4)
    in_zone = address.scope_id is not None
    return not in_zone and address in _OUTWARD_6 and not any(address in network for network in _INWARD_6)


def resolve(host: str, port: int) -> list[str]:
    """Numeric addresses of `host` as the operating system finds them, with its own limit on time."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
