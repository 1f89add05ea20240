"""Labels of impressions: bought on the visit (at once), and bought again within a window (delayed)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ranking.asof import AsOf, Ints
from ranking.histories import encode_ids


@dataclass(frozen=True)
class Purchases:
    """All purchases, indexed by visit (request, user, product) and by (user, product) in time order."""

    requests: pa.Array
    visits: Ints
    bought: Ints
    pairs: AsOf
    known_at: Ints
    num_users: int
    num_products: int

    @classmethod
    def build(cls, batches: Iterable[pa.RecordBatch], users: pa.Array, products: pa.Array) -> Purchases:
        """From event batches (user_id, product_id, request_id, ts, known_at) of purchases; unknown ids are dropped.

        Memory: about 60 bytes per purchase.
        """
        table = pa.Table.from_batches([batch.cast(_SCHEMA) for batch in batches], _SCHEMA)
        user, product = encode_ids(table["user_id"], users), encode_ids(table["product_id"], products)
        keep = (user >= 0) & (product >= 0)
        table, user, product = table.filter(pa.array(keep)), user[keep], product[keep]
        requests = table["request_id"].combine_chunks().unique().drop_null()
        request = encode_ids(table["request_id"], requests)
        tied = request >= 0
        visits, visit = np.unique(request[tied] * len(users) + user[tied], return_inverse=True)
        bought = np.unique(visit * len(products) + product[tied])
        pairs, order = AsOf.build(user * len(products) + product, table["ts"].to_numpy())
        known_at = table["known_at"].to_numpy()[order]
        return cls(requests, visits, bought, pairs, known_at, len(users), len(products))

    def on_visit(self, requests: pa.Array, users: Ints, products: Ints) -> NDArray[np.uint8]:
        """uint8 (n,): 1 where the same request, user and product has a purchase."""
        request = encode_ids(requests, self.requests)
        visit = _position(self.visits, np.where(request >= 0, request * self.num_users + users, -1))
        found = _position(self.bought, np.where(visit >= 0, visit * self.num_products + products, -1))
        label: NDArray[np.uint8] = ((found >= 0) & (users >= 0) & (products >= 0)).astype(np.uint8)
        return label

    def next_after(self, users: Ints, products: Ints, ts: Ints, within: int) -> tuple[Ints, Ints]:
        """(ts, known_at), each (n,): the pair's first purchase in (ts, ts + within] [us], -1 when there is none."""
        pair = users * self.num_products + products
        _, after = self.pairs.spans(pair, ts)
        _, until = self.pairs.spans(pair, ts + within)
        exists = until > after
        row = np.where(exists, after, 0)
        if not len(self.known_at):
            return np.full(len(ts), -1), np.full(len(ts), -1)
        return np.where(exists, self.pairs.times[row], -1), np.where(exists, self.known_at[row], -1)


_SCHEMA = pa.schema(
    [
        ("user_id", pa.string()),
        ("product_id", pa.string()),
        ("request_id", pa.string()),
        ("ts", pa.int64()),
        ("known_at", pa.int64()),
    ]
)


def _position(sorted_keys: Ints, keys: Ints) -> Ints:
    if len(sorted_keys) == 0:
        return np.full(len(keys), -1)
    slot = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
    return np.where(sorted_keys[slot] == keys, slot, -1)
