"""EASE^R: the linear item-to-item model with a zero diagonal, solved exactly.

Steck (2019), "Embarrassingly shallow autoencoders for sparse data".
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from data.errors import SystemStateError
from hierarchy.purchases import History

_GIB = 1024**3


class Ease:
    """score(u, :) = profile(u) B with B = I - P / diag(P), P = (X'X + ridge I)^-1, X binary."""

    def __init__(self, known: History, ridge: float, recency_decay: float = 1.0, memory: float = 4.0) -> None:
        """Time O(products^3): about a minute at 15,000 on one core; memory one dense float32 square and a few rows.

        Raises SystemStateError where that square needs more than `memory` GiB, or the matrix cannot be factored.
        """
        need = 4 * known.num_products**2 / _GIB
        if need > memory:
            raise SystemStateError(
                f"EASE needs {need:.1f} GiB for {known.num_products:,} products, more than the {memory:g} GiB it may "
                "have: leave it out or raise its memory limit"
            )
        self._weights = _solved(known, ridge)
        self._decay = recency_decay
        self._profile = known.profile(recency_decay)

    def grown(self, history: History) -> Ease:
        """The same weights for what users had by a later date."""
        later = copy(self)
        later._profile = history.profile(self._decay)
        return later

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,)."""
        return np.asarray(self._profile[users] @ self._weights, np.float32)


def _solved(known: History, ridge: float) -> NDArray[np.float32]:
    taken = known.matrix()
    taken.data[:] = 1.0
    # In column order, so that LAPACK works in place.
    gram = np.asfortranarray((taken.T @ taken).toarray())
    gram[np.diag_indices_from(gram)] += np.float32(ridge)
    lower, failed = linalg.lapack.spotrf(gram, lower=1, overwrite_a=1)
    if failed:
        raise SystemStateError(f"EASE could not factor its matrix at ridge {ridge:g}: choose a larger one")
    inverse, _ = linalg.lapack.spotri(lower, lower=1, overwrite_c=1)
    for column in range(len(inverse)):
        inverse[column, column + 1 :] = inverse[column + 1 :, column]
    inverse /= -inverse.diagonal()
    inverse[np.diag_indices_from(inverse)] = 0.0
    return np.ascontiguousarray(inverse)
