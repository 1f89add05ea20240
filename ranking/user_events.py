"""Histories as batches for the user model: each event's hashed ids, kind, time gap and the interests of its product.

A product's interests are those of its token row as of the event's time. Tokens exist from t0 on, so an event before t0
takes the row of t0. That row was made from what was known at t0, and the model that reads it is used from t0 on only,
so it knows nothing that its reader may not know. Which primitives have a row in the model's table is settled by the
tokens of t0 as well: tokens that appear later can neither move a row nor reach an untrained one.

Letters: U users, N events of a batch end to end, n token slots in use, C candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.artifacts import ArtifactRef
from data.context import RunContext
from data.timegrid import TOKENS
from ranking.asof import AsOf, Ints, at_rows
from ranking.batch import NUM_GAPS, age_buckets, as_long, hash_buckets
from ranking.hashing import stable_hash
from ranking.histories import encode_ids, read_vocabularies
from ranking.tokens_asof import TokenRows, read_tokens

SAME_MOMENT, FIRST = NUM_GAPS, NUM_GAPS + 1
"""Gap rows beyond the octaves of days: at the time of the event before, and no event before."""

NUM_USER_GAPS = NUM_GAPS + 2


@dataclass(frozen=True)
class Slots:
    """Interests of n_rows things, end to end: rows of the primitive table (n,) and their shares (n,) float32.

    Shares of a level sum to 1; `offsets` int64 (n_rows + 1,).
    """

    primitive: Tensor
    share: Tensor
    offsets: Tensor


@dataclass(frozen=True)
class Items:
    """Things that can be engaged with: rows of the hashed tables (n,), 0 = none, and their interests."""

    product: Tensor
    advertiser: Tensor
    slots: Slots


@dataclass(frozen=True)
class EventBatch:
    """Histories of U users; every tensor but `offsets` (U + 1,) is (N,), oldest event first within a user.

    `ts` [us] and `visible` [us] are when an event happened and from when it may be read. `number` is the product's
    internal id, -1 = none: targets are found by it, the model never sees it.
    """

    offsets: Tensor
    items: Items
    kind: Tensor
    gap: Tensor
    ts: Tensor
    visible: Tensor
    number: Tensor


@dataclass(frozen=True)
class UserEvents:
    """Open histories and tokens. `index` finds the events of a user visible at a time; arrays stay memory-mapped.

    `dates` [us] are all at which tokens were made, `table_row` leads from a primitive of their vocabulary to its row in
    the model's table, and `levels` are the (start, stop) rows of each level.
    """

    index: AsOf
    columns: Mapping[str, NDArray]
    product: Ints
    advertiser: Ints
    owner: Ints
    tokens: TokenRows
    table_row: Ints
    levels: tuple[tuple[int, int], ...]
    dates: tuple[int, ...]
    t0: int

    @classmethod
    def open(
        cls,
        inputs: Mapping[str, ArtifactRef],
        product_buckets: int,
        advertiser_buckets: int,
        t0: int,
        ctx: RunContext,
    ) -> UserEvents:
        """Read `histories` and `tokens`. Memory: about 40 bytes per token row; histories stay on disk."""
        histories = inputs["histories"]
        products = histories.table("products.parquet", ["advertiser_id"])
        vocabularies = read_vocabularies(histories)
        tokens = read_tokens(inputs["tokens"], vocabularies, ctx)
        table_row, levels = _primitives_at(tokens, t0)
        offsets, names = histories.array("offsets.npy"), ("product", "advertiser", "event_type", "ts", "visible_from")
        columns = {name: histories.array(f"{name}.npy") for name in names}
        return cls(
            index=AsOf(np.arange(len(offsets) - 1), offsets, columns["visible_from"]),
            columns=columns,
            product=hash_buckets(stable_hash(vocabularies["product"]), product_buckets),
            advertiser=hash_buckets(stable_hash(vocabularies["advertiser"]), advertiser_buckets),
            owner=encode_ids(products["advertiser_id"], vocabularies["advertiser"]),
            tokens=tokens,
            table_row=table_row,
            levels=levels,
            dates=_dates(inputs["tokens"]),
            t0=t0,
        )

    @property
    def num_primitives(self) -> int:
        """Primitives with a row in the table; row 0 stands for none."""
        return self.levels[-1][1] - 1 if self.levels else 0

    def visible(self, time: int) -> tuple[Ints, Ints]:
        """(start, end), each (users,): the events of each user that were visible at `time` [us]."""
        users = self.index.keys
        return self.index.spans(users, np.full(len(users), time, np.int64))

    def batch(self, start: Ints, end: Ints) -> EventBatch:
        """The events start[i]:end[i] (U,) of each user; the first of a window has no gap, as if it were the first."""
        lengths = end - start
        places = np.repeat(end - np.cumsum(lengths), lengths) + np.arange(lengths.sum())
        event = {name: np.asarray(column[places]) for name, column in self.columns.items()}
        first = np.zeros(len(places), bool)
        first[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
        named = event["advertiser"].astype(np.int64)
        owner = at_rows(self.owner, event["product"], absent=-1)
        return EventBatch(
            offsets=as_long(np.concatenate([[0], np.cumsum(lengths)])),
            items=self._items(event["product"], np.where(named >= 0, named, owner), event["ts"]),
            kind=as_long(event["event_type"]),
            gap=as_long(_gaps(event["ts"], first)),
            ts=as_long(event["ts"]),
            visible=as_long(event["visible_from"]),
            number=as_long(event["product"]),
        )

    def candidates(self, products: Ints) -> Items:
        """Products (C,) by internal id as they were known at t0."""
        return self._items(products, self.owner[products], np.full(len(products), self.t0, np.int64))

    def _items(self, product: NDArray, advertiser: NDArray, ts: Ints) -> Items:
        return Items(
            product=as_long(at_rows(self.product, product)),
            advertiser=as_long(at_rows(self.advertiser, advertiser)),
            slots=self._slots(product.astype(np.int64), np.maximum(ts, self.t0)),
        )

    def _slots(self, product: Ints, times: Ints) -> Slots:
        """Only slots in use are kept, so that no bit depends on how wide the token rows of another day are."""
        found = np.where(product >= 0, self.tokens.find("product", product, times), -1)
        there = np.flatnonzero(found >= 0)
        primitive = np.zeros((len(product), self.tokens.primitive.shape[1]), np.int64)
        weight = np.zeros(primitive.shape, np.float32)
        slots = self.tokens.primitive[found[there]]
        primitive[there] = np.where(slots >= 0, self.table_row[slots], 0)
        weight[there] = np.where(primitive[there] > 0, self.tokens.weight[found[there]], 0)
        for start, stop in self.tokens.levels.values():
            total = weight[:, start:stop].sum(axis=1, keepdims=True, dtype=np.float64)
            weight[:, start:stop] /= np.where(total > 0, total, 1)
        used = weight > 0
        offsets = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        return Slots(as_long(primitive[used]), torch.from_numpy(weight[used]), as_long(offsets))


def _dates(tokens: ArtifactRef) -> tuple[int, ...]:
    found = {date for batch in tokens.batches(TOKENS, ["as_of"]) for date in batch["as_of"].unique().to_pylist()}
    return tuple(sorted(found))


def _primitives_at(tokens: TokenRows, t0: int) -> tuple[Ints, tuple[tuple[int, int], ...]]:
    """Table row of each primitive of the vocabulary (0: not among the tokens of t0), and the rows of each level."""
    known = np.unique(tokens.primitive[tokens.as_of <= t0])
    known = known[known >= 0]
    row = np.zeros(len(tokens.vocabulary) + 1, np.int64)
    row[known] = np.arange(1, len(known) + 1)
    level = tokens.vocabulary["level"].to_numpy()[known]
    edges = [(1 + int(np.argmax(level == one)), 1 + int((level <= one).sum())) for one in np.unique(level)]
    return row, tuple(edges)


def _gaps(ts: Ints, first: NDArray[np.bool_]) -> Ints:
    since = np.diff(ts, prepend=ts[:1])
    return np.where(first, FIRST, np.where(since <= 0, SAME_MOMENT, age_buckets(since)))
