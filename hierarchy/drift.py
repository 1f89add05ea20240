"""How dense a graph of what is engaged with together is, and how much it changes from month to month.

The same measures for the graph of primitives and for that of products, both counted by
`hierarchy.cooccurrence.co_engagement`. A month's graph is a distribution over pairs: the share of all co-engagement
that falls on each. Two months differ by the Jensen-Shannon divergence of their distributions (Lin, 1991) in bits, from
0 to 1 whatever the number of pairs.

Few events on many pairs differ by chance alone, and a graph that sums up the pairs of another can never diverge more
than it: any coarse graph looks steady. So each divergence comes with its floor: the same two months with the months of
a random half of the users exchanged, which has as much chance in it and no drift. What the months themselves changed is
what the divergence is above its floor, as a share of what it could be above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from data.errors import UsageError
from graph.store import Csr
from hierarchy.cooccurrence import Together, co_engagement


class Drift(NamedTuple):
    """Of each pair of consecutive months the divergence [bits] and its floor, float64 (months - 1,)."""

    divergence: NDArray[np.float64]
    floor: NDArray[np.float64]

    def beyond_chance(self) -> float:
        """(divergence - floor) / (1 - floor) of the means over months: 0 where chance explains all, 1 where no pair of
        a month is there in the next. Like Cohen's kappa (1960), it compares graphs whose floors differ."""
        floor = float(self.floor.mean())
        return (float(self.divergence.mean()) - floor) / max(1.0 - floor, 1e-12)


def between(events: Csr, start: int, end: int, users: NDArray[np.bool_]) -> Csr:
    """The edges that became visible in (start, end] [us] of the source rows marked in `users` (rows,)."""
    rows = np.repeat(np.arange(len(events.rowptr) - 1), np.diff(events.rowptr))
    visible = np.asarray(events.visible_from)
    kept = (visible > start) & (visible <= end) & users[rows]
    rowptr = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=len(users)))]).astype(np.int64)
    return Csr(rowptr, events.col[kept], visible[kept], events.times[kept])


def density(together: Together, nodes: NDArray[np.int64] | None = None) -> float:
    """Share of the possible pairs of `nodes` (None: all) that ever occur together; 0 when there is no pair."""
    counts = together.counts if nodes is None else together.counts[nodes][:, nodes]
    edges = counts.count_nonzero() - np.count_nonzero(counts.diagonal())
    pairs = counts.shape[0] * (counts.shape[0] - 1)
    return float(edges / pairs) if pairs else 0.0


def divergence(first: sparse.csr_array, second: sparse.csr_array) -> float:
    """Jensen-Shannon divergence [bits] of two symmetric matrices of counts over the pairs above the diagonal.

    0 where both are empty, 1 where one is.
    """
    one, two = _shares(first), _shares(second)
    if not one.nnz or not two.nnz:
        return float(one.nnz != two.nnz)
    return float(_entropy((one + two) / 2) - (_entropy(one) + _entropy(two)) / 2)


def drift(
    events: Csr,
    primitive: NDArray[np.int32],
    k: int,
    months: Sequence[int],
    window: int,
    seed: int = 0,
) -> Drift:
    """Drift of the graph of `k` primitives, `primitive` (products,) being that of each product and -1 for none.

    Month m is what became visible in (months[m], months[m + 1]] [us]; months must be whole `window`s [us], or a window
    would lie in two. Raises UsageError otherwise, or for less than two months. Time: two passes over the events a
    month; memory: the sparse counts of two months.
    """
    if len(months) < 3 or any((end - start) % window for start, end in pairwise(months)):
        raise UsageError(f"expected at least two months of whole windows of {window} us, got bounds {list(months)}")
    half = np.random.default_rng(seed).random(len(events.rowptr) - 1) < 0.5
    sides = ([_counts(events, primitive, k, pair, window, who) for who in (half, ~half)] for pair in pairwise(months))
    found = [(divergence(a[0] + a[1], b[0] + b[1]), divergence(a[0] + b[1], b[0] + a[1])) for a, b in pairwise(sides)]
    return Drift(*np.array(found, np.float64).T)


def _counts(
    events: Csr, primitive: NDArray[np.int32], k: int, month: tuple[int, int], window: int, users: NDArray[np.bool_]
) -> sparse.csr_array:
    (together,) = co_engagement(between(events, *month, users), [primitive], [k], month[1], window)
    return together.counts


def _shares(counts: sparse.csr_array) -> sparse.csr_array:
    upper = sparse.csr_array(sparse.triu(counts, k=1), dtype=np.float64)
    upper.eliminate_zeros()
    return upper / upper.sum() if upper.nnz else upper


def _entropy(shares: sparse.csr_array) -> float:
    held = shares.data[shares.data > 0]
    return float(-(held * np.log2(held)).sum())
