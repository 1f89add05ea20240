"""What a trained ranker loses when a group of its inputs is withheld: NE on held-out rows, and its change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.jagged import Jagged
from ranking.batch import Batcher, JaggedBatch
from ranking.evaluate import normalized_entropy
from ranking.fitting import Trained, predict
from ranking.hashing import hash_share


def _history(batch: JaggedBatch) -> JaggedBatch:
    empty = batch.history.values[:0]
    lengths = torch.zeros_like(batch.history.lengths)
    history = Jagged.from_lengths(empty, lengths, batch.history.max_len)
    return replace(batch, history=history, history_type=empty, history_gap=empty)


def _without(*names: str) -> Callable[[JaggedBatch], JaggedBatch]:
    def absent(batch: JaggedBatch) -> JaggedBatch:
        zeros: dict[str, Any] = {name: torch.zeros_like(getattr(batch, name)) for name in names}
        return replace(batch, **zeros)

    return absent


WITHHELD: dict[str, Callable[[JaggedBatch], JaggedBatch]] = {
    "history": _history,
    "user states": _without("has_states"),
    "counts and ages": _without("numbers"),
    "counts and ages by interest": _without("interest_numbers"),
    "user id": _without("user"),
    "product and advertiser ids": _without("item_product", "item_advertiser"),
    "category": _without("item_category"),
    "content": _without("item_content"),
    "surface and time": _without("surface", "hour", "weekday"),
    "user tokens": _without("user_slots", "user_weight"),
    "product tokens": _without("product_slots", "product_weight"),
    "advertiser tokens": _without("advertiser_slots", "advertiser_weight"),
}
"""Groups of inputs, each with a function that makes it absent from a batch."""


class _Withholding(Batcher):
    """A batcher whose batches lack one group."""

    def __init__(self, whole: Batcher, withhold: Callable[[JaggedBatch], JaggedBatch]) -> None:
        self.__dict__.update(whole.__dict__)
        self._withhold = withhold

    def batch(self, rows: NDArray[np.int64]) -> JaggedBatch:
        return self._withhold(super().batch(rows))


_MAX_ROWS = 10_000


def importance(trained: Trained, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
    """NE of `rows`, at most 10,000 of them by hash, with each group withheld and its increase, largest first.

    Empty when the rows hold one class only, for which NE is undefined.

    The ranker is not trained again, so a group that another one could stand in for still counts.
    """
    columns = trained.batcher.examples.columns
    rows = rows[hash_share(columns["event_hash"][rows]) < _MAX_ROWS / max(len(rows), 1)]
    labels, weights = np.asarray(columns["label"][rows]), 1.0 / columns["sample_prob"][rows].astype(np.float64)

    def loss(batcher: Batcher) -> float:
        return normalized_entropy(predict(trained.network, batcher, rows)[0] + trained.shift, labels, weights)

    whole = loss(trained.batcher)
    if np.isnan(whole):
        return []
    found = []
    for name, withhold in WITHHELD.items():
        without = loss(_Withholding(trained.batcher, withhold))
        found.append({"group": name, "ne": without, "increase": without - whole})
    return sorted(found, key=lambda row: -row["increase"])
