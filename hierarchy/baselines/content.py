"""Nearest by content alone: products like the mean of those a user bought. No learning, and nothing is cold to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hierarchy.purchases import History


class ContentOnly:
    """Scores are cosines between a product's content and the mean content of the user's history."""

    def __init__(self, history: History, content: NDArray[np.float32]) -> None:
        """`content` float32 (products, D) is unit-norm, or zero where nothing is known."""
        mean = history.matrix() @ content
        norm = np.linalg.norm(mean, axis=1, keepdims=True)
        self._users = (mean / np.maximum(norm, 1e-12)).astype(np.float32)
        self._products = content

    def grown(self, history: History) -> ContentOnly:
        """The same content for what users had by a later date."""
        return ContentOnly(history, self._products)

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,)."""
        return np.asarray(self._users[users] @ self._products.T)
