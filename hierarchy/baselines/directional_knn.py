"""Neighbours in one direction: what tends to follow the things a user had, the newest counting most.

See `hierarchy.directional` for the table and where it comes from.
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray

from hierarchy.directional import DirectionalSettings, transitions
from hierarchy.purchases import History


class DirectionalKnn:
    """score(u, i) = sum over j of recency_decay ** recency(u, j) * T(j, i)."""

    def __init__(self, known: History, settings: DirectionalSettings, recency_decay: float) -> None:
        self._table = transitions(known, settings)
        self._decay, self._rest = recency_decay, known.fallback()
        self._profile = known.profile(recency_decay)

    def grown(self, history: History) -> DirectionalKnn:
        """The same table for what users had by a later date."""
        later = copy(self)
        later._profile = history.profile(self._decay)
        return later

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,)."""
        return np.asarray((self._profile[users] @ self._table).toarray() + self._rest, np.float32)
