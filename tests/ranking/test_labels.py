from __future__ import annotations

import numpy as np
import pyarrow as pa

from data.schema import EVENTS
from ranking.labels import Purchases
from tests.ranking.shops import DAY, START, event

_USERS, _PRODUCTS = pa.array(["u-0", "u-1"]), pa.array(["p-0", "p-1", "p-2"])
_COLUMNS = ["user_id", "product_id", "request_id", "ts", "known_at"]


def _purchases(*rows: dict[str, object]) -> Purchases:
    table = pa.Table.from_pylist(list(rows), EVENTS).select(_COLUMNS)
    return Purchases.build(table.to_batches(max_chunksize=2), _USERS, _PRODUCTS)


def _codes(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_only_the_same_request_user_and_product_is_bought_on_the_visit() -> None:
    bought = _purchases(
        event("purchase", "u-0", "p-1", START, "r-1"),
        event("purchase", "u-1", "p-2", START, "r-2"),
        event("purchase", "u-0", "p-0", START, None),
    )
    requests = pa.array(["r-1", "r-1", "r-1", "r-2", "r-2", "r-9", None])
    users, products = _codes(0, 1, 0, 0, 1, 0, 0), _codes(1, 1, 2, 2, 2, 1, 0)
    assert bought.on_visit(requests, users, products).tolist() == [1, 0, 0, 0, 1, 0, 0]


def test_unknown_users_and_products_never_match() -> None:
    bought = _purchases(event("purchase", "u-9", "p-0", START, "r-1"), event("purchase", "u-1", "p-2", START, "r-0"))
    users, products = _codes(-1, 0, -1), _codes(0, -1, 2)
    assert bought.on_visit(pa.array(["r-1", "r-1", "r-0"]), users, products).tolist() == [0, 0, 0]


def test_the_next_purchase_is_later_than_the_row_and_within_the_window() -> None:
    bought = _purchases(
        event("purchase", "u-0", "p-1", START),
        event("purchase", "u-0", "p-1", START + 5 * DAY, known_at=START + 6 * DAY),
        event("purchase", "u-0", "p-2", START + DAY),
        event("purchase", "u-1", "p-1", START + DAY),
    )
    times = _codes(START - 1, START, START + 5 * DAY - 1, START + 5 * DAY)
    again, known = bought.next_after(np.zeros(4, np.int64), np.ones(4, np.int64), times, 5 * DAY)
    assert again.tolist() == [START, START + 5 * DAY, START + 5 * DAY, -1]
    assert known.tolist() == [START, START + 6 * DAY, START + 6 * DAY, -1]
    none, _ = bought.next_after(_codes(0), _codes(1), _codes(START), 5 * DAY - 1)
    assert none.tolist() == [-1], "one microsecond too late for the window"


def test_a_log_without_purchases_labels_nothing() -> None:
    empty = _purchases()
    assert empty.on_visit(pa.array(["r-1"]), _codes(0), _codes(0)).tolist() == [0]
    assert [column.tolist() for column in empty.next_after(_codes(0), _codes(0), _codes(START), DAY)] == [[-1], [-1]]
