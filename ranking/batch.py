"""Examples rows to tensors. What rows share is stored once: the visit's history, and each product's content.

Letters: B rows, V visits (user at a time), I distinct products, S token slots, C category depth, F stepped numbers,
k states of a user of width d.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.schema import EVENT_TYPES, MICROS_PER_DAY
from kernels.jagged import Jagged
from ranking.asof import at_rows
from ranking.hashing import mix64
from ranking.interest_history import InterestHistory
from ranking.numbers import crossed_steps
from ranking.reader import Examples

NUM_GAPS = 12
"""Buckets of the age of a history event: up to half a day, up to a day, and so on in powers of two."""

NUM_EVENT_TYPES = len(EVENT_TYPES)


@dataclass(frozen=True)
class Buckets:
    """Rows of each hashed embedding table; row 0 stands for an absent id."""

    user: int
    product: int
    advertiser: int
    category: int
    surface: int = 256


@dataclass(frozen=True)
class JaggedBatch:
    """One batch; integer tensors are int64 rows of embedding tables, 0 = absent."""

    visit: Tensor  # (B,) row of the visit
    candidate: Tensor  # (B,) row of the product among the distinct products
    surface: Tensor  # (B,)
    hour: Tensor  # (B,)
    weekday: Tensor  # (B,)
    numbers: Tensor  # (B, F) steps of counts, ages and their crosses
    interest_numbers: Tensor  # (B, 5 L) the same of the user and the candidate's interest at each level
    product_slots: Tensor  # (B, S) primitive + 1
    product_weight: Tensor  # (B, S) float32
    advertiser_slots: Tensor  # (B, S)
    advertiser_weight: Tensor  # (B, S)
    user: Tensor  # (V,)
    user_slots: Tensor  # (V, S)
    user_weight: Tensor  # (V, S)
    user_states: Tensor  # (V, k, d) float32, zeros where there is none
    has_states: Tensor  # (V,) bool
    history: Jagged  # values (total,): row of each event's product among the distinct products; V rows
    history_type: Tensor  # (total,)
    history_gap: Tensor  # (total,) bucket of the event's age
    item_product: Tensor  # (I,)
    item_advertiser: Tensor  # (I,)
    item_category: Tensor  # (I, C)
    item_content: Tensor  # (I, D) float32
    label: Tensor  # (B,) float32


@dataclass(frozen=True)
class Bags:
    """Where a model's interest tokens come from: per entity type, slots int32 (g, S) and weights (g, S).

    `column[type]` is the examples column that points into them; `of_product` (products,) is the row that stands for a
    product among a user's past events, -1 where it has no tokens.
    """

    slots: dict[str, NDArray[np.int32]]
    weight: dict[str, NDArray[np.float32]]
    column: dict[str, str]
    of_product: NDArray[np.int64]


def learned_bags(examples: Examples) -> Bags:
    """The interest tokens of the vocabulary, as of each row."""
    kinds = ("user", "product", "advertiser")
    return Bags(
        slots=dict.fromkeys(kinds, examples.primitive),
        weight=dict.fromkeys(kinds, examples.weight),
        column={kind: f"{kind}_tokens" for kind in kinds},
        of_product=examples.first_tokens.astype(np.int64),
    )


def hashed_bags(examples: Examples) -> Bags:
    """The control: as many tokens of the same tables, drawn by hash of the entity's id, with uniform weights."""
    kinds = ("user", "product", "advertiser")
    slots = {kind: _hash_slots(examples, examples.hashes[kind]) for kind in kinds}
    weight = np.zeros(sum(level.stop - level.start for level in examples.levels), np.float32)
    for level in examples.levels:
        weight[level.start : level.stop] = 1.0 / (level.stop - level.start)
    return Bags(
        slots=slots,
        weight={kind: np.broadcast_to(weight, slots[kind].shape) for kind in kinds},
        column={kind: kind for kind in kinds},
        of_product=np.where(examples.first_tokens >= 0, np.arange(len(examples.first_tokens)), -1),
    )


def _hash_slots(examples: Examples, ids: NDArray[np.uint64]) -> NDArray[np.int32]:
    slots = np.full((len(ids), sum(level.stop - level.start for level in examples.levels)), -1, np.int32)
    base = 0
    for level in examples.levels:
        for slot in range(level.start, level.stop):
            slots[:, slot] = base + (mix64(ids + np.uint64(slot)) % np.uint64(level.size)).astype(np.int32)
        base += level.size
    return slots


class Batcher:
    """Builds batches of one examples artifact for one kind of interest tokens; `history_len` events per visit.

    Without `user_states` every visit counts as one of a user who has none.
    """

    def __init__(
        self, examples: Examples, bags: Bags, buckets: Buckets, history_len: int, user_states: bool = True
    ) -> None:
        self.examples, self.bags, self.history_len, self.with_states = examples, bags, history_len, user_states
        hashes = examples.hashes
        self.interests = InterestHistory.build(examples, bags.slots["product"], bags.of_product)
        self._user = hash_buckets(hashes["user"], buckets.user)
        self._product = hash_buckets(hashes["product"], buckets.product)
        self._advertiser = hash_buckets(hashes["advertiser"], buckets.advertiser)
        self._surface = hash_buckets(hashes["surface"], buckets.surface)
        self._category = np.where(hashes["category"] == 0, 0, hash_buckets(hashes["category"], buckets.category))

    def order(self, rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """`rows` shuffled by visit: a function of (seed, user id, time), never of positions."""
        columns = self.examples.columns
        user = np.asarray(columns["user"][rows])
        visit = self.examples.hashes["user"][user] ^ mix64(columns["ts"][rows].astype(np.uint64) + np.uint64(seed))
        return rows[np.lexsort((rows, mix64(visit)))]

    def on(self, columns: Mapping[str, NDArray]) -> Batcher:
        """The same batcher over other rows: `columns` of `reader.COLUMNS`, (n,), that point into the same arrays."""
        other = copy.copy(self)
        other.examples = replace(self.examples, columns=dict(columns))
        return other

    def batch(self, rows: NDArray[np.int64]) -> JaggedBatch:
        """The batch of the given rows, in their order."""
        row = {name: np.asarray(column[rows]) for name, column in self.examples.columns.items()}
        first, visit = _visits(row["user"], row["ts"])
        places, lengths = _last(row["history_start"][first], row["history_end"][first], self.history_len)
        history = {name: np.asarray(column[places]) for name, column in self.examples.history.items()}
        items, item = np.unique(np.concatenate([row["product"], history["product"]]), return_inverse=True)
        age = np.repeat(row["ts"][first], lengths) - history["ts"]
        owner = np.where(items >= 0, self.examples.owner[items], -1)
        content = np.where(items[:, None] >= 0, self.examples.content[items], 0).astype(np.float32)
        slots, weight = {}, {}
        for kind in ("user", "product", "advertiser"):
            pointer = row[self.bags.column[kind]]
            slots[kind], weight[kind] = self._slots(kind, pointer[first] if kind == "user" else pointer)
        states, has_states = self._states(row["user_states"][first])
        return JaggedBatch(
            visit=as_long(visit),
            candidate=as_long(item[: len(rows)]),
            surface=as_long(at_rows(self._surface, row["surface"])),
            hour=as_long(row["hour"]),
            weekday=as_long(row["weekday"]),
            numbers=as_long(crossed_steps(row)),
            interest_numbers=as_long(self.interests.steps(row, row[self.bags.column["product"]].astype(np.int64))),
            product_slots=slots["product"],
            product_weight=weight["product"],
            advertiser_slots=slots["advertiser"],
            advertiser_weight=weight["advertiser"],
            user=as_long(at_rows(self._user, row["user"][first])),
            user_slots=slots["user"],
            user_weight=weight["user"],
            user_states=states,
            has_states=has_states,
            history=Jagged.from_lengths(as_long(item[len(rows) :]), as_long(lengths), self.history_len),
            history_type=as_long(history["event_type"]),
            history_gap=as_long(age_buckets(age)),
            item_product=as_long(at_rows(self._product, items)),
            item_advertiser=as_long(at_rows(self._advertiser, owner)),
            item_category=as_long(np.where(items[:, None] >= 0, self._category[items], 0)),
            item_content=torch.from_numpy(content),
            label=torch.from_numpy(row["label"].astype(np.float32)),
        )

    def _slots(self, kind: str, pointer: NDArray) -> tuple[Tensor, Tensor]:
        there = (pointer >= 0)[:, None]
        slots = np.where(there, self.bags.slots[kind][pointer], -1)
        weight = np.where(there, self.bags.weight[kind][pointer], 0).astype(np.float32)
        return as_long(slots + 1), torch.from_numpy(weight)

    def _states(self, pointer: NDArray) -> tuple[Tensor, Tensor]:
        there = (pointer >= 0) & self.with_states
        states = np.zeros((len(pointer), *self.examples.user_states.shape[1:]), np.float32)
        states[there] = self.examples.user_states[pointer[there]]
        return torch.from_numpy(states), torch.from_numpy(there)


def hash_buckets(hashes: NDArray[np.uint64], size: int) -> NDArray[np.int64]:
    """Rows 1 to size - 1 of a hashed table, of the shape of `hashes`; row 0 is left for an absent id."""
    return (hashes % np.uint64(size - 1)).astype(np.int64) + 1


def as_long(values: NDArray) -> Tensor:
    """An int64 tensor of the same shape."""
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64))


def _visits(user: NDArray, ts: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First row of each distinct (user, ts), and the visit of each row."""
    order = np.lexsort((ts, user))
    changed = np.ones(len(order), bool)
    changed[1:] = (np.diff(user[order]) != 0) | (np.diff(ts[order]) != 0)
    visit = np.empty(len(order), np.int64)
    visit[order] = np.cumsum(changed) - 1
    return order[changed], visit


def _last(start: NDArray, end: NDArray, limit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the last `limit` entries of each start:end, end to end, and how many each has."""
    lengths = np.minimum(end - start, limit)
    places = np.repeat(end - np.cumsum(lengths), lengths) + np.arange(lengths.sum())
    return places, lengths


def age_buckets(age: NDArray) -> NDArray[np.int64]:
    """Bucket in [0, NUM_GAPS) of each age [us]."""
    days = np.maximum(age, 1) / MICROS_PER_DAY
    octave: NDArray[np.int64] = np.ceil(np.log2(days)).astype(np.int64)
    return np.clip(octave + 1, 0, NUM_GAPS - 1)
