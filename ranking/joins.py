"""What a row of the ranker needs, joined as of its time: one code for training rows and for requests to a service.

A row is (user, product, advertiser, time, surface) in internal ids, -1 for what is absent or unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.context import RunContext
from data.schema import MICROS_PER_DAY
from ranking.asof import AsOf, Ints, at_rows
from ranking.hashing import stable_hash
from ranking.histories import encode_ids, read_vocabularies
from ranking.reader import CATEGORY_DEPTH, MISSING, OK, STALE
from ranking.tokens_asof import TokenRows, read_tokens

Row = dict[str, NDArray]
"""Columns of `reader.COLUMNS` by name, each (n,)."""

_MICROS_PER_HOUR = 3_600_000_000
_EPOCH_WEEKDAY = 3


@dataclass(frozen=True)
class Joins:
    """Every index a row is joined against; built once, then read by batch. Joins older than `stale_days` are stale."""

    vocabularies: dict[str, pa.Array]
    owner: Ints
    product_known: Ints
    has_content: NDArray[np.bool_]
    history: AsOf
    history_ts: Ints
    product_events: AsOf
    pair_events: AsOf
    pair_ts: Ints
    tokens: TokenRows
    states: AsOf
    state_row: Ints
    stale_days: int

    @classmethod
    def open(cls, inputs: Mapping[str, ArtifactRef], stale_days: int, ctx: RunContext) -> Joins:
        """Read histories, features, tokens and user states and index them by entity and time.

        Memory: about 40 bytes for each event of the histories and for each row of the tokens.
        """
        histories = inputs["histories"]
        products = histories.table("products.parquet")
        vocabularies = read_vocabularies(histories)
        offsets, visible = histories.array("offsets.npy"), histories.array("visible_from.npy")
        item, ts = histories.array("product.npy").astype(np.int64), histories.array("ts.npy")
        user = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        with_item = np.flatnonzero(item >= 0)
        product_events, _ = AsOf.build(item[with_item], visible[with_item])
        pair = user[with_item] * len(products) + item[with_item]
        pair_events, pair_order = AsOf.build(pair, visible[with_item])
        made = inputs["user_states"].table("rows.parquet")
        states, state_order = AsOf.build(encode_ids(made["user_id"], vocabularies["user"]), made["as_of"].to_numpy())
        return cls(
            vocabularies=vocabularies,
            owner=encode_ids(products["advertiser_id"], vocabularies["advertiser"]),
            product_known=products["known_at"].to_numpy(),
            has_content=content_rows(inputs["features"], vocabularies["product"])[1],
            history=AsOf(np.arange(len(offsets) - 1), offsets, visible),
            history_ts=ts,
            product_events=product_events,
            pair_events=pair_events,
            pair_ts=ts[with_item][pair_order],
            tokens=read_tokens(inputs["tokens"], vocabularies, ctx),
            states=states,
            state_row=made["row"].to_numpy()[state_order],
            stale_days=stale_days,
        )

    def rows(self, user: Ints, product: Ints, advertiser: Ints, ts: Ints) -> Row:
        """All joined columns of rows (n,) at times `ts` [us]; each reads only what was visible at its time."""
        return self.user_side(user, ts) | self.candidate_side(user, product, advertiser, ts)

    def user_side(self, user: Ints, ts: Ints) -> Row:
        """What rows of one user at one time share: time of day, history, the user's states and tokens."""
        start, end = self.history.spans(user, ts)
        last_ts = at_rows(self.history_ts, np.where(end > start, end - 1, -1))
        return {
            "user": user,
            "ts": ts,
            "hour": ts // _MICROS_PER_HOUR % 24,
            "weekday": (ts // MICROS_PER_DAY + _EPOCH_WEEKDAY) % 7,
            "history_start": start,
            "history_end": end,
            "visit_age": _days(ts, last_ts),
            "history_status": self._status(end > start, ts, last_ts),
            **self._states(user, ts),
            **self._tokens("user", user, ts),
        }

    def candidate_side(self, user: Ints, product: Ints, advertiser: Ints, ts: Ints) -> Row:
        """What a candidate adds: counts of the product and of the pair, content, tokens.

        Where `advertiser` is -1 the product's owner stands in.
        """
        seller = np.where(advertiser >= 0, advertiser, at_rows(self.owner, product, -1))
        _, product_count = _span_count(self.product_events, product, ts)
        pair = np.where((user >= 0) & (product >= 0), user * len(self.owner) + product, -1)
        pair_end, pair_count = _span_count(self.pair_events, pair, ts)
        pair_last = at_rows(self.pair_ts, np.where(pair_count > 0, pair_end - 1, -1))
        there = (at_rows(self.has_content, product) > 0) & (at_rows(self.product_known, product) <= ts)
        return {
            "product": product,
            "advertiser": seller,
            "product_events": product_count,
            "pair_events": pair_count,
            "pair_age": _days(ts, pair_last),
            "content": np.where(there, product, -1),
            "content_status": np.where(there, OK, MISSING),
            **self._tokens("product", product, ts),
            **self._tokens("advertiser", seller, ts),
        }

    def _states(self, user: Ints, ts: Ints) -> Row:
        found = self.states.latest(user, ts)
        status = self._status(found >= 0, ts, at_rows(self.states.times, found))
        return {"user_states": at_rows(self.state_row, found, -1), "user_states_status": status}

    def _tokens(self, entity_type: str, entity: Ints, ts: Ints) -> Row:
        found = self.tokens.find(entity_type, entity, ts)
        status = self._status(found >= 0, ts, at_rows(self.tokens.as_of, found))
        return {f"{entity_type}_tokens": found, f"{entity_type}_tokens_status": status}

    def _status(self, found: NDArray[np.bool_], ts: Ints, made: Ints) -> NDArray:
        return join_status(found, ts, made, self.stale_days)


def join_status(found: NDArray[np.bool_], ts: Ints, made: Ints, stale_days: int) -> NDArray:
    """OK, MISSING or STALE (n,) of features `made` at times [us] and read at `ts` [us]."""
    old = ts - made > stale_days * MICROS_PER_DAY
    return np.where(found, np.where(old, STALE, OK), MISSING)


def content_rows(features: ArtifactRef, products: pa.Array) -> tuple[Ints, NDArray[np.bool_]]:
    """Row of each product in content_product.npy, and whether any modality of it is present."""
    rows = encode_ids(products, features.table("entities_product.parquet", ["entity_id"])["entity_id"].combine_chunks())
    mask = np.asarray(features.array("mask_product.npy")).any(axis=1).astype(bool)
    return rows, (rows >= 0) & mask[rows]


def fill_content(target: NDArray[np.float32], features: ArtifactRef, products: pa.Array) -> None:
    """Write the content of each product into `target` (products, d), zeros where there is none."""
    content, (rows, there) = features.array("content_product.npy"), content_rows(features, products)
    target[there] = content[rows[there]]


def id_hashes(joins: Joins, histories: ArtifactRef, surfaces: pa.Array) -> dict[str, NDArray[np.uint64]]:
    """Hashes of what models know by id: user, product, advertiser, surface (n,) and category (n, CATEGORY_DEPTH)."""
    hashes = {name: stable_hash(ids) for name, ids in joins.vocabularies.items()}
    paths = histories.table("products.parquet", ["category"])["category"]
    return {**hashes, "surface": stable_hash(surfaces), "category": _category_hashes(paths)}


def _days(ts: Ints, before: Ints) -> NDArray[np.float32]:
    age: NDArray[np.float32] = np.where(before != 0, (ts - before) / MICROS_PER_DAY, -1).astype(np.float32)
    return age


def _span_count(index: AsOf, keys: Ints, ts: Ints) -> tuple[Ints, Ints]:
    start, end = index.spans(keys, ts)
    return end, end - start


def _category_hashes(paths: pa.ChunkedArray) -> NDArray[np.uint64]:
    """uint64 (products, CATEGORY_DEPTH): a hash per prefix of the category path, 0 below its end."""
    hashes = np.zeros((len(paths), CATEGORY_DEPTH), np.uint64)
    listed = [path or [] for path in paths.to_pylist()]
    for depth in range(CATEGORY_DEPTH):
        deep = [row for row, path in enumerate(listed) if len(path) > depth]
        prefixes = pa.array([" > ".join(listed[row][: depth + 1]) for row in deep], pa.string())
        hashes[deep, depth] = stable_hash(prefixes)
    return hashes
