"""What the catalogue tables say about the graph: the nodes they name and the timeless links between them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.categories import category_ids
from graph.csr import EdgeList
from graph.ids import Mention, first_mention, mentions
from graph.store import CHILD_OF, IN_CATEGORY, NODE_TYPES, OF_ADVERTISER, OWNED_BY, Relation, index_in

_TABLES = {
    "user": ["user_id", "known_at"],
    "product": ["product_id", "advertiser_id", "category", "known_at"],
    "advertiser": ["advertiser_id", "known_at"],
    "campaign": ["campaign_id", "advertiser_id", "known_at"],
}


class Catalogue:
    """The catalogue tables of an `events` artifact, read once.

    `mentions` holds, by node type, the ids that they name, with the time of each naming row (schema NODES; ids repeat).
    """

    def __init__(self, events: ArtifactRef) -> None:
        self._tables = {kind: events.table(f"{kind}s.parquet", columns) for kind, columns in _TABLES.items()}
        self._paths = _Paths.of(self._tables["product"])
        found: dict[str, list[Mention]] = {kind: [] for kind in NODE_TYPES}
        for kind, table in self._tables.items():
            known = table["known_at"].to_numpy()
            found[kind].append((table[f"{kind}_id"], known))
            if kind in ("product", "campaign"):
                found["advertiser"].append((table["advertiser_id"], known))
        ids, _, known = self._paths.categories()
        found["category"].append((ids, known))
        self.mentions = {kind: mentions(parts) for kind, parts in found.items()}

    def known_after(self, moment: int, kind: str) -> pa.Table:
        """The mentions of a type that are known later than `moment` [us] (schema NODES)."""
        table = self.mentions[kind]
        return table.filter(pa.array(table["known_at"].to_numpy() > moment))

    def digest(self, after: int, upto: int) -> str:
        """sha256 of the mentions known later than `after` and no later than `upto` [us], in their order."""
        digest = hashlib.sha256()
        for kind, table in self.mentions.items():
            known = table["known_at"].to_numpy()
            part = table.filter(pa.array((known > after) & (known <= upto)))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema) as stream:
                stream.write_table(part.combine_chunks())
            digest.update(kind.encode())
            digest.update(sink.getvalue())
        return digest.hexdigest()

    def edges(self, ids: Mapping[str, pa.Array]) -> dict[Relation, EdgeList]:
        """Ownership, leaf categories, category tree and campaign owners; time = visible_from = known_at of the source
        row.

        `ids` holds the external ids of each node type in internal order.
        """
        products, campaigns = self._tables["product"], self._tables["campaign"]
        children, parents, known = self._paths.categories()
        tree = first_mention(children, known)
        above = dict(zip(children.to_pylist(), parents.to_pylist(), strict=True))
        parent = pa.array([above[child] for child in tree["entity_id"].to_pylist()], pa.string())
        product = index_in(products["product_id"], ids["product"])
        campaign = index_in(campaigns["campaign_id"], ids["campaign"])
        child = index_in(tree["entity_id"], ids["category"])
        return {
            OWNED_BY: _link(product, index_in(products["advertiser_id"], ids["advertiser"]), products["known_at"]),
            IN_CATEGORY: _link(product, index_in(self._paths.leaves(), ids["category"]), products["known_at"]),
            CHILD_OF: _link(child, index_in(parent, ids["category"]), tree["known_at"]),
            OF_ADVERTISER: _link(
                campaign, index_in(campaigns["advertiser_id"], ids["advertiser"]), campaigns["known_at"]
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


def _link(src: NDArray[np.int64], dst: NDArray[np.int64], known: pa.ChunkedArray) -> EdgeList:
    """Edges of the rows that name both ends."""
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
