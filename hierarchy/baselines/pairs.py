"""Random pairs of a user and a product they had, and products they had not: drawn on the device, in fixed shapes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from hierarchy.purchases import History

_RETRIES = 4


class Pairs:
    """The `size` distinct pairs of a history, of `num_active` users, sorted: 8 bytes each on the device."""

    def __init__(self, known: History, device: torch.device, by_user: bool) -> None:
        """With `by_user` a pair is a random one of a random user with events; else any pair is as likely as another."""
        keys = np.unique(known.user * known.num_products + known.product)
        user, self._products = keys // known.num_products, known.num_products
        active, first, count = np.unique(user, return_index=True, return_counts=True)
        self.size, self.num_active = len(keys), len(active)
        self._by_user = by_user
        self._keys = _on(keys, device)
        self._active, self._first, self._count = (_on(x, device) for x in (active, first, count))

    def draw(self, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """User and product (batch,)."""
        key = self._keys[self._places(batch)]
        return key // self._products, key % self._products

    def others(self, user: torch.Tensor) -> torch.Tensor:
        """For each of `user` (batch,) a random product they did not have.

        One that they had is drawn again, up to four times; what is left then stays (rare, but for a user who had
        nearly all).
        """
        other = self.uniform(len(user))
        for _ in range(_RETRIES):
            other = torch.where(self._had(user, other), self.uniform(len(user)), other)
        return other

    def uniform(self, count: int) -> torch.Tensor:
        """Random products (count,)."""
        return torch.randint(self._products, (count,), device=self._keys.device)

    def _places(self, batch: int) -> torch.Tensor:
        device = self._keys.device
        if not self._by_user:
            return torch.randint(self.size, (batch,), device=device)
        who = torch.randint(len(self._active), (batch,), device=device)
        count = self._count[who]
        # A draw near 1 can round up to `count` in float32.
        nth = torch.minimum((torch.rand(batch, device=device) * count).long(), count - 1)
        return self._first[who] + nth

    def _had(self, user: torch.Tensor, product: torch.Tensor) -> torch.Tensor:
        key = user * self._products + product
        place = torch.searchsorted(self._keys, key).clamp_max(self.size - 1)
        return self._keys[place] == key


def _on(array: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
