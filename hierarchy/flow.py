"""Flow of interest between primitives: what the same people engage with together, what they come to next, and whose
advertisers they turn to.

The matrix of a relation sums bag(source) x bag(target) over edges of the entity graph, so every primitive in a bag
carries its weight. It is an exponential moving average over time: the matrix of a window counts half of that of one
`half_life` later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from graph.store import Csr, stretches

CO, THEN, ADVERTISER = "co", "then", "advertiser"
"""Prefixes of relations: with each other (both ways), one after the other (directed), and from the interests of users
to those of the advertisers whose products they engage with (directed)."""

_EDGES = 1 << 16  # visible edges looked at together, at least one row's
_NOISE = 1e-12  # share of all flow under which a difference of equal sums is rounding


class Timing(NamedTuple):
    """Which events count and how: those visible at `before` [us], in windows of `window` [us] counted back from there.

    A window counts 0.5 ** (age / half_life) with age and half_life in [us]; half_life None: all alike. A directed flow
    looks back on at most `reach` earlier moments of a user's, none more than `window` ago.
    """

    before: int
    window: int
    half_life: int | None = None
    reach: int = 16

    def windows(self, time: NDArray[np.int64]) -> NDArray[np.int64]:
        """The window of each time [us] (n,), 0 for the newest."""
        return (self.before - time) // self.window

    def decay(self, windows: NDArray[np.int64]) -> NDArray[np.float64]:
        """How much each window (n,) counts, in (0, 1]."""
        if self.half_life is None:
            return np.ones(len(windows))
        return np.asarray(0.5 ** (windows * (self.window / self.half_life)))


class Memberships(NamedTuple):
    """Bags of one level as sparse rows by internal id: products (P, k), users (U, k), and the advertiser that sells
    each product (P, k). A row of nothing is an entity without a bag; the others sum to 1."""

    product: sparse.csr_array
    user: sparse.csr_array
    owner: sparse.csr_array


def interest_flows(events: Csr, levels: Sequence[Memberships], timing: Timing) -> list[dict[str, sparse.csr_array]]:
    """Matrices (k, k) from source to target by CO, THEN and ADVERTISER, for each level; `events`: users to products.

    CO: each product in a user's window is once, however often it was met, a target of the mean bag of the others.
    THEN: each event is a target of the mean bag of what the same user met at the `reach` moments before it. Neither
    pairs a product with itself, which would tell only how primitives overlap. ADVERTISER: each event leads from the
    user's bag to the owner's.

    Memory: one block of events, and the sparse matrices of at most k x k. Time: one pass; events x reach for the pairs,
    each of which costs the square of the bags' sizes. Later events change no bit.
    """
    sizes = [level.product.shape[1] for level in levels]
    found: list[dict[str, sparse.csr_array]] = [
        {name: sparse.csr_array((k, k)) for name in (CO, THEN, ADVERTISER)} for k in sizes
    ]
    known = np.diff(levels[0].product.indptr) > 0
    for user, product, time in _blocks(events, timing.before, known):
        kinds = {
            CO: _together(user, product, time, timing, len(known)),
            THEN: _in_turn(user, product, time, timing, len(known)),
        }
        counted = timing.decay(timing.windows(time))
        met = sparse.csr_array((counted, (user, product)), shape=(levels[0].user.shape[0], len(known)))
        for level, flows in zip(levels, found, strict=True):
            for name, pairs in kinds.items():
                flows[name] = flows[name] + pairs.between(level.product)
            flows[ADVERTISER] = flows[ADVERTISER] + sparse.csr_array(level.user.T @ (met @ level.owner))
    return found


def strongest(
    flows: sparse.csr_array, neighbours: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Source, target and weight of the `neighbours` strongest links of each source; weights of a source sum to 1.

    A link is as strong as its Pearson residual, (seen - expected) / sqrt(expected), where `expected` is what chance
    would give by the sums of its row and column: raw sums would make the heaviest primitives everybody's neighbours.
    Links of a primitive to itself are left out.
    """
    total = float(flows.sum())
    pairs = flows.tocoo()
    expected = flows.sum(axis=1)[pairs.row] * flows.sum(axis=0)[pairs.col] / max(total, 1e-30)
    strength = (pairs.data - expected) / np.sqrt(np.maximum(expected, 1e-30))
    link = (pairs.row != pairs.col) & (strength > 0) & (pairs.data > _NOISE * total)
    source, target, strength = pairs.row[link].astype(np.int64), pairs.col[link].astype(np.int64), strength[link]
    order = np.lexsort((target, -strength, source))
    place = np.arange(len(order)) - np.searchsorted(source[order], source[order])
    order = order[place < neighbours]
    source, target, strength = source[order], target[order], strength[order]
    whole = np.bincount(source, strength, minlength=flows.shape[0])
    return source, target, (strength / whole[source]).astype(np.float32)


class _Pairs(NamedTuple):
    """Rows of sources and targets, sparse (m, P): how often each product is one; `decay` (m,) of the targets."""

    sources: sparse.csr_array
    targets: sparse.csr_array
    decay: NDArray[np.float64]

    def between(self, bags: sparse.csr_array) -> sparse.csr_array:
        """Sum over targets of decay x (mean bag of the row's sources other than the target) x (bag of the target)."""
        totals = self.sources.sum(axis=1)
        row = np.repeat(np.arange(len(totals)), np.diff(self.targets.indptr))
        place = sparse.csr_array(
            (np.ones(len(row)), self.targets.indices, self.targets.indptr), shape=self.targets.shape
        )
        everything = sparse.csr_array((totals[row], place.indices, place.indptr), shape=place.shape)
        others = sparse.csr_array(everything - self.sources.multiply(place))
        others.data = 1 / others.data
        weight = sparse.csr_array(sparse.diags_array(self.decay) @ self.targets.multiply(others))
        itself = sparse.diags_array(weight.multiply(self.sources).sum(axis=0))
        return sparse.csr_array((self.sources @ bags).T @ (weight @ bags) - bags.T @ (itself @ bags))


def _together(
    user: NDArray[np.int64], product: NDArray[np.int64], time: NDArray[np.int64], timing: Timing, products: int
) -> _Pairs:
    """Each user's windows, with the distinct products met in each, as sources and as targets."""
    window = timing.windows(time)
    order = np.lexsort((product, window, user))
    user, product, window = user[order], product[order], window[order]
    fresh = _changes(user, window, product)
    user, product, window = user[fresh], product[fresh], window[fresh]
    first = _changes(user, window)
    row = np.cumsum(first) - 1
    held = sparse.csr_array((np.ones(len(row)), (row, product)), shape=(int(first.sum()), products))
    return _Pairs(held, held, timing.decay(window[first]))


def _in_turn(
    user: NDArray[np.int64], product: NDArray[np.int64], time: NDArray[np.int64], timing: Timing, products: int
) -> _Pairs:
    """Each user's moments: what was met then as targets, what was met at the moments before as sources."""
    order = np.lexsort((product, time, user))
    user, product, time = user[order], product[order], time[order]
    first = _changes(user, time)
    row = np.cumsum(first) - 1
    user, time = user[first], time[first]
    met = sparse.csr_array((np.ones(len(row)), (row, product)), shape=(len(time), products))
    later, earlier = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for lag in range(1, timing.reach + 1):
        near = np.flatnonzero((user[lag:] == user[:-lag]) & (time[lag:] - time[:-lag] <= timing.window))
        later.append(near + lag)
        earlier.append(near)
    rows, columns = np.concatenate(later), np.concatenate(earlier)
    before = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(time), len(time)))
    return _Pairs(sparse.csr_array(before @ met), met, timing.decay(timing.windows(time)))


def _changes(*columns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where a row of sorted columns (n,) differs from the one before it; the first one does."""
    changed = np.zeros(len(columns[0]), bool)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def _blocks(
    events: Csr, before: int, known: NDArray[np.bool_]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """(user, product, time) of the edges visible at `before` to `known` products (P,), whole users together.

    Where a block ends depends on visible edges only, as the sums' last bits depend on where blocks end.
    """
    rowptr = np.asarray(events.rowptr)
    users = np.arange(len(rowptr) - 1)
    count = events.visible(users, np.full(len(users), before))
    through, start = np.cumsum(count), 0
    while start < len(users):
        done = through[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(through, done + _EDGES, "right")))
        own = stretches(rowptr[start:stop], count[start:stop])
        user = np.repeat(users[start:stop], count[start:stop])
        product = events.col[own].astype(np.int64)
        time = events.visible_from[own] - 1 if events.time is None else events.time[own]
        kept = known[product]
        yield user[kept], product[kept], time[kept]
        start = stop
