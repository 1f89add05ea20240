"""What the user model is trained to predict: from which event or pooled date, which event comes next.

All draws are made over users and products that had an event before t0, in the order of their external ids, so nothing
that happens later can move them.

Letters: U users, N events of a batch, P pools, C products of the catalogue, V primitives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ranking.asof import Ints
from ranking.batch import age_buckets, as_long
from ranking.user_events import EventBatch, Items, UserEvents
from ranking.user_model import Pools

_SMOOTHING = 1.0
"""Engagements that every product of the catalogue is taken to have had beside its own."""


@dataclass(frozen=True)
class Task:
    """One batch of predictions. Targets are rows of the batch's events.

    The event that follows `state` (n,) of the same user is `target` (n,); `pool_target` (P,) is an event of the days
    after the pool's date, drawn at random, since those of one visit have no order.
    """

    batch: EventBatch
    state: Tensor
    target: Tensor
    pools: Pools
    pool_target: Tensor


def make_task(
    events: UserEvents, start: Ints, end: Ints, dates: Ints, max_pools: int, rng: np.random.Generator, since: int = 0
) -> Task:
    """Predictions within the windows start:end (U,) of each user, of events visible from `since` [us] on.

    Pools are made at up to `max_pools` of the dates [us] but the last, each with its target between it and the next.
    """
    batch = events.batch(start, end)
    visible, offsets = batch.visible.numpy(), batch.offsets.numpy()
    follows = np.ones(len(visible), bool)
    follows[offsets[:-1][end > start]] = False
    target = np.flatnonzero(follows & (visible >= since))
    rows, counts, times, targets = [], [], [], []
    for row in range(len(start)):
        bounds = np.searchsorted(visible[offsets[row] : offsets[row + 1]], dates, side="right")
        useful = np.flatnonzero((bounds[:-1] > 0) & (bounds[1:] > bounds[:-1]))
        chosen = np.sort(rng.permutation(useful)[:max_pools])
        rows += [row] * len(chosen)
        counts += bounds[chosen].tolist()
        times += dates[chosen].tolist()
        targets += (offsets[row] + rng.integers(bounds[chosen], bounds[chosen + 1])).tolist()
    pools = make_pools(batch, np.array(rows, np.int64), np.array(counts, np.int64), np.array(times, np.int64))
    return Task(batch, as_long(target - 1), as_long(target), pools, torch.tensor(targets, dtype=torch.int64))


def make_pools(batch: EventBatch, row: Ints, count: Ints, date: Ints) -> Pools:
    """Pools over the first count[i] >= 1 events of the user row[i] at date[i] [us], each (P,)."""
    column = np.arange(count.max(initial=1))
    there = column < count[:, None]
    place = np.where(there, batch.offsets.numpy()[row, None] + column, 0)
    age = np.where(there, date[:, None] - batch.ts.numpy()[place], 1) if len(row) else np.ones(there.shape, np.int64)
    return Pools(as_long(row), as_long(age_buckets(age)), torch.from_numpy(there))


@dataclass(frozen=True)
class Catalogue:
    """Products (C,) by ascending internal id that were engaged with before t0, and how often in the training part.

    `log_share` (C,) is the log of the smoothed popularity; `interest_share` (V,) the mean interest distribution.
    """

    events: UserEvents
    products: Ints
    log_share: Tensor
    interest_share: Tensor
    draw: NDArray[np.float64]

    @classmethod
    def build(cls, events: UserEvents, split: int) -> Catalogue:
        """Count engagements visible before `split` [us] of products with an event visible before t0."""
        counts = [_counts(events, time) for time in (events.t0, split)]
        products = np.flatnonzero(counts[0])
        count = counts[1][products] + _SMOOTHING
        share = np.asarray(count / max(count.sum(), _SMOOTHING), np.float64)
        uniform = 1.0 / max(len(products), 1)
        return cls(
            events,
            products,
            torch.from_numpy(np.log(share)).float(),
            _interest_share(events, products, share),
            0.5 * share + 0.5 * uniform,
        )

    def find(self, number: Tensor) -> Tensor:
        """Row in the catalogue (n,) of each product by internal id, -1 when it has none."""
        wanted = number.numpy()
        if not len(self.products):
            return torch.full_like(number, -1)
        row = np.minimum(np.searchsorted(self.products, wanted), len(self.products) - 1)
        return as_long(np.where(self.products[row] == wanted, row, -1))

    def items(self, rows: Ints) -> Items:
        """The products of some rows (n,) as they were known at t0."""
        return self.events.candidates(self.products[rows])

    def negatives(self, count: int, rng: np.random.Generator) -> tuple[Ints, Tensor]:
        """Rows (count,) drawn with replacement, half by popularity and half uniformly, and log expected counts."""
        if not len(self.products):
            return np.zeros(0, np.int64), torch.zeros(0)
        edges = np.cumsum(self.draw)
        rows = np.minimum(np.searchsorted(edges, rng.random(count) * edges[-1], side="right"), len(edges) - 1)
        return rows.astype(np.int64), torch.from_numpy(np.log(count * self.draw[rows])).float()


def _counts(events: UserEvents, time: int) -> Ints:
    """int64 (products,): events of each product visible before `time`."""
    product = events.columns["product"]
    early = (events.columns["visible_from"] < time) & (product >= 0)
    return np.bincount(product[early], minlength=len(events.owner)).astype(np.int64)


def _interest_share(events: UserEvents, products: Ints, share: NDArray[np.float64]) -> Tensor:
    slots = events.candidates(products).slots
    weight = slots.share.numpy() * np.repeat(share, slots.offsets.diff().numpy())
    total = np.bincount(slots.primitive.numpy(), weight, minlength=1 + events.num_primitives)[1:] + 1e-6
    for start, stop in events.levels:
        total[start - 1 : stop - 1] /= total[start - 1 : stop - 1].sum()
    return torch.from_numpy(total).float()
