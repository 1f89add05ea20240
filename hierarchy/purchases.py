"""What users bought by a date, and what they bought after it: the ground on which retrieval methods are compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from data.schema import MICROS_PER_DAY
from graph.store import Csr, GraphStore, Relation


@dataclass(frozen=True)
class History:
    """n events visible at a date, by internal id: user and product int64 (n,), age float64 (n,) [days].

    An event counts `weight` float32 (n,) times; None is once each. Where only an order is known, ages are positions
    from the newest; where nothing is known they are all equal.
    """

    user: NDArray[np.int64]
    product: NDArray[np.int64]
    age: NDArray[np.float64]
    num_users: int
    num_products: int
    weight: NDArray[np.float32] | None = None

    def counts(self) -> NDArray[np.float32]:
        """How much each event counts (n,)."""
        return np.ones(len(self.user), np.float32) if self.weight is None else self.weight

    def matrix(self, half_life: float | None = None) -> sparse.csr_array:
        """Events by user and product (users, products), each counting 2 ** (-age / half_life); half_life in days."""
        weight = self.counts() if half_life is None else self.counts() * np.exp2(-self.age / half_life)
        return _csr(weight.astype(np.float32), self.user, self.product, (self.num_users, self.num_products))

    def recency(self) -> NDArray[np.int64]:
        """How many later occasions the user of each event has (n,): 0 for the newest; equal ages are one occasion."""
        order = np.lexsort((self.age, self.user))
        user, age = self.user[order], self.age[order]
        first = np.append(True, user[1:] != user[:-1])[: len(user)]
        later = np.append(False, age[1:] != age[:-1])[: len(user)] & ~first
        run = np.cumsum(later)
        rank = np.empty(len(user), np.int64)
        rank[order] = run - np.repeat(run[first], np.diff(np.append(np.flatnonzero(first), len(user))))
        return rank

    def profile(self, decay: float) -> sparse.csr_array:
        """Events by user and product (users, products), each counting decay ** recency; one decay for any clock."""
        weight = (self.counts() * decay ** self.recency().astype(np.float64)).astype(np.float32)
        return _csr(weight, self.user, self.product, (self.num_users, self.num_products))

    def occasions(self, window: float) -> sparse.csr_array:
        """1 where a product was bought on an occasion, float32 (occasions, products); `window` in days."""
        when = np.stack([self.user, (self.age // window).astype(np.int64)], axis=1)
        distinct, place = np.unique(when, axis=0, return_inverse=True)
        ones = np.ones(len(self.user), np.float32)
        found = _csr(ones, place.ravel(), self.product, (len(distinct), self.num_products))
        found.data = np.ones_like(found.data)
        return found

    def fallback(self) -> NDArray[np.float32]:
        """Popularity (products,) from 0 to 1e-6: what a method adds so that who has no history gets what sells most."""
        counts = self.popularity()
        return np.asarray(counts * (1e-6 / max(float(counts.max(initial=0)), 1e-12)), np.float32)

    def popularity(self, window: float | None = None) -> NDArray[np.float32]:
        """Events of each product (products,) over the last `window` days."""
        recent = slice(None) if window is None else self.age <= window
        weight = None if self.weight is None else self.weight[recent]
        return np.bincount(self.product[recent], weight, minlength=self.num_products).astype(np.float32)


def history_at(store: GraphStore, event_type: str, as_of: int) -> History:
    """The events of a type that are visible at `as_of` [us]."""
    events, user = _events(store, event_type)
    seen = np.asarray(events.visible_from) <= as_of
    age = (as_of - events.times[seen]) / MICROS_PER_DAY
    sizes = store.num_nodes["user"], store.num_nodes["product"]
    return History(user[seen], events.col[seen].astype(np.int64), age, *sizes)


def bought_between(store: GraphStore, event_type: str, start: int, end: int) -> sparse.csr_array:
    """1 where a user has an event of a type with ts in [start, end) [us] with a product, bool (users, products)."""
    events, user = _events(store, event_type)
    within = (events.times >= start) & (events.times < end)
    sizes = store.num_nodes["user"], store.num_nodes["product"]
    found = _csr(np.ones(int(within.sum()), np.float32), user[within], events.col[within], sizes)
    return sparse.csr_array(found.astype(bool))


def products_with_events(store: GraphStore, as_of: int) -> NDArray[np.bool_]:
    """Products (products,) that any event visible at `as_of` [us] names, be it an impression."""
    named = np.zeros(store.num_nodes["product"], bool)
    for relation in store.relations:
        if relation.src == "user" and relation.dst == "product":
            events = store.csr(relation)
            named[events.col[np.asarray(events.visible_from) <= as_of]] = True
    return named


def _events(store: GraphStore, event_type: str) -> tuple[Csr, NDArray[np.int64]]:
    events = store.csr(Relation("user", event_type, "product"))
    return events, np.repeat(np.arange(store.num_nodes["user"]), np.diff(events.rowptr))


def _csr(
    weight: NDArray[np.float32], user: NDArray[np.int64], product: NDArray[np.int64], shape: tuple[int, int]
) -> sparse.csr_array:
    summed = sparse.csr_array((weight, (user, product)), shape=shape)
    summed.sum_duplicates()
    return summed
