"""Products of a planted tree of three levels: each level adds a smaller step in a direction of its own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hierarchy.kmeans import unit

SIZES = (3, 9, 27)


class PlantedTree(NamedTuple):
    """Unit vectors (n, 24) and the true branch of each product at each level, int64 (n,)."""

    vectors: np.ndarray
    labels: list[np.ndarray]


def planted_tree(each: int = 12, noise: float = 0.02, seed: int = 0) -> PlantedTree:
    """`each` products of every leaf, shuffled."""
    rng = np.random.default_rng(seed)
    leaf = rng.permutation(np.repeat(np.arange(SIZES[-1]), each))
    labels = [leaf // 9, leaf // 3, leaf]
    vectors = noise * rng.standard_normal((len(leaf), 24))
    for step, (k, own) in enumerate(zip(SIZES, labels, strict=True)):
        vectors += 0.55**step * unit(rng.standard_normal((k, 24)))[own]
    return PlantedTree(unit(vectors.astype(np.float32)), labels)
