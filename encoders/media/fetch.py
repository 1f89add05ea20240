"""Pictures and films on the web, brought into a folder by content; off unless asked for.

A catalogue is written by strangers, so its addresses may point inward: at this machine, its network, its cloud's
metadata service. Each host is resolved once, all its addresses are checked, and the connection goes to one of those
very numbers; the same for every redirect. No proxy, cookie, credential or environment variable has a part in it.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path

from data.errors import UsageError
from encoders.ahead import ahead
from encoders.media.addresses import Network, Resolve, is_allowed, resolve
from encoders.media.caps import Caps
from encoders.media.keep import keep
from encoders.media.reasons import Reason, Refused
from encoders.media.request import Answer, Deadline, ask
from encoders.media.urls import Target, target_of

_AHEAD = 2
_OK = 200
_MOVED = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True)
class Remote:
    """What fetching may do: nothing unless `is_enabled`. `seconds` for a file with all its redirects; `ports` that
    may be asked; `allow`, networks such as 10.1.0.0/16 that may be reached though they are not public."""

    is_enabled: bool = False
    seconds: float = 30.0
    redirects: int = 3
    ports: frozenset[int] = frozenset({80, 443})
    allow: tuple[str, ...] = ()

    @property
    def networks(self) -> list[Network]:
        """The networks `allow`; raises UsageError for what is none."""
        try:
            return [ip_network(network) for network in self.allow]
        except ValueError as error:
            raise UsageError(f"expected networks such as 10.1.0.0/16 to allow, got {self.allow}: {error}") from error


@dataclass(frozen=True)
class Fetched:
    """A web address and the name below the folder of what was there, or the reason why there is nothing."""

    url: str
    name: str | None = None
    reason: Reason | None = None


def fetch(
    urls: Iterable[str], folder: Path, caps: Caps, remote: Remote, threads: int, resolve: Resolve = resolve
) -> Iterator[Fetched]:
    """One entry for each of `urls`, in order, `threads` at once; files land as `folder`/ab/ab12… by hex sha256.

    Only kinds that are read are kept, at most `caps.bytes` each. Memory: a few chunks of 64 KiB a thread.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fetcher = _Fetcher(folder, caps, remote, resolve)
    with ThreadPoolExecutor(threads, "fetch") as pool:
        yield from ahead(pool, fetcher.fetch, urls, _AHEAD * threads)


class _Fetcher:
    """Fetches one file after the other; nothing is kept between two, so threads may share it."""

    def __init__(self, folder: Path, caps: Caps, remote: Remote, resolve: Resolve) -> None:
        self._folder, self._caps, self._remote, self._resolve = folder, caps, remote, resolve
        self._trust = ssl.create_default_context()
        self._allow = remote.networks

    def fetch(self, url: str) -> Fetched:
        """What came of `url`."""
        if not self._remote.is_enabled:
            return Fetched(url, reason=Reason.REMOTE_DISABLED)
        try:
            with Deadline(self._remote.seconds) as deadline:
                return Fetched(url, name=self._follow(target_of(url), deadline))
        except Refused as refused:
            return Fetched(url, reason=refused.reason)

    def _follow(self, target: Target, deadline: Deadline) -> str:
        """Ask, and ask where one is sent on to; the name of what was stored."""
        for _ in range(self._remote.redirects + 1):
            with ask(target, self._addresses(target), deadline, self._trust) as answer:
                if answer.status == _OK:
                    return self._keep(answer)
                if answer.status not in _MOVED:
                    raise Refused(Reason.HTTP_STATUS)
                target = target_of(answer.location, target.url)
        raise Refused(Reason.TOO_MANY_REDIRECTS)

    def _addresses(self, target: Target) -> list[str]:
        """All addresses of the target's host; one that may not be reached is enough to refuse them all."""
        if target.port not in self._remote.ports:
            raise Refused(Reason.BAD_URL)
        found = [target.host] if target.address else list(self._resolve(target.host, target.port))
        if not found:
            raise Refused(Reason.UNRESOLVED)
        if not all(is_allowed(ip_address(address), self._allow) for address in found):
            raise Refused(Reason.BLOCKED_ADDRESS)
        return found

    def _keep(self, answer: Answer) -> str:
        if (answer.length or 0) > self._caps.bytes:
            raise Refused(Reason.TOO_LARGE)
        return keep(answer.chunks(), self._folder, self._caps.bytes)
