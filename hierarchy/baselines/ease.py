"""EASE^R: the linear item-to-item model with a zero diagonal, solved exactly.

Steck (2019), "Embarrassingly shallow autoencoders for sparse data".
"""

from __future__ import annotations

from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray

from data.errors import SystemStateError
from hierarchy.purchases import History

_GIB = 1024**3


class Ease:
    """score(u, :) = profile(u) B with B = I - P / diag(P), P = (X'X + ridge I)^-1, X binary."""

    def __init__(
        self, known: History, ridge: float, recency_decay: float = 1.0, memory: float = 8.0, device: str = "cpu"
    ) -> None:
        """Time O(products^3) on `device`: about a minute at 15,000 on one core; memory two dense float32 squares there.

        Raises SystemStateError where they need more than `memory` GiB, or the matrix cannot be factored.
        """
        need = 2 * 4 * known.num_products**2 / _GIB
        if need > memory:
            raise SystemStateError(
                f"EASE needs {need:.1f} GiB for {known.num_products:,} products, more than the {memory:g} GiB it may "
                "have: leave it out or raise its memory limit"
            )
        self._weights = _solved(known, ridge, device)
        self._decay = recency_decay
        self._profile = known.profile(recency_decay)

    def grown(self, history: History) -> Ease:
        """The same weights for what users had by a later date."""
        later = copy(self)
        later._profile = history.profile(self._decay)
        return later

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,)."""
        own = torch.from_numpy(self._profile[users].toarray()).to(self._weights.device)
        return np.asarray((own @ self._weights).cpu().numpy(), np.float32)


def _solved(known: History, ridge: float, device: str) -> torch.Tensor:
    taken = known.matrix()
    taken.data[:] = 1.0
    gram = torch.from_numpy((taken.T @ taken).toarray()).to(device)
    gram.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(gram)
    if failed:
        raise SystemStateError(f"EASE could not factor its matrix at ridge {ridge:g}: choose a larger one")
    del gram
    inverse: torch.Tensor = torch.cholesky_inverse(factor)
    inverse /= -inverse.diagonal().clone()
    inverse.fill_diagonal_(0.0)
    return inverse
