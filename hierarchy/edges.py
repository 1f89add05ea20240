"""Engagement edges to learn from, and the order in which training sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data.context import derive_seed
from data.errors import BadDataError
from data.schema import EVENT_TYPES, MICROS_PER_DAY
from graph.store import OWNED_BY, GraphStore, Relation

BLOCK = 7 * MICROS_PER_DAY
"""Candidates of a batch are encoded as of the start of a week, as they are when served from the weekly grid."""


@dataclass(frozen=True)
class Batch:
    """Edges of one step: user, product, advertiser (-1: none) int64 (B,), ts int64 us (B,), weight float32 (B,).

    `as_of` [us] is no later than any ts: the time at which candidates are encoded.
    """

    user: NDArray[np.int64]
    product: NDArray[np.int64]
    advertiser: NDArray[np.int64]
    ts: NDArray[np.int64]
    weight: NDArray[np.float32]
    as_of: int


class TrainingEdges:
    """User-product events readable before `end` [us], each weighted by its place in the funnel; O(edges) memory.

    Sorted by (ts, user, product, event type): the order does not depend on anything that happened later. `history` is
    what a user is made of when an edge is predicted: what came "before" it, or all "others" of the user's edges, for
    sets without a clock or an order; every edge then counts as seen at `end`. An epoch is one pass over the edges or,
    with `rows` "users", over the users, each with one of their edges. Raises BadDataError when there is none.
    """

    def __init__(
        self,
        store: GraphStore,
        funnel: Mapping[str, float],
        end: int,
        seed: int,
        history: str = "before",
        rows: str = "edges",
    ) -> None:
        parts = [
            _edges(store, name, code, funnel[name], end) for code, name in enumerate(EVENT_TYPES) if funnel.get(name)
        ]
        user, product, ts, code, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
        if not len(user):
            raise BadDataError(
                f"expected events of a type in {sorted(funnel)} before t0, got none: check t0 and the funnel"
            )
        order = np.lexsort((code, product, user, ts))
        self.user, self.product, self.ts, self.weight = user[order], product[order], ts[order], weight[order]
        if history == "others":
            self.ts = np.full(len(order), end, np.int64)
        self.advertiser = owners(store, self.product)
        self.block_start = end - BLOCK * -((self.ts - end) // BLOCK)
        self.seed, self.history, self.rows = seed, history, rows
        self._epoch, self._order = -1, np.zeros(0, np.int64)
        self._num_rows: int | None = None

    def __len__(self) -> int:
        return len(self.user)

    def hold_out(self, users: int) -> Batch:
        """Take one edge each of up to `users` users out of training, for validation; rows of at least two edges only.

        A user's newest edge; of all users a random part of those whose newest edges are the newest. Without times
        (`history` "others") a random edge of random users. Later calls would find other edges.
        """
        rng = np.random.default_rng(derive_seed(self.seed, "held out"))
        timed = self.history == "before"
        rows = np.arange(len(self)) if timed else rng.permutation(len(self))
        last = np.full(int(self.user.max()) + 1, -1)
        last[self.user[rows]] = rows
        last = last[(last >= 0) & (np.bincount(self.user) > 1)]
        pool = np.sort(last)[-2 * users :] if timed else np.sort(last)
        held = np.sort(rng.permutation(pool)[:users])
        taken = self._rows(held)
        kept = np.setdiff1d(np.arange(len(self)), held)
        for name in ("user", "product", "advertiser", "ts", "weight", "block_start"):
            setattr(self, name, getattr(self, name)[kept])
        self._num_rows = None
        return taken

    def batch(self, step: int, size: int) -> Batch:
        """The `size` edges of 0-based `step`: each epoch is one pass in an order that depends on the seed alone."""
        epoch, position = divmod(step, self.per_epoch(size))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffle(epoch, size)
        return self._rows(self._order[position * size : (position + 1) * size])

    def per_epoch(self, size: int) -> int:
        """Batches of `size` in an epoch, at least one."""
        if self._num_rows is None:
            self._num_rows = len(np.unique(self.user)) if self.rows == "users" else len(self)
        return max(1, self._num_rows // size)

    def _rows(self, rows: NDArray[np.int64]) -> Batch:
        columns = (self.user[rows], self.product[rows], self.advertiser[rows], self.ts[rows], self.weight[rows])
        return Batch(*columns, as_of=int(self.block_start[rows].min(initial=np.iinfo(np.int64).max)))

    def _shuffle(self, epoch: int, size: int) -> NDArray[np.int64]:
        """Batches hold edges of one week (or two neighbouring ones) at random; the batches come at random."""
        rng = np.random.default_rng(derive_seed(self.seed, "edges", epoch))
        shuffled = rng.permutation(len(self))
        if self.rows == "users":
            return rng.permutation(shuffled[np.unique(self.user[shuffled], return_index=True)[1]])
        grouped = shuffled[np.argsort(self.block_start[shuffled], kind="stable")]
        if len(self) < size:
            return grouped
        offset = int(rng.integers(len(self) % size + 1))
        count = len(self) // size
        return grouped[offset : offset + count * size].reshape(count, size)[rng.permutation(count)].reshape(-1)


def owners(store: GraphStore, products: NDArray[np.int64]) -> NDArray[np.int64]:
    """The advertiser that owns each product first, int64 (B,); -1 where none does."""
    csr = store.csr(OWNED_BY)
    if not csr.num_edges:
        return np.full(len(products), -1, np.int64)
    first, last = csr.rowptr[products], csr.rowptr[products + 1]
    owner = csr.col[np.minimum(first, csr.num_edges - 1)].astype(np.int64)
    return np.where(last > first, owner, -1)


def _edges(store: GraphStore, name: str, code: int, weight: float, end: int) -> tuple[NDArray, ...]:
    csr = store.csr(Relation("user", name, "product"))
    user = np.repeat(np.arange(len(csr.rowptr) - 1), np.diff(csr.rowptr))
    seen = csr.visible_from <= end
    count = int(seen.sum())
    return (
        user[seen],
        csr.col[seen].astype(np.int64),
        csr.times[seen],
        np.full(count, code, np.int64),
        np.full(count, weight, np.float32),
    )
