"""Residual k-means: codes that each say what the ones before left unsaid; a primitive is a prefix of codes.

Residual quantisation (Chen, Guan & Wang, 2010, "Approximate nearest neighbor search by residual vector quantization"),
as it is used for semantic ids (RK-means in OneRec, 2025). Every level has one codebook, shared by all prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from data.errors import BadDataError
from hierarchy.bags import Vectors
from hierarchy.baselines.division import branching, prefixes
from hierarchy.kmeans import unit


class RqKmeans:
    """Codebooks (branch, d) of the residuals by level; primitive p of a level is the sum of its prefix' codes."""

    nearest = False

    def __init__(self, vectors: Vectors, sizes: Sequence[int], seed: int, restarts: int = 1) -> None:
        """Fit to `vectors` (n, d), O(n d sum of branches); the best of `restarts` codebooks of each level.

        Raises UsageError where sizes are no multiples of each other, BadDataError for fewer vectors than codes.
        """
        self.branches = branching(sizes)
        if len(vectors) < max(self.branches):
            raise BadDataError(f"expected at least {max(self.branches)} vectors for as many codes, got {len(vectors)}")
        self.codebooks: list[Vectors] = []
        residual = vectors.copy()
        with threadpool_limits(limits=1):  # sums over threads would differ in their last bits
            for level, branch in enumerate(self.branches):
                fitted = KMeans(branch, n_init=restarts, random_state=seed + level).fit(residual)
                self.codebooks.append(np.asarray(fitted.cluster_centers_, np.float32))
                residual -= self.codebooks[-1][_closest(residual, self.codebooks[-1])]
        self.vectors = reconstructions(self.codebooks)

    def codes(self, vectors: Vectors) -> list[NDArray[np.int64]]:
        """By level the code of each product (n,)."""
        return residual_codes(vectors, self.codebooks)[0]

    def assign(self, vectors: Vectors) -> list[NDArray[np.int64]]:
        """By level the prefix of each product (n,)."""
        return prefixes(self.codes(vectors), self.branches)

    def errors(self, vectors: Vectors) -> list[float]:
        """By level the mean squared distance of `vectors` (n, d) from what their codes so far say."""
        return residual_codes(vectors, self.codebooks)[1]


def residual_codes(vectors: Vectors, codebooks: Sequence[Vectors]) -> tuple[list[NDArray[np.int64]], list[float]]:
    """By level the nearest code of each residual (n,), and the mean squared residual after it."""
    residual, codes, errors = vectors.copy(), [], []
    for codebook in codebooks:
        codes.append(_closest(residual, codebook))
        residual -= codebook[codes[-1]]
        errors.append(float((residual.astype(np.float64) ** 2).sum(axis=1).mean()))
    return codes, errors


def reconstructions(codebooks: Sequence[Vectors]) -> list[Vectors]:
    """By level the unit sum of the codes of every prefix, prefixes in the order of their numbers."""
    found = []
    for depth in range(1, len(codebooks) + 1):
        paths = product(*(range(len(codebook)) for codebook in codebooks[:depth]))
        sums = [sum(codebook[code] for codebook, code in zip(codebooks, path, strict=False)) for path in paths]
        found.append(unit(np.array(sums, np.float32)))
    return found


def _closest(vectors: Vectors, codebook: Vectors) -> NDArray[np.int64]:
    return np.asarray(((codebook**2).sum(axis=1) - 2 * vectors @ codebook.T).argmin(axis=1))
