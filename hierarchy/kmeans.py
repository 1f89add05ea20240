"""Spherical k-means in numpy, flat and hierarchical: the same vectors and seed give the same centroids, bit for bit.

Dhillon & Modha (2001), "Concept decompositions for large sparse text data using clustering", with k-means++ seeding
(Arthur & Vassilvitskii, 2007).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from data.errors import BadDataError

Vectors = NDArray[np.float32]


def spherical_kmeans(
    vectors: Vectors, k: int, rng: np.random.Generator, iterations: int = 12
) -> tuple[Vectors, NDArray]:
    """Unit centroids (k, d) and assignments int64 (n,) of unit `vectors` (n, d), in time O(n k d iterations).

    A cluster that runs empty takes the vector farthest from its centroid. Raises BadDataError when n < k.
    """
    if len(vectors) < k:
        raise BadDataError(f"expected at least {k} vectors for {k} clusters, got {len(vectors)}: choose a smaller k")
    centroids = _plus_plus(vectors, k, rng)
    assigned = np.zeros(len(vectors), np.int64)
    for _ in range(iterations):
        similarity = vectors @ centroids.T
        assigned = similarity.argmax(axis=1)
        closeness = similarity[np.arange(len(vectors)), assigned]
        sums = group_sums(vectors, assigned, k)
        empty = np.flatnonzero(np.bincount(assigned, minlength=k) == 0)
        sums[empty] = vectors[np.argsort(closeness, kind="stable")[: len(empty)]]
        centroids = unit(sums)
    return centroids, (vectors @ centroids.T).argmax(axis=1)


def hierarchical_kmeans(vectors: Vectors, sizes: Sequence[int], rng: np.random.Generator) -> list[Vectors]:
    """Unit centroids [(k, d) for k in sizes], each level splitting the clusters of the one before.

    A cluster gets children in proportion to the square root of its members, so that large interests are split more
    without starving small ones. Raises BadDataError when there are fewer vectors than the finest k.
    """
    levels: list[Vectors] = []
    groups = np.zeros(len(vectors), np.int64)
    for k in sizes:
        counts = np.bincount(groups)
        shares = _allot(counts, k)
        centroids, refined, first = [], np.empty(len(vectors), np.int64), 0
        for group, share in enumerate(shares):
            if share == 0:
                continue
            members = np.flatnonzero(groups == group)
            found, assigned = spherical_kmeans(vectors[members], int(share), rng)
            centroids.append(found)
            refined[members] = first + assigned
            first += int(share)
        levels.append(np.concatenate(centroids))
        groups = refined
    return levels


def group_sums(vectors: NDArray[Any], group: NDArray[np.int64], k: int) -> NDArray[Any]:
    """Sums (k, d) of the rows of `vectors` (n, d) that are of each `group` int64 (n,), added in their order."""
    places = (group, np.arange(len(group)))
    members = sparse.csr_array((np.ones(len(group), vectors.dtype), places), shape=(k, len(group)))
    return np.asarray(members @ vectors)


def unit(vectors: Vectors) -> Vectors:
    """Rows of `vectors` (n, d) at norm 1; rows of zeros stay zeros."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-12), np.float32)


def _plus_plus(vectors: Vectors, k: int, rng: np.random.Generator) -> Vectors:
    chosen = [int(rng.integers(len(vectors)))]
    distance = np.maximum(1.0 - vectors @ vectors[chosen[0]], 0.0).astype(np.float64)
    for _ in range(1, k):
        total = np.cumsum(distance)
        draw = rng.random() * total[-1]
        chosen.append(int(min(np.searchsorted(total, draw, side="right"), len(vectors) - 1)))
        distance = np.minimum(distance, np.maximum(1.0 - vectors @ vectors[chosen[-1]], 0.0))
    return np.array(vectors[chosen], np.float32)


def _allot(counts: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Shares (g,) >= 1 where there are members, summing to k, near sqrt(counts) and never above counts."""
    if counts.sum() < k or (counts > 0).sum() > k:
        raise BadDataError(f"expected {(counts > 0).sum()} <= k <= {counts.sum()} to split clusters, got k = {k}")
    shares = (counts > 0).astype(np.int64)
    pull = np.sqrt(counts.astype(np.float64))
    while (left := k - shares.sum()) > 0:
        open_ = shares < counts
        want = np.where(open_, pull / (shares + 1), 0.0)
        best = np.argsort(-want, kind="stable")[: max(1, left // 4)]
        shares[best[open_[best]]] += 1
    return shares
