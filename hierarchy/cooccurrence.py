"""Which products, or groups of products, the same people engage with in the same stretch of time, as plain counts.

For comparing graphs of different granularity by one measure (hierarchy.drift); the published links between primitives
are those of hierarchy.flow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from graph.store import Csr

_EDGES = 1_000_000  # edges looked at together, at least one row's


class Together(NamedTuple):
    """How often two primitives of a level occur together: counts int64 (k, k), of which the diagonal is how often each
    occurs at all, out of `windows`."""

    counts: sparse.csr_array
    windows: int


def co_engagement(
    events: Csr, primitive: Sequence[NDArray[np.int32]], sizes: Sequence[int], before: int, window: int
) -> list[Together]:
    """What users engage with together, for each level of `sizes` primitives.

    `events` lead from users to products; `primitive` holds, by level, that of each product (n,), -1 for none. A user's
    events visible at `before` [us] within the same `window` [us], counted back from there, are together; each pair
    counts once a window. Memory: one block of events and the sparse counts.
    """
    found = [Together(sparse.csr_array((k, k), dtype=np.int64), 0) for k in sizes]
    for user, product, time in _blocks(events, before):
        for level, (counts, windows) in enumerate(found):
            own = primitive[level][product].astype(np.int64)
            rows = np.stack([user, (before - time) // window, own], axis=1)[own >= 0]
            more = _together(rows, sizes[level])
            found[level] = Together(counts + more.counts, windows + more.windows)
    return found


def _blocks(events: Csr, before: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """(user, product, time) of the edges visible at `before`, whole users together."""
    rowptr, times, start = np.asarray(events.rowptr), events.times, 0
    while start < len(rowptr) - 1:
        stop = max(start + 1, int(np.searchsorted(rowptr, rowptr[start] + _EDGES, "right")) - 1)
        own = slice(int(rowptr[start]), int(rowptr[stop]))
        visible = events.visible_from[own] <= before
        user = np.repeat(np.arange(start, stop), np.diff(rowptr[start : stop + 1]))
        yield user[visible], events.col[own][visible].astype(np.int64), times[own][visible]
        start = stop


def _together(rows: NDArray[np.int64], k: int) -> Together:
    """Co-occurrence of the primitives in the last column of `rows` (m, 3) where the first two columns are equal."""
    distinct = np.unique(rows, axis=0)
    _, place = np.unique(distinct[:, :2], axis=0, return_inverse=True)
    windows = int(place.max(initial=-1)) + 1
    held = sparse.csr_array((np.ones(len(distinct), np.int64), (place.ravel(), distinct[:, 2])), shape=(windows, k))
    return Together(sparse.csr_array(held.T @ held), windows)
