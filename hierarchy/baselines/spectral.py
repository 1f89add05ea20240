"""Spectral vectors as a retrieval method: one dot product between a user's history and a product."""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray

from hierarchy.purchases import History
from hierarchy.spectral import SpectralSettings, spectral_vectors


class Spectral:
    """score(u, i) = (sum over j of recency_decay ** recency(u, j) * source(j)) . target(i)."""

    def __init__(self, known: History, settings: SpectralSettings, recency_decay: float = 1.0, seed: int = 0) -> None:
        self.vectors = spectral_vectors(known, settings, seed)
        self._decay, self._rest = recency_decay, known.fallback()
        self._targets = np.ascontiguousarray(self.vectors.target.T)
        self._users = self.vectors.users(known.profile(recency_decay))

    def grown(self, history: History) -> Spectral:
        """The same vectors for what users had by a later date."""
        later = copy(self)
        later._users = self.vectors.users(history.profile(self._decay))
        return later

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,)."""
        return np.asarray(self._users[users] @ self._targets + self._rest)
