"""What training-free graph filters share: the normalised graph, its ideal low-pass half, and histories that grow."""

from __future__ import annotations

from copy import copy
from typing import Self

import numpy as np
from scipy import sparse

from hierarchy.purchases import History
from hierarchy.spectral import degrees, normalised
from hierarchy.subspace import truncated_svd


class GraphFilter:
    """R~ = Du^-.5 R D^-.5, its `dim` leading right singular vectors V, and degrees D of the products."""

    def __init__(self, known: History, dim: int, recency_decay: float, seed: int) -> None:
        """Time: one truncated SVD."""
        matrix = normalised(known, 0.5, 0.5)
        self._forward, self._back = matrix, sparse.csr_array(matrix.T)
        self._low = truncated_svd(matrix, dim, seed).right
        self._degree = degrees(known)[1].astype(np.float32)
        self._decay, self._profile = recency_decay, known.profile(recency_decay)

    def grown(self, history: History) -> Self:
        """The same filter for what users had by a later date."""
        later = copy(self)
        later._profile = history.profile(self._decay)
        return later
