"""Grouping of integer keys without sorting what need not be sorted: most groups of a log are small."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MAX_BITS = 24


def crowded(keys: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """Positions, in order, of all keys that occur more than `limit` times, and of few others.

    One pass over hashed counters instead of a sort: two keys that share a counter can only add positions. There are
    just so many counters that each holds a quarter of `limit` on average: few stay in a cache. Time O(n); at most
    128 MiB of counters.
    """
    if len(keys) <= limit:
        return np.zeros(0, np.int64)
    bits = min(_MAX_BITS, max(8, (4 * len(keys) // max(limit, 1)).bit_length()))
    place = _place(keys, bits)
    return np.flatnonzero(np.bincount(place, minlength=1 << bits)[place] > limit)


def members(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions, in order, of the keys that are among the few `wanted`; O(n) and a sort of what shares their hash."""
    marked = np.zeros(1 << 20, bool)
    marked[_place(wanted, 20)] = True
    near = np.flatnonzero(marked[_place(keys, 20)])
    return near[np.isin(keys[near], wanted)]


def starts(*columns: NDArray[Any]) -> NDArray[np.bool_]:
    """True where a row of sorted `columns` differs from the row before it, and at the first row; bool (n,)."""
    first = np.ones(len(columns[0]), bool)
    if len(first):
        first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return first


def rank(first: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Position of each row in its group, 0 at each group's start, int64 (n,)."""
    position = np.arange(len(first))
    return position - np.maximum.accumulate(np.where(first, position, 0))


def mix(*columns: NDArray[Any]) -> NDArray[np.uint64]:
    """A hash of the integers of each row, uint64 (n,): settles ties by content, never by position."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.int64).astype(np.uint64)) * _GOLDEN
        mixed ^= mixed >> np.uint64(32)
    return mixed


def _place(keys: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    return ((keys.astype(np.uint64) * _GOLDEN) >> np.uint64(64 - bits)).astype(np.int64)


def counting_order(keys: NDArray[Any], bound: int) -> NDArray[np.intp]:
    """Positions that sort `keys` (n,) in [0, bound), equal ones in their order.

    A counting sort, O(n + bound): SciPy's conversion of coordinates to CSR, with each position as a column of its own.
    """
    index = np.int32 if max(len(keys), bound) <= np.iinfo(np.int32).max else np.int64
    places = (keys.astype(index, copy=False), np.arange(len(keys), dtype=index))
    counted = coo_array((np.empty(len(keys), np.int8), places), shape=(max(bound, 1), max(len(keys), 1))).tocsr()
    order: NDArray[np.intp] = counted.indices.astype(np.intp)
    return order
