"""Hashes of string ids that are equal on every machine, so that no choice depends on a row's position."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_WORD = 8


def mix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Bijective scrambling of uint64 (n,): the finalizer of SplitMix64 (Steele et al., OOPSLA 2014)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scrambled: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return scrambled


def stable_hash(ids: pa.Array | pa.ChunkedArray, seed: int = 0) -> NDArray[np.uint64]:
    """uint64 (n,) of strings (n,), eight bytes at a time; a null counts as the empty string."""
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if len(ids) == 0:
        return np.zeros(0, np.uint64)
    raw = ids.cast(pa.large_binary()).fill_null(b"")
    _, ends, data = raw.buffers()
    offsets = np.frombuffer(ends, dtype=np.int64)[raw.offset : raw.offset + len(raw) + 1]
    # A tail of zeros lets the last id be read in whole words.
    text = np.concatenate([np.frombuffer(data or b"", dtype=np.uint8), np.zeros(_WORD, np.uint8)])
    lengths = offsets[1:] - offsets[:-1]
    state = mix64(lengths.astype(np.uint64) + np.uint64(seed))
    for start in range(0, int(lengths.max(initial=0)), _WORD):
        live = np.flatnonzero(lengths > start)
        letters = text[offsets[live, None] + start + np.arange(_WORD)]
        letters[np.arange(start, start + _WORD) >= lengths[live, None]] = 0
        state[live] = mix64(state[live] ^ letters.view(np.uint64)[:, 0])
    return state


def hash_share(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """float64 (n,) in [0, 1): keeping rows below p keeps about a share p, the same rows on every machine."""
    share: NDArray[np.float64] = (hashes >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return share
