"""Which distinct contents a catalogue's files have, found before any of them is decoded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from encoders.media.caps import Caps
from encoders.media.paths import Root, check_size
from encoders.media.reasons import Reason, Refused

_CHUNK = 1 << 20
_NAMES_A_TASK = 64


@dataclass(frozen=True)
class Media:
    """A file by content: hex sha256 and bytes, or the reason why it is not read (then 0 bytes)."""

    name: str
    sha256: str | None = None
    size: int = 0
    reason: Reason | None = None


def listing(root: Path, names: Iterable[str], caps: Caps, threads: int) -> list[Media]:
    """One entry for each distinct name, in order of first appearance.

    Time: one read of each file that is within `caps.bytes`, `threads` at once. Memory: the entries, and 1 MiB a thread.
    Raises BadDataError without the folder.
    """
    distinct = list(dict.fromkeys(names))
    tasks = [distinct[start : start + _NAMES_A_TASK] for start in range(0, len(distinct), _NAMES_A_TASK)]
    with Root(root) as folder, ThreadPoolExecutor(threads, "listing") as pool:
        found = pool.map(partial(_media_of, folder, caps), tasks)
        return [media for part in found for media in part]


def _media_of(root: Root, caps: Caps, names: list[str]) -> list[Media]:
    return [_media(root, caps, name) for name in names]


def _media(root: Root, caps: Caps, name: str) -> Media:
    try:
        descriptor = root.open(name)
    except Refused as refused:
        return Media(name, reason=refused.reason)
    try:
        check_size(descriptor, caps.bytes)
        return Media(name, *_hash(descriptor, caps.bytes))
    except Refused as refused:
        return Media(name, reason=refused.reason)
    except OSError:
        return Media(name, reason=Reason.UNREADABLE)
    finally:
        os.close(descriptor)


def _hash(descriptor: int, limit: int) -> tuple[str, int]:
    """Hex sha256 and bytes of an open file; raises Refused when it grows beyond `limit` under our hands."""
    digest, size = hashlib.sha256(), 0
    while chunk := os.read(descriptor, _CHUNK):
        size += len(chunk)
        if size > limit:
            raise Refused(Reason.TOO_LARGE)
        digest.update(chunk)
    return digest.hexdigest(), size
