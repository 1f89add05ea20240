"""GF-CF: a linear graph filter plus an ideal low-pass filter, without training.

Shen et al. (2021), "How powerful is graph convolution for recommendation?". The published form leaves the history as
it is in its linear half; `linear_power` divides popularity out of it and gives it back to what is recommended.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hierarchy.baselines.graph_filter import GraphFilter
from hierarchy.purchases import History


class GfCf(GraphFilter):
    """score(u) = r D^-linear_power R~'R~ D^linear_power + low_pass * r D^-.5 V V' D^.5, with R~ = Du^-.5 R D^-.5."""

    def __init__(
        self,
        known: History,
        low_pass: float = 0.3,
        dim: int = 256,
        linear_power: float = 0.0,
        recency_decay: float = 1.0,
        seed: int = 0,
    ) -> None:
        """Time: one truncated SVD; the published form is low_pass .3, dim 256, linear_power 0."""
        super().__init__(known, dim, recency_decay, seed)
        self._low_pass, self._power = np.float32(low_pass), linear_power

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,), in time O(events) a user."""
        own = self._profile[users]
        linear = self._back @ (self._forward @ (own * self._degree**-self._power).T.toarray())
        low = ((own * self._degree**-0.5) @ self._low) @ self._low.T
        linear_part = linear.T * self._degree**self._power
        return np.asarray(linear_part + self._low_pass * low * self._degree**0.5, np.float32)
