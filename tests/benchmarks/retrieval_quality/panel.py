"""Complete Journey as a retrieval set: purchases with their times, when each product was first named, and its words.

It comes from a graph artifact and the events artifact beside it, or from a folder that such a pair was written to, for
machines without them:

    python -m tests.benchmarks.retrieval_quality.panel STORE/graph/KEY OUT
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse

from data.artifacts import ArtifactRef
from data.errors import BadDataError
from data.schema import MICROS_PER_DAY
from graph.store import GraphStore, Relation, index_in
from hierarchy.purchases import History
from tests.benchmarks.retrieval_quality.content import content_of

_WORDS = ("product_id", "advertiser_id", "title", "description", "category", "attributes")
_NEVER = np.iinfo(np.int64).max
_ARRAYS, _ITEMS = "purchases.npz", "items.parquet"


@dataclass(frozen=True)
class Panel:
    """n purchases, in order of user: user and product int64 (n,), ts and visible int64 [us] (n,).

    named and known int64 [us] (products,): from when any event names a product, be it an impression, and from when the
    catalogue lists it. items: a row of the catalogue for each product, or None.
    """

    user: NDArray[np.int64]
    product: NDArray[np.int64]
    ts: NDArray[np.int64]
    visible: NDArray[np.int64]
    named: NDArray[np.int64]
    known: NDArray[np.int64]
    num_users: int
    items: pa.Table | None

    @cached_property
    def content(self) -> NDArray[np.float32] | None:
        """Content vectors of the products; None without words."""
        return None if self.items is None else content_of(self.items)

    def history(self, as_of: int) -> History:
        """What was bought, as it is known at `as_of` [us]."""
        seen = self.visible <= as_of
        age = (as_of - self.ts[seen]) / MICROS_PER_DAY
        return History(self.user[seen], self.product[seen], age, self.num_users, len(self.known))

    def bought(self, start: int, end: int) -> sparse.csr_array:
        """True where a user bought a product in [start, end) [us], (users, products)."""
        within = (self.ts >= start) & (self.ts < end)
        shape = self.num_users, len(self.known)
        ones = np.ones(int(within.sum()), np.int32)
        return sparse.csr_array(
            sparse.csr_array((ones, (self.user[within], self.product[within])), shape=shape).astype(bool)
        )


def read(place: Path) -> Panel:
    """The panel of a graph artifact, or of a folder made by `write`. Raises BadDataError for a folder of neither."""
    if (place / _ARRAYS).exists():
        with np.load(place / _ARRAYS) as held:
            arrays = {name: held[name] for name in held.files}
        items = pq.read_table(place / _ITEMS) if (place / _ITEMS).exists() else None
        return Panel(**arrays | {"num_users": int(arrays["num_users"]), "items": items})
    if not (place / "manifest.json").exists():
        raise BadDataError(f"expected a graph artifact or a folder with {_ARRAYS}, got {place}: give one to --graph")
    return _of_graph(ArtifactRef(place.parent.name, place.name, place))


def write(panel: Panel, folder: Path) -> None:
    """Write a panel for machines that have no store."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: getattr(panel, name) for name in ("user", "product", "ts", "visible", "named", "known")}
    np.savez_compressed(folder / _ARRAYS, **arrays, num_users=np.array(panel.num_users))
    if panel.items is not None:
        pq.write_table(panel.items, folder / _ITEMS)


def _of_graph(ref: ArtifactRef) -> Panel:
    store = GraphStore.open(ref)
    bought = store.csr(Relation("user", "purchase", "product"))
    named = np.full(store.num_nodes["product"], _NEVER)
    for relation in store.relations:
        if relation.src == "user" and relation.dst == "product":
            events = store.csr(relation)
            np.minimum.at(named, np.asarray(events.col), np.asarray(events.visible_from))
    return Panel(
        user=np.repeat(np.arange(len(bought.rowptr) - 1), np.diff(bought.rowptr)),
        product=np.asarray(bought.col, np.int64),
        ts=np.asarray(bought.times),
        visible=np.asarray(bought.visible_from),
        named=named,
        known=np.asarray(store.known_at("product")),
        num_users=store.num_nodes["user"],
        items=_items(ref, store.entity_ids("product")),
    )


def _items(graph: ArtifactRef, names: pa.Array) -> pa.Table | None:
    """What the events artifact that the graph was made of says of its products; None where it is gone."""
    key = graph.manifest["inputs"].get("events", "")
    path = graph.path.parents[1] / "events" / key
    if not key or not path.exists():
        return None
    products = ArtifactRef("events", key, path).table("products.parquet", list(_WORDS))
    place = index_in(products["product_id"].combine_chunks(), names)
    return products.take(pa.array(place))


if __name__ == "__main__":
    write(read(Path(sys.argv[1])), Path(sys.argv[2]))
