"""Raw vectors that the features of an earlier day lend: each stands under the hash of its content, so none is stale."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from data.artifacts import ArtifactRef, OutputDir
from encoders.base import Identity, Vectors

HASH_BYTES = 16
_CHUNK = 1 << 16

Hashes = NDArray[np.uint8]
"""Hashes of contents, uint8 (n, HASH_BYTES)."""


def text_hashes(texts: Iterable[str]) -> Hashes:
    """BLAKE2b of each text."""
    joined = b"".join(hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).digest() for text in texts)
    return np.frombuffer(joined, np.uint8).reshape(-1, HASH_BYTES)


def file_hashes(sha256: Iterable[str]) -> Hashes:
    """The first bytes of each hex digest."""
    joined = b"".join(bytes.fromhex(digest)[:HASH_BYTES] for digest in sha256)
    return np.frombuffer(joined, np.uint8).reshape(-1, HASH_BYTES)


def write_hashes(out: OutputDir, name: str, hashes: Hashes) -> None:
    """Write <name>_hashes.npy, a row for each of <name>.npy, for the features of a later day."""
    out.write_array(f"{name}_hashes.npy", hashes)


class Earlier:
    """The raw vectors of modality `name` in earlier features `previous`, if those have any of an encoder `identity`."""

    def __init__(self, previous: ArtifactRef | None, name: str, identity: Identity) -> None:
        self.vectors: Vectors = np.zeros((0, 0), np.float32)
        self._order, self._hashes = np.zeros(0, np.int64), _values(np.zeros((0, HASH_BYTES), np.uint8))
        if previous is None or not previous.has(f"{name}_hashes.npy"):
            return
        if previous.json("encoder.json").get(name) == identity:
            self.vectors = previous.array(f"{name}.npy")
            hashes = _values(np.asarray(previous.array(f"{name}_hashes.npy")))
            self._order = np.argsort(hashes, kind="stable")
            self._hashes = hashes[self._order]

    def rows(self, hashes: Hashes) -> NDArray[np.int64]:
        """Row of each content in `vectors`, int64 (n,), -1 where it is not there; O(n log m)."""
        if not len(self._hashes):
            return np.full(len(hashes), -1, np.int64)
        wanted = _values(hashes)
        place = np.minimum(np.searchsorted(self._hashes, wanted), len(self._hashes) - 1)
        return np.where(self._hashes[place] == wanted, self._order[place], -1)

    def lend(self, hashes: Hashes, into: Vectors) -> NDArray[np.int64]:
        """Copy what is known into rows of `into` (n, d), a few at a time; returns the rows that are left to be made."""
        rows = self.rows(hashes)
        known = np.flatnonzero(rows >= 0)
        for start in range(0, len(known), _CHUNK):
            part = known[start : start + _CHUNK]
            into[part] = self.vectors[rows[part]]
        return np.flatnonzero(rows < 0)


def _values(hashes: Hashes) -> NDArray[np.bytes_]:
    """Hashes as bytes that sort; all are equally long, so that numpy's cutting of zeros at the end harms none."""
    return np.frombuffer(hashes.tobytes(), f"S{HASH_BYTES}")
