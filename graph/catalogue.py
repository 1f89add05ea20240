"""What the catalogue tables say about the graph: the nodes they name and the timeless links between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.categories import category_ids
from graph.csr import EdgeList
from graph.ids import Mention, first_mention
from graph.store import CHILD_OF, IN_CATEGORY, NODE_TYPES, OF_ADVERTISER, OWNED_BY, Relation, index_in

_PRODUCT_COLUMNS = ["product_id", "advertiser_id", "category", "known_at"]


def catalogue_mentions(events: ArtifactRef) -> dict[str, list[Mention]]:
    """By node type, the ids each catalogue table of the `events` artifact names, with the time of the naming row."""
    found: dict[str, list[Mention]] = {kind: [] for kind in NODE_TYPES}
    for kind in ("user", "product", "advertiser", "campaign"):
        table = events.table(f"{kind}s.parquet", [f"{kind}_id", "known_at"])
        found[kind].append((table[f"{kind}_id"], table["known_at"].to_numpy()))
    for name in ("products", "campaigns"):
        table = events.table(f"{name}.parquet", ["advertiser_id", "known_at"])
        found["advertiser"].append((table["advertiser_id"], table["known_at"].to_numpy()))
    ids, _, known = _Paths.of(events.table("products.parquet", _PRODUCT_COLUMNS)).categories()
    found["category"].append((ids, known))
    return found


def catalogue_edges(events: ArtifactRef, ids: Mapping[str, pa.Array]) -> dict[Relation, EdgeList]:
    """Ownership, leaf categories, category tree and campaign owners; time = visible_from = known_at of the source row.

    `ids` holds the external ids of each node type in internal order.
    """
    products = events.table("products.parquet", _PRODUCT_COLUMNS)
    campaigns = events.table("campaigns.parquet", ["campaign_id", "advertiser_id", "known_at"])
    paths = _Paths.of(products)
    children, parents, known = paths.categories()
    tree = first_mention(children, known)
    above = dict(zip(children.to_pylist(), parents.to_pylist(), strict=True))
    parent = pa.array([above[child] for child in tree["entity_id"].to_pylist()], pa.string())
    return {
        OWNED_BY: _link(OWNED_BY, products["product_id"], products["advertiser_id"], products["known_at"], ids),
        IN_CATEGORY: _link(IN_CATEGORY, products["product_id"], paths.leaves(), products["known_at"], ids),
        CHILD_OF: _link(CHILD_OF, tree["entity_id"], parent, tree["known_at"], ids),
        OF_ADVERTISER: _link(
            OF_ADVERTISER, campaigns["campaign_id"], campaigns["advertiser_id"], campaigns["known_at"], ids
        ),
    }


@dataclass(frozen=True)
class _Paths:
    """The distinct category paths of the products as ids, which path is each product's, and when each was first known:
    many products share a path, so that only few are looked at as text."""

    ids: list[list[str]]
    which: NDArray[np.int64]
    known: NDArray[np.int64]

    @classmethod
    def of(cls, products: pa.Table) -> _Paths:
        """Time O(n) in the products; memory 4 bytes for each of n times the longest path."""
        column, known = products["category"].combine_chunks(), products["known_at"].to_numpy()
        if not len(column):
            return cls([], np.zeros(0, np.int64), known)
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        names = pc.fill_null(column.flatten().dictionary_encode().indices, -1).to_numpy()
        rows = np.full((len(column), int(lengths.max())), -2, np.int32)
        rows[np.arange(rows.shape[1]) < lengths[:, None]] = names
        which = _distinct(rows)
        first = np.zeros(int(which.max()) + 1, np.int64)
        first[which[::-1]] = np.arange(len(which))[::-1]  # of several values for one place the last one stays
        earliest = np.full(len(first), np.iinfo(np.int64).max)
        np.minimum.at(earliest, which, known)
        return cls([category_ids(path) for path in column.take(pa.array(first)).to_pylist()], which, earliest)

    def leaves(self) -> pa.Array:
        """Leaf category of each product, string (n,), null for none."""
        return pa.array([next(reversed(ids), None) for ids in self.ids], pa.string()).take(pa.array(self.which))

    def categories(self) -> tuple[pa.Array, pa.Array, NDArray[np.int64]]:
        """Every category of every path, its parent (null at the top), and when the path was first known [us]."""
        children = [name for ids in self.ids for name in ids]
        parents = [above for ids in self.ids for above in [None, *ids[:-1]][: len(ids)]]
        known = np.repeat(self.known, [len(ids) for ids in self.ids])
        return pa.array(children, pa.string()), pa.array(parents, pa.string()), known


def _link(
    relation: Relation, sources: pa.ChunkedArray, targets: pa.Array, known: pa.ChunkedArray, ids: Mapping[str, pa.Array]
) -> EdgeList:
    src, dst = index_in(sources, ids[relation.src]), index_in(targets, ids[relation.dst])
    rows = np.flatnonzero((src >= 0) & (dst >= 0))
    time = known.to_numpy()[rows]
    return EdgeList(src[rows], dst[rows], time, time, np.ones(len(rows), np.float32))


def _distinct(rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """A number from 0 on for each row of `rows` (n, depth), equal for equal rows: hashed column by column, so
    that whole rows need not be sorted."""
    number, width = np.zeros(len(rows), np.int64), int(rows.max(initial=0)) + 3
    for column in rows.T:
        number = pa.array(number * width + column + 2).dictionary_encode().indices.to_numpy().astype(np.int64)
    return number
