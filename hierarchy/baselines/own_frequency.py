"""What a user bought most so far: hard to beat where people buy the same things again (groceries)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hierarchy.purchases import History


class OwnFrequency:
    """Scores are the user's own events with a product, halved every `half_life` days; then what sells most."""

    def __init__(self, history: History, half_life: float | None = None) -> None:
        self._own = history.matrix(half_life)
        counts = history.popularity()
        least = self._own.data.min() if self._own.nnz else 1.0
        # Popularity orders what the user never bought, and stays below the least of what they did.
        self._rest = (0.5 * least * counts / max(counts.max(initial=0), 1.0)).astype(np.float32)

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,)."""
        return np.asarray(self._own[users].toarray() + self._rest, np.float32)
