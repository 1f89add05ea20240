"""What the catalogue tables say about the graph: the nodes they name and the timeless links between them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
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
    ids, _, known = _categories(events.table("products.parquet", _PRODUCT_COLUMNS))
    found["category"].append((ids, known))
    return found


def catalogue_edges(events: ArtifactRef, ids: Mapping[str, pa.Array]) -> dict[Relation, EdgeList]:
    """Ownership, leaf categories, category tree and campaign owners; time = visible_from = known_at of the source row.

    `ids` holds the external ids of each node type in internal order.
    """
    products = events.table("products.parquet", _PRODUCT_COLUMNS)
    campaigns = events.table("campaigns.parquet", ["campaign_id", "advertiser_id", "known_at"])
    leaves = [next(reversed(category_ids(path)), None) for path in products["category"].to_pylist()]
    children, parents, known = _categories(products)
    tree = first_mention(children, known)
    above = dict(zip(children.to_pylist(), parents.to_pylist(), strict=True))
    parent = pa.array([above[child] for child in tree["entity_id"].to_pylist()], pa.string())
    return {
        OWNED_BY: _link(OWNED_BY, products["product_id"], products["advertiser_id"], products["known_at"], ids),
        IN_CATEGORY: _link(
            IN_CATEGORY, products["product_id"], pa.array(leaves, pa.string()), products["known_at"], ids
        ),
        CHILD_OF: _link(CHILD_OF, tree["entity_id"], parent, tree["known_at"], ids),
        OF_ADVERTISER: _link(
            OF_ADVERTISER, campaigns["campaign_id"], campaigns["advertiser_id"], campaigns["known_at"], ids
        ),
    }


def _categories(products: pa.Table) -> tuple[pa.Array, pa.Array, NDArray[np.int64]]:
    """Every category id on every product's path, its parent (null at the top) and the product's known_at [us]."""
    children: list[str] = []
    parents: list[str | None] = []
    depths: list[int] = []
    for path in products["category"].to_pylist():
        names = category_ids(path)
        children += names
        parents += [None, *names[:-1]] if names else []
        depths.append(len(names))
    known = np.repeat(products["known_at"].to_numpy(), depths)
    return pa.array(children, pa.string()), pa.array(parents, pa.string()), known


def _link(
    relation: Relation, sources: pa.ChunkedArray, targets: pa.Array, known: pa.ChunkedArray, ids: Mapping[str, pa.Array]
) -> EdgeList:
    src, dst = index_in(sources, ids[relation.src]), index_in(targets, ids[relation.dst])
    rows = np.flatnonzero((src >= 0) & (dst >= 0))
    time = known.to_numpy()[rows]
    return EdgeList(src[rows], dst[rows], time, time, np.ones(len(rows), np.float32))
