"""The as-of join: the rows of an entity that were visible at a time, found by a vectorised binary search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class AsOf:
    """Rows sorted by (key, time): `keys` (k,) ascending, rows of keys[i] at starts[i]:starts[i + 1] of `times`."""

    keys: Ints
    starts: Ints
    times: Ints

    @classmethod
    def build(cls, keys: Ints, times: Ints) -> tuple[AsOf, Ints]:
        """The index over rows (n,), and the order (n,) that sorts them by (key, time), ties as they came."""
        order = np.lexsort((times, keys))
        distinct, starts = np.unique(keys[order], return_index=True)
        return cls(distinct, np.append(starts, len(order)).astype(np.int64), times[order]), order

    def spans(self, keys: Ints, times: Ints) -> tuple[Ints, Ints]:
        """Half-open (start, end), each (q,): sorted rows of keys[i] with row time <= times[i]; empty when unknown.

        `end - start` counts them, `end - 1` is the latest, and `end` is the first row later than times[i].
        """
        if len(self.keys) == 0:
            nowhere = np.zeros(len(keys), np.int64)
            return nowhere, nowhere.copy()
        slot = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        start = self.starts[slot]
        low, high = start.copy(), np.where(self.keys[slot] == keys, self.starts[slot + 1], start)
        while (open_ := low < high).any():
            middle = (low + high) >> 1
            early = open_ & (self.times[np.minimum(middle, len(self.times) - 1)] <= times)
            low = np.where(early, middle + 1, low)
            high = np.where(open_ & ~early, middle, high)
        return start, low

    def latest(self, keys: Ints, times: Ints) -> Ints:
        """Sorted row (q,) of keys[i] with the greatest time <= times[i], -1 when there is none."""
        start, end = self.spans(keys, times)
        return np.where(end > start, end - 1, -1)


def at_rows(values: NDArray, rows: NDArray, absent: int = 0) -> NDArray:
    """values[rows] (n,), `absent` where rows is -1."""
    return np.where(rows >= 0, values[rows], absent) if len(values) else np.full(len(rows), absent, np.int64)
