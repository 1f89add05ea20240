"""A weighted sum of other methods' scores, each brought to one scale user by user: the cheapest of ensembles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hierarchy.purchases import History
from hierarchy.recall import Inductive

Scale = Literal["z", "max"]


class Blend:
    """score(u, i) = sum over methods of weight * scaled score.

    "z" takes each user's mean and standard deviation over all products out, "max" divides by their largest score.
    """

    def __init__(self, parts: Sequence[Inductive], weights: Sequence[float], scale: Scale) -> None:
        self._parts, self._weights, self._scale = list(zip(parts, weights, strict=True)), weights, scale

    def grown(self, history: History) -> Blend:
        """The same weights over parts that know a later date."""
        return Blend([part.grown(history) for part, _ in self._parts], self._weights, self._scale)

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,); costs what its parts cost together."""
        total: NDArray[np.float32] | float = 0.0
        for part, weight in self._parts:
            total = total + np.float32(weight) * _scaled(part.scores(users), self._scale)
        return np.asarray(total, np.float32)


def _scaled(scores: NDArray[np.float32], scale: Scale) -> NDArray[np.float32]:
    if scale == "max":
        return np.asarray(scores / np.maximum(np.abs(scores).max(axis=1, keepdims=True), np.float32(1e-12)))
    spread = np.maximum(scores.std(axis=1, keepdims=True), np.float32(1e-12))
    return np.asarray((scores - scores.mean(axis=1, keepdims=True)) / spread)
