from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from data.artifacts import ArtifactRef
from data.errors import UsageError
from ranking import histories
from ranking.histories import encode_ids
from tests.ranking.shops import START, Shop, event, publish_shop, run_stage, shop_of


def _run(shop: Shop, store: Path, **config: object) -> ArtifactRef:
    return run_stage(store, "histories", histories, histories.Config(**config), publish_shop(shop, store))


def _products(ref: ArtifactRef, user: str) -> list[str | None]:
    row = ref.table("users.parquet")["user_id"].to_pylist().index(user)
    start, end = ref.array("offsets.npy")[row : row + 2]
    names = [*ref.table("products.parquet")["product_id"].to_pylist(), None]
    return [names[code] for code in ref.array("product.npy")[start:end]]


def test_a_history_is_ordered_by_when_it_became_visible(tmp_path: Path) -> None:
    late = event("purchase", "u-0", "p-1", START, known_at=START + 500)
    events = [late, event("purchase", "u-0", "p-2", START + 100), event("view", "u-0", "p-3", START + 900)]
    ref = _run(shop_of(events, []), tmp_path)
    assert _products(ref, "u-0") == ["p-2", "p-1", "p-3"]
    assert ref.array("visible_from.npy").tolist() == [START + 101, START + 500, START + 901]
    assert ref.array("ts.npy").tolist() == [START + 100, START, START + 900]


def test_impressions_are_not_history_but_their_users_are_known(tmp_path: Path) -> None:
    events = [event("impression", "u-1", "p-0", START), event("purchase", "u-0", "p-0", START)]
    ref = _run(shop_of(events, []), tmp_path)
    assert _products(ref, "u-1") == []
    assert _products(ref, "u-0") == ["p-0"]
    assert ref.array("offsets.npy").tolist() == [0, 1, 1]


def test_an_event_without_product_keeps_its_advertiser(tmp_path: Path) -> None:
    ref = _run(shop_of([event("conversion", "u-0", None, START, advertiser_id="a-2")], []), tmp_path)
    assert _products(ref, "u-0") == [None]
    assert ref.array("advertiser.npy").tolist() == [2]


def test_event_types_are_chosen_by_config(tmp_path: Path) -> None:
    events = [event("view", "u-0", "p-0", START), event("purchase", "u-0", "p-1", START)]
    assert _products(_run(shop_of(events, []), tmp_path, event_types=("purchase",)), "u-0") == ["p-1"]


def test_permuted_rows_give_the_same_bytes(tmp_path: Path, shop: Shop) -> None:
    one, other = _run(shop, tmp_path / "a"), _run(shop.permuted(3), tmp_path / "b")
    assert one.manifest["files"] == other.manifest["files"]
    assert one.metrics == other.metrics
    assert one.metrics["events"] > 0


def test_an_empty_log_of_engagement_is_written(tmp_path: Path) -> None:
    ref = _run(shop_of([event("impression", "u-0", "p-0", START)], []), tmp_path)
    assert ref.array("product.npy").shape == (0,)
    assert ref.metrics == {"users": 1, "events": 0, "longest": 0}


def test_an_unknown_event_type_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'purchase'"):
        _run(shop_of([event("view", "u-0", "p-0", START)], []), tmp_path, event_types=("purchases",))


def test_unknown_and_null_ids_have_no_code() -> None:
    codes = encode_ids(pa.array(["b", None, "x", "a"]), pa.array(["a", "b"]))
    assert codes.tolist() == [1, -1, -1, 0]
    assert codes.dtype == np.int64
