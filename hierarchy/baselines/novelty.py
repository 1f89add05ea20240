"""What a user never had, before what they had: nothing by itself, but a part of sums where people do not come back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hierarchy.purchases import History


class Novelty:
    """Scores are 0 for products without an event of the user, -1 for others."""

    def __init__(self, history: History) -> None:
        self._had = history.matrix()

    def grown(self, history: History) -> Novelty:
        """The same of what users had by a later date."""
        return Novelty(history)

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,)."""
        had: NDArray[np.float32] = (self._had[users].toarray() > 0).astype(np.float32)
        return -had
