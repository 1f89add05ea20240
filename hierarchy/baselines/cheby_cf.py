"""ChebyCF: a flat-topped graph filter by Chebyshev interpolation plus an ideal low-pass filter, without training.

Kim et al. (SIGIR 2025), "Graph spectral filtering with Chebyshev interpolation for recommendation", arXiv 2505.00552.
As in its published results the target is read at the Chebyshev-Lobatto points and interpolated as if at the Gauss
points; the difference is small and the published settings belong to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hierarchy.baselines.graph_filter import GraphFilter
from hierarchy.purchases import History


class ChebyCf(GraphFilter):
    """score(u) = r D^-power (h(L) + low_pass * V V') D^power, L = I - 2 R~'R~ with R~ = Du^-.5 R D^-.5.

    h(x) = (1 - sign(x) |x| ** flatness) / 2 passes smooth signals (x = -1) and stops rough ones (x = 1).
    """

    def __init__(
        self,
        known: History,
        order: int = 8,
        flatness: float = 1.5,
        dim: int = 512,
        low_pass: float = 0.2,
        power: float = 0.4,
        recency_decay: float = 1.0,
        seed: int = 0,
    ) -> None:
        """Time: one truncated SVD; the published form for Gowalla are the defaults."""
        super().__init__(known, dim, recency_decay, seed)
        self._low_pass, self._coefficients = np.float32(low_pass), coefficients(order, flatness)
        self._scale = (self._degree.astype(np.float64) ** power).astype(np.float32)

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,), in time O(order x events) a user."""
        signal = np.ascontiguousarray((self._profile[users] / self._scale).toarray().T, np.float32)
        passed = self._filtered(signal) + self._low_pass * (self._low @ (self._low.T @ signal))
        return np.asarray(passed.T * self._scale)

    def _filtered(self, signal: NDArray[np.float32]) -> NDArray[np.float32]:
        before, now = signal, self._laplacian(signal)
        total = self._coefficients[0] * before + self._coefficients[1] * now
        for weight in self._coefficients[2:]:
            before, now = now, 2 * self._laplacian(now) - before
            total += weight * now
        return np.asarray(total)

    def _laplacian(self, signal: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(signal - 2 * (self._back @ (self._forward @ signal)))


def coefficients(order: int, flatness: float) -> NDArray[np.float32]:
    """Chebyshev coefficients (order + 1,) of the flat-topped filter; `order` is at least 1."""
    steps = np.arange(order + 1)
    points = np.cos((order - steps) / order * np.pi).round(3)
    target = 0.5 - 0.5 * np.sign(points) * np.abs(points) ** flatness
    nodes = np.cos((order + 0.5 - steps) / (order + 1) * np.pi)
    basis = np.cos(steps[:, None] * np.arccos(nodes))
    found = basis @ target * (2 / (order + 1))
    found[0] /= 2
    return found.astype(np.float32)
