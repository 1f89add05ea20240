"""Hierarchical k-means: clusters of the products' vectors, each split again; on content, or on what a learner made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hierarchy.bags import Vectors, cosines
from hierarchy.kmeans import hierarchical_kmeans


class TreeKmeans:
    """Spherical k-means, level by level within the clusters of the one above; a product is with its nearest centroid of
    each level."""

    nearest = True

    def __init__(self, vectors: Vectors, sizes: Sequence[int], seed: int, restarts: int = 1) -> None:
        """Fit to unit `vectors` (n, d); of `restarts` the one whose products are nearest their finest centroid.

        O(n d k restarts) with k of the finest level. Raises BadDataError when n is less than that.
        """
        rng = np.random.default_rng(seed)
        tries = [hierarchical_kmeans(vectors, sizes, rng) for _ in range(restarts)]
        self.vectors = max(tries, key=lambda levels: float(cosines(vectors, levels[-1]).max(axis=1).mean()))

    def assign(self, vectors: Vectors) -> list[NDArray[np.int64]]:
        """By level the nearest centroid of each product (n,)."""
        return [cosines(vectors, level).argmax(axis=1) for level in self.vectors]
