"""Recall and NDCG with full ranking on the device where the scores are; exact, of equal scores the first item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tests.benchmarks.learned_retrieval.sets import Rows

_CHUNK = {"cuda": 2048, "cpu": 256}


class DeviceScorer(Protocol):
    """A method that scores on its device."""

    def on_device(self, users: torch.Tensor) -> torch.Tensor:
        """Scores float32 (B, items) of users int64 (B,)."""
        ...


class DeviceRows:
    """Items by user on a device."""

    def __init__(self, rows: Rows, device: torch.device) -> None:
        self._offsets, self._items = (torch.from_numpy(x).to(device) for x in (rows.offsets, rows.items))

    def places(self, users: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Row in `users` (B,) and item of all items of those users (n,)."""
        first = self._offsets[users]
        lengths = self._offsets[users + 1] - first
        row = torch.repeat_interleave(torch.arange(len(users), device=users.device), lengths)
        before = lengths.cumsum(0) - lengths
        return row, self._items[torch.arange(len(row), device=users.device) + (first - before)[row]]


class Ranking:
    """Targets of all users with any, and what may not be ranked; made once, asked after every few epochs."""

    def __init__(
        self, targets: Rows, barred: Rows | None, device: torch.device, users: NDArray[np.int64] | None = None
    ):
        """`users` are those to look at (n,), else all that have targets."""
        chosen = np.flatnonzero(np.diff(targets.offsets)) if users is None else users
        self.users = torch.from_numpy(chosen).to(device)
        self._targets = DeviceRows(targets, device)
        self._barred = None if barred is None else DeviceRows(barred, device)
        self._chunk = _CHUNK[device.type]

    @torch.no_grad()
    def of(self, scorer: DeviceScorer, ks: Sequence[int]) -> dict[str, NDArray[np.float64]]:
        """Recall and NDCG at each of `ks` by user (n,); recall is the hits over ALL targets, as in published tables.

        Memory: chunk x items x 8 bytes, a few times.
        """
        parts = [self._chunk_of(scorer, users, ks) for users in torch.split(self.users, self._chunk)]
        names = [f"{metric}@{k}" for k in ks for metric in ("recall", "ndcg")]
        return dict(zip(names, torch.cat(parts, dim=1).cpu().numpy(), strict=True))

    def _chunk_of(self, scorer: DeviceScorer, users: torch.Tensor, ks: Sequence[int]) -> torch.Tensor:
        scores = scorer.on_device(users)
        if self._barred is not None:
            scores[self._barred.places(users)] = -torch.inf
        row, item = self._targets.places(users)
        wanted = torch.zeros_like(scores, dtype=torch.bool)
        wanted[row, item] = True
        hits = wanted.gather(1, best(scores, max(ks))).double()
        return torch.stack([measure for k in ks for measure in _measures(hits[:, :k], wanted.sum(dim=1))])


def best(scores: torch.Tensor, k: int) -> torch.Tensor:
    """Columns of the `k` largest scores of each row of float32 (B, n), best first; of equal ones the first column.

    Scores become integers in the same order, and the column goes into the lower half, so that no two are equal.
    """
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 makes -0.0 and 0.0 one number
    rising = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    columns = scores.shape[1] - 1 - torch.arange(scores.shape[1], device=scores.device)
    return torch.topk((rising << 32) | columns, min(k, scores.shape[1]), dim=1).indices


def _measures(hits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    gain = 1 / torch.log2(torch.arange(2, hits.shape[1] + 2, device=hits.device, dtype=torch.float64))
    ideal = gain.cumsum(0)[targets.clamp(1, hits.shape[1]) - 1]
    return hits.sum(dim=1) / targets, (hits * gain).sum(dim=1) / ideal
