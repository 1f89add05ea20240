"""Vectors told from tokens: what an entity's few weights at each level, and the primitives, say of where it lies.

A weight is exp(cosine / tau) over a sum that its level shares, so the weights w of a bag tell how the cosines of their
primitives c differ: tau * ln(w_1 / w_2) = <x, c_1 - c_2>. What a level of unions says is the next finer one's own. Of
all vectors at which they differ so at every other level, the one nearest to the mean of the finest bag, sum of w * c,
is taken: a few linear equations an entity, by least squares.
Nothing is learned. Scores between a user's own vector and such products are what product quantisation calls asymmetric
(Jegou et al., 2011, "Product quantization for nearest neighbor search"), those between two told ones symmetric.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from data.errors import BadDataError
from hierarchy.bags import Vectors
from hierarchy.kmeans import unit
from hierarchy.levels import Level

_BLOCK = 1024
_LEAST = 1e-6  # weights below are as good as zero and say little of how small the cosine is
_NOISE = 1e-3  # of a difference of cosines, so that equal primitives at two levels do no harm


def decoded(profiles: sparse.csr_array, levels: Sequence[Level]) -> Vectors:
    """Unit vectors float32 (n, d) of profiles (n, K), K the primitives of `levels` one after the other, coarse to fine.

    Zeros for an entity without tokens. A user of several heads, whose bag is the mean of theirs, gets one vector
    between them. Raises BadDataError unless all bags of a level keep as many primitives. Time O(n m^2 (m + d)) for the
    m primitives kept over all levels; memory beside the answer: blocks of it times m.
    """
    held = np.flatnonzero(np.diff(profiles.indptr))
    own = profiles[held]
    found = np.zeros((profiles.shape[0], levels[-1].vectors.shape[1]), np.float32)
    parts, first = [], 0
    for level in levels:
        if level.united is None:
            parts.append(_bag(own[:, first : first + len(level.ids)], level))
        first += len(level.ids)
    levels = [level for level in levels if level.united is None]
    for start in range(0, len(held), _BLOCK):
        some = slice(start, start + _BLOCK)
        found[held[some]] = _solved([(place[some], weight[some]) for place, weight in parts], levels)
    return found


def _bag(own: sparse.csr_array, level: Level) -> tuple[NDArray[np.int64], Vectors]:
    """Primitives and weights (n, top) of bags (n, k)."""
    counts = np.diff(own.indptr)
    top = int(counts.max(initial=0))
    if (counts != top).any():
        raise BadDataError(
            f"level {level.level}: expected as many primitives in every bag, got {counts.min()} to {top}: read the "
            "tokens of all its primitives"
        )
    return own.indices.reshape(len(counts), top).astype(np.int64), own.data.reshape(len(counts), top)


def _solved(bags: Sequence[tuple[NDArray[np.int64], Vectors]], levels: Sequence[Level]) -> Vectors:
    centred, wanted = [], []
    for (place, weight), level in zip(bags, levels, strict=True):
        vectors, cosine = level.vectors[place], level.tau * np.log(np.maximum(weight, _LEAST))
        centred.append(vectors - vectors.mean(axis=1, keepdims=True))
        wanted.append(cosine - cosine.mean(axis=1, keepdims=True))
    measures, wants = np.concatenate(centred, axis=1), np.concatenate(wanted, axis=1)
    place, weight = bags[-1]
    mean = (levels[-1].vectors[place] * weight[:, :, None]).sum(axis=1)
    missing = wants - (measures @ mean[:, :, None])[:, :, 0]
    square = measures @ measures.transpose(0, 2, 1) + np.float32(_NOISE) * np.eye(wants.shape[1], dtype=np.float32)
    step = measures.transpose(0, 2, 1) @ np.linalg.solve(square, missing[:, :, None])
    return unit(mean + step[:, :, 0])
