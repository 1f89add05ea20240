"""Which old primitive a new one is: an assignment by likeness, within matched parents first, then over the whole level.

Likeness is a * cosine + (1 - a) * weighted Jaccard of members. The assignment is the Hungarian one (Kuhn 1955; scipy's
is Crouse's, IEEE TAES 2016) up to `exact_limit` primitives, and greedy, most alike first, above it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from hierarchy.bags import Bags, Vectors, cosines

Rows = NDArray[np.int64]

_BLOCK = 256  # old primitives compared at once on the greedy path
_CANDIDATES = 32  # new primitives remembered for each old one on the greedy path
_ENTITIES = 16_384  # entities whose bags are laid over each other at once


class Likeness(NamedTuple):
    """How alike old and new primitives of a level are, computed where it is asked for.

    old (k, d) turned into the space of new (m, d), both unit rows; jaccard sparse (k, m); `cosine_weight` in [0, 1].
    """

    old: Vectors
    new: Vectors
    jaccard: sparse.csr_array
    cosine_weight: float

    def reversed(self) -> Likeness:
        """The same seen from the new primitives."""
        return Likeness(self.new, self.old, sparse.csr_array(self.jaccard.T), self.cosine_weight)

    def between(self, rows: Rows, columns: Rows) -> NDArray[np.float64]:
        """Likeness (r, c) of some old with some new primitives, at most 1; four digits, so that no last bit decides."""
        alike = cosines(self.old[rows], self.new[columns]).astype(np.float64)
        alike *= self.cosine_weight
        shared = sparse.coo_array(self.jaccard[rows][:, columns])
        alike[shared.row, shared.col] += (1 - self.cosine_weight) * shared.data
        return np.asarray(np.round(alike, 4, out=alike))


class Match(NamedTuple):
    """What each new primitive of a level was: old row int64 (m,), -1 for none; likeness float64 (m,), 0 for none;
    whether it was found under its matched parent, bool (m,)."""

    old: Rows
    likeness: NDArray[np.float64]
    within: NDArray[np.bool_]


def member_jaccard(old: Bags, new: Bags, shape: tuple[int, int], weight: NDArray[np.float64]) -> sparse.csr_array:
    """Weighted Jaccard (k, m) of the members of old and new primitives, sum min / sum max over n entities' bags.

    `weight` float64 (n,) is what each entity counts. Time and memory grow with n times the product of the bag sizes,
    in blocks, and with the pairs of primitives that share an entity.
    """
    shared = sparse.csr_array(shape)
    for start in range(0, len(weight), _ENTITIES):
        part = slice(start, start + _ENTITIES)
        own = weight[part, None, None]
        low = np.minimum(old.weight[part, :, None], new.weight[part, None, :]) * own
        rows = np.broadcast_to(old.primitive[part, :, None], low.shape)
        columns = np.broadcast_to(new.primitive[part, None, :], low.shape)
        # Adding up equal places happens in the order of entities, so the sums are the same in every run.
        shared = shared + sparse.coo_array((low.ravel(), (rows.ravel(), columns.ravel())), shape=shape).tocsr()
    mass_old, mass_new = (
        np.bincount(bags.primitive.ravel(), (bags.weight * weight[:, None]).ravel(), size)
        for bags, size in zip((old, new), shape, strict=True)
    )
    found = sparse.coo_array(shared)
    union = mass_old[found.row] + mass_new[found.col] - found.data
    return sparse.csr_array((found.data / np.maximum(union, 1e-30), (found.row, found.col)), shape=shape)


def match(likeness: Likeness, old_parent: Rows, new_parent: Rows, threshold: float, exact_limit: int) -> Match:
    """Match the primitives of a level one to one, none less alike than `threshold`.

    old_parent (k,) and new_parent (m,) name the parent of each under one common numbering, -1 for none or one without a
    counterpart; children of one parent are matched among themselves before what is left is matched over the level.
    """
    found = Match(
        np.full(len(new_parent), -1, np.int64), np.zeros(len(new_parent)), np.zeros(len(new_parent), np.bool_)
    )
    families = np.intersect1d(old_parent, new_parent)
    for family in families[families >= 0].tolist():
        rows, columns = np.flatnonzero(old_parent == family), np.flatnonzero(new_parent == family)
        _take(found, assign(likeness, rows, columns, threshold, exact_limit), within=True)
    free = np.setdiff1d(np.arange(len(old_parent)), found.old)
    _take(found, assign(likeness, free, np.flatnonzero(found.old < 0), threshold, exact_limit), within=False)
    return found


def nearest(likeness: Likeness, rows: Rows, columns: Rows) -> tuple[Rows, NDArray[np.float64]]:
    """The new primitive of `columns` most alike to each old one of `rows`, and how much, (r,), (r,); in blocks."""
    best, alike = np.zeros(len(rows), np.int64), np.zeros(len(rows))
    for start in range(0, len(rows), _BLOCK):
        found = likeness.between(rows[start : start + _BLOCK], columns)
        place = found.argmax(axis=1)
        best[start : start + _BLOCK] = columns[place]
        alike[start : start + _BLOCK] = found[np.arange(len(place)), place]
    return best, alike


def _take(found: Match, pairs: tuple[Rows, Rows, NDArray[np.float64]], within: bool) -> None:
    old, new, likeness = pairs
    found.old[new], found.likeness[new], found.within[new] = old, likeness, within


def assign(
    likeness: Likeness, rows: Rows, columns: Rows, threshold: float, exact_limit: int
) -> tuple[Rows, Rows, NDArray[np.float64]]:
    """Pairs (old rows, new rows, likeness) of an assignment between `rows` and `columns`; exact up to `exact_limit`.

    Memory: 24 bytes x rows x columns when exact, else one block and 32 candidates for each row.
    """
    if max(len(rows), len(columns)) > exact_limit:
        return greedy(likeness, rows, columns, threshold)
    return hungarian(likeness, rows, columns, threshold)


def hungarian(
    likeness: Likeness, rows: Rows, columns: Rows, threshold: float
) -> tuple[Rows, Rows, NDArray[np.float64]]:
    """The one-to-one pairs of greatest summed likeness, none below `threshold` (above 0)."""
    alike = likeness.between(rows, columns)
    one, other = linear_sum_assignment(np.where(alike >= threshold, -alike, 0.0))
    kept = alike[one, other] >= threshold
    one, other = one[kept], other[kept]
    return rows[one], columns[other], alike[one, other]


def greedy(likeness: Likeness, rows: Rows, columns: Rows, threshold: float) -> tuple[Rows, Rows, NDArray[np.float64]]:
    """Pairs in order of falling likeness, each side taken once, none below `threshold`; ties go to the lower rows.

    Rounds follow each other while candidates that were taken left somebody without a pair who could have one.
    """
    pairs: list[tuple[int, int, float]] = []
    left, right = set(rows.tolist()), set(columns.tolist())
    while left and right:
        before = len(pairs)
        remaining = np.array(sorted(left), np.int64), np.array(sorted(right), np.int64)
        for old, new, alike in _candidates(likeness, *remaining, threshold):
            if old in left and new in right:
                left.remove(old)
                right.remove(new)
                pairs.append((old, new, alike))
        if len(pairs) == before:
            break
    rows, columns = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    return rows, columns, np.array([pair[2] for pair in pairs], np.float64)


def _candidates(likeness: Likeness, rows: Rows, columns: Rows, threshold: float) -> list[tuple[int, int, float]]:
    """The likeliest new primitives of each old one, the most alike pair first."""
    parts = []
    for start in range(0, len(rows), _BLOCK):
        own = rows[start : start + _BLOCK]
        alike = likeness.between(own, columns)
        count = min(_CANDIDATES, len(columns))
        best = np.argpartition(alike, len(columns) - count, axis=1)[:, len(columns) - count :]
        found = np.take_along_axis(alike, best, axis=1)
        parts.append((np.repeat(own, best.shape[1]), columns[best.ravel()], found.ravel()))
    old, new, alike = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((new, old, -alike))
    order = order[alike[order] >= threshold]
    return list(zip(old[order].tolist(), new[order].tolist(), alike[order].tolist(), strict=True))
