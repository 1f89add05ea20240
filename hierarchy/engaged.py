"""Who is known to engage with what, so that a user's own products are not taken for negatives."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from graph.store import stretches
from hierarchy.edges import TrainingEdges
from hierarchy.transfer import on_device


class Engaged:
    """The distinct pairs of the training edges, sorted; 8 bytes a pair on the device and 8 on the host."""

    def __init__(self, edges: TrainingEdges, num_products: int, device: torch.device | str) -> None:
        self._width, self._device = num_products, device
        self._keys = np.unique(edges.user * num_products + edges.product)
        self._sorted = on_device(self._keys, device)

    def mask(self, users: torch.Tensor, products: torch.Tensor) -> torch.Tensor:
        """Which of `products` (C,) each of `users` (B,) engages with, bool (B, C); time O(B C log(pairs))."""
        wanted = users[:, None] * self._width + products[None, :]
        place = torch.searchsorted(self._sorted, wanted).clamp_(max=len(self._sorted) - 1)
        return self._sorted[place] == wanted

    def pairs(self, users: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """The same over all products as positions (row, product) int64 (P,) on the device, time O(P)."""
        first = np.searchsorted(self._keys, users * self._width)
        count = np.searchsorted(self._keys, (users + 1) * self._width) - first
        row = np.repeat(np.arange(len(users)), count)
        product = self._keys[stretches(first, count)] - users[row] * self._width
        return on_device(row, self._device), on_device(product, self._device)
