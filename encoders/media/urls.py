"""Web addresses of a catalogue, taken apart strictly: what two programs could read in two ways is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from encoders.media.addresses import Address
from encoders.media.reasons import Reason, Refused

_PORTS = {"http": 80, "https": 443}
_LENGTH = 2048
_UNCLEAR = re.compile(r"[\x00-\x20\x7f\\]")
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_KEPT = "%/:=&?~+!$,;'@()*[]"


@dataclass(frozen=True)
class Target:
    """Where to ask: `host` is a name or a numeric address, `path` has the query too."""

    url: str
    is_secure: bool
    host: str
    port: int
    path: str

    @property
    def address(self) -> Address | None:
        """The host as an address, None when it is a name."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


def target_of(url: str, base: str = "") -> Target:
    """The target of `url`, which may be relative to `base`; raises Refused.

    Refused too: hosts such as 2130706433, 0x7f.1 or 127.1, which some resolvers read as addresses.
    """
    if len(url) > _LENGTH or _UNCLEAR.search(url):
        raise Refused(Reason.BAD_URL)
    try:
        whole = urljoin(base, url)
        parts = urlsplit(whole)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError) as error:
        raise Refused(Reason.BAD_URL) from error
    host = (parts.hostname or "").removesuffix(".")
    is_odd = "@" in parts.netloc or ("[" in parts.netloc) != (":" in host)
    if is_odd or not _is_plain(host):
        raise Refused(Reason.BAD_URL)
    return Target(whole, parts.scheme == "https", host, port, _path(parts))


def _is_plain(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        labels = host.split(".")
        named = len(host) <= 253 and all(_LABEL.fullmatch(label) for label in labels)
        return named and not _NUMBER.fullmatch(labels[-1])
    return True


def _path(parts: SplitResult) -> str:
    query = f"?{parts.query}" if parts.query else ""
    return quote((parts.path or "/") + query, safe=_KEPT)
