from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from data.artifacts import ArtifactRef
from data.errors import BadDataError, UsageError
from data.schema import to_micros
from ranking import examples
from ranking.examples import to_external
from ranking.reader import JOINS, MISSING, OK, STALE, TEST, TRAIN, VALIDATION, Examples
from tests.ranking.shops import CUTS, DAY, T0, T1, T2, Shop, event, make_examples, shop_of, token

_START = to_micros(T0)


def _external(ref: ArtifactRef, path: Path) -> list[dict[str, object]]:
    to_external(ref, path, history_len=4, batch_rows=50)
    return pq.read_table(path).to_pylist()


def _rows(shop: Shop, store: Path, **config: object) -> list[dict[str, object]]:
    return _external(make_examples(shop, store, **config), store / "external.parquet")


def _shown(user: str, product: str, ts: int, request: str, **more: object) -> dict[str, object]:
    return event("impression", user, product, ts, request, surface="display:1", **more)


def test_every_product_impression_from_t0_on_is_one_row(shop: Shop, examples_ref: ArtifactRef, tmp_path: Path) -> None:
    rows = _external(examples_ref, tmp_path / "x.parquet")
    events = shop.events
    chosen = pc.and_(pc.equal(events["event_type"], "impression"), pc.greater_equal(events["ts"], _START))
    expected = events.filter(chosen).sort_by([("ts", "ascending"), ("event_id", "ascending")])
    assert [row["event_id"] for row in rows] == expected["event_id"].to_pylist()
    assert len(rows) == examples_ref.metrics["rows"] > 300
    for name in ("user_id", "product_id", "ts", "surface"):
        assert [row[name] for row in rows] == expected[name].to_pylist()


def test_every_joined_feature_says_whether_it_is_there(tmp_path: Path) -> None:
    bag = {"L1-0000": 1.0}
    tokens = [*token("user", "u-0", _START, bag), *token("product", "p-1", _START + 40 * DAY, bag)]
    events = [
        event("purchase", "u-0", "p-2", _START - DAY),
        _shown("u-0", "p-1", _START, "r-0"),
        _shown("u-0", "p-1", _START + 39 * DAY, "r-1"),
        _shown("u-1", "p-6", _START + 40 * DAY, "r-2"),
        _shown("u-1", "p-1", _START + 40 * DAY, "r-2"),
    ]
    rows = {
        (row["ts"] - _START) // DAY: row
        for row in _rows(shop_of(events, tokens), tmp_path)
        if row["product_id"] == "p-1"
    }
    status = {day: [row[f"{name}_status"] for name in JOINS] for day, row in rows.items()}
    assert status[0] == [OK, OK, OK, MISSING, MISSING, OK]
    assert status[39] == [STALE, OK, STALE, MISSING, MISSING, STALE]
    assert status[40] == [MISSING, OK, MISSING, OK, MISSING, MISSING]
    assert rows[40]["product_primitive_id"] == ["L1-0000"]
    assert rows[39]["product_primitive_id"] == []
    other = next(row for row in pq.read_table(tmp_path / "external.parquet").to_pylist() if row["product_id"] == "p-6")
    assert other["content_status"] == MISSING
    assert other["content"] == []


def test_purchases_of_the_visit_itself_are_the_label_and_not_the_history(tmp_path: Path) -> None:
    events = [
        event("purchase", "u-0", "p-3", _START - DAY, "r-a"),
        event("purchase", "u-0", "p-1", _START, "r-b"),
        _shown("u-0", "p-1", _START, "r-b"),
        _shown("u-0", "p-2", _START, "r-b"),
        _shown("u-0", "p-1", _START + 1, "r-c"),
    ]
    bought, other, later = _rows(shop_of(events, []), tmp_path)
    assert [row["label"] for row in (bought, other, later)] == [1, 0, 0]
    assert [row["history_product_id"] for row in (bought, other, later)] == [["p-3"], ["p-3"], ["p-3", "p-1"]]
    assert [row["pair_events"] for row in (bought, other, later)] == [0, 0, 1]
    assert [row["product_events"] for row in (bought, other, later)] == [0, 0, 1]
    assert bought["visit_age"] == 1.0
    assert bought["pair_age"] == -1.0


def test_an_event_known_late_is_used_late(tmp_path: Path) -> None:
    late = event("purchase", "u-0", "p-3", _START, known_at=_START + 2 * DAY)
    events = [late, _shown("u-0", "p-1", _START + 2 * DAY - 1, "r-0"), _shown("u-0", "p-1", _START + 2 * DAY, "r-1")]
    before, after = _rows(shop_of(events, []), tmp_path)
    assert before["history_product_id"] == []
    assert after["history_product_id"] == ["p-3"]


def test_rows_before_t_do_not_change_when_everything_after_t_is_deleted(shop: Shop, tmp_path: Path) -> None:
    t = to_micros(T0) + 33 * DAY + 5
    whole, cut = _rows(shop, tmp_path / "whole"), _rows(shop.before(t), tmp_path / "cut")
    kept = [row for row in whole if row["ts"] < t]
    assert 100 < len(kept) < len(whole)
    assert cut == kept


def test_the_deletion_test_renumbers_internal_ids(shop: Shop, tmp_path: Path) -> None:
    t = to_micros(T0) + 33 * DAY + 5
    vocabularies = [set(s.products["product_id"].to_pylist()) for s in (shop, shop.before(t))]
    assert vocabularies[1] < vocabularies[0], "otherwise equal internal ids could hide a leak"


def test_the_external_file_is_equal_byte_by_byte_for_permuted_input(shop: Shop, tmp_path: Path) -> None:
    for name, version in (("a", shop), ("b", shop.permuted(5))):
        to_external(make_examples(version, tmp_path / name), tmp_path / f"{name}.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_the_size_of_a_batch_changes_no_row(
    shop: Shop, examples_ref: ArtifactRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "BATCH_ROWS", 37)
    small = make_examples(shop, tmp_path)
    for name, described in examples_ref.manifest["files"].items():
        if name != "ids.parquet":
            assert small.manifest["files"][name] == described, name
    assert small.table("ids.parquet") == examples_ref.table("ids.parquet")
    assert small.metrics == examples_ref.metrics


def test_rows_are_split_by_the_cuts(tmp_path: Path) -> None:
    times = [to_micros(T0) - 1, to_micros(T0), to_micros(T1) - 1, to_micros(T1), to_micros(T2) - 1, to_micros(T2)]
    events = [_shown("u-0", "p-0", ts, f"r-{ts}") for ts in times]
    rows = _rows(shop_of(events, []), tmp_path)
    assert [row["split"] for row in rows] == [TRAIN, TRAIN, VALIDATION, VALIDATION, TEST]


def test_repurchases_are_kept_apart_with_the_time_they_became_known(tmp_path: Path) -> None:
    events = [
        _shown("u-0", "p-0", _START, "r-0"),
        event("purchase", "u-0", "p-0", _START, "r-0"),
        event("purchase", "u-0", "p-0", _START + 28 * DAY, known_at=_START + 30 * DAY),
        _shown("u-0", "p-1", _START, "r-0"),
        event("purchase", "u-0", "p-1", _START + DAY),
        _shown("u-1", "p-0", _START, "r-1"),
        event("purchase", "u-1", "p-0", _START, "r-1"),
        event("purchase", "u-1", "p-0", _START + 28 * DAY + 1),
    ]
    table = make_examples(shop_of(events, []), tmp_path).table("conversions.parquet")
    assert table.to_pylist() == [
        {"event_id": f"i-u-0-p-0-{_START}", "label_ts": _START + 28 * DAY, "known_at": _START + 30 * DAY}
    ]


def test_context_is_utc_hour_and_weekday_from_monday(tmp_path: Path) -> None:
    assert T0.weekday() == 0
    ts = to_micros(T0) + 2 * DAY + 13 * DAY // 24
    (row,) = _rows(shop_of([_shown("u-0", "p-0", ts, "r")], []), tmp_path)
    assert (row["hour"], row["weekday"]) == (13, 2)


def test_an_impression_of_an_unlisted_product_is_still_one_row(tmp_path: Path) -> None:
    shop = shop_of(
        [event("purchase", "u-0", "p-0", _START - DAY), _shown("u-0", "p-1", _START, "r", advertiser_id="a-3")], []
    )
    shop = Shop(**(vars(shop) | {"products": shop.products.filter(pc.equal(shop.products["product_id"], "p-0"))}))
    (row,) = _rows(shop, tmp_path)
    assert row["product_id"] is None
    assert row["advertiser_id"] == "a-3"
    assert row["pair_events"] == row["product_events"] == 0
    assert row["content_status"] == row["product_tokens_status"] == MISSING


def test_the_owner_stands_in_for_a_missing_advertiser(tmp_path: Path) -> None:
    (row,) = _rows(shop_of([_shown("u-0", "p-6", _START, "r")], []), tmp_path)
    assert row["advertiser_id"] == "a-2"


def test_cuts_out_of_order_are_refused(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="t0 < t1 < t2"):
        make_examples(shop, tmp_path, **(CUTS | {"t1": T0}))


def test_a_log_without_impressions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadDataError, match="got none"):
        make_examples(shop_of([event("purchase", "u-0", "p-0", _START)], []), tmp_path)


def test_surface_kinds_drop_codes_and_order(examples_ref: ArtifactRef) -> None:
    opened = Examples.open(examples_ref)
    assert dict(zip(opened.surfaces, opened.surface_kinds(), strict=True)) == {
        "display:1": "display",
        "mailer:A": "mailer",
        "display:2+mailer:A": "display+mailer",
    }
    assert len(opened) == len(opened.columns["label"]) == sum(examples_ref.metrics["split_rows"])
    assert np.all(np.diff(opened.columns["ts"]) >= 0)


def test_the_states_of_a_row_are_the_last_made_before_it(tmp_path: Path) -> None:
    dates = [_START + week * 7 * DAY for week in range(3)]
    tokens = [row for date in dates for row in token("product", "p-9", date, {"L1-0000": 1.0})]
    shown = [_START, dates[1] - 1, dates[1], dates[2] + DAY, dates[1] + 29 * DAY]
    events = [
        event("purchase", "u-0", "p-2", _START - DAY),
        event("purchase", "u-0", "p-3", _START + DAY),
        *(_shown("u-0", "p-1", ts, f"r-{ts}") for ts in shown),
        _shown("u-1", "p-1", dates[1], "r-1"),
    ]
    ref = make_examples(shop_of(events, tokens), tmp_path)
    made = {
        row["as_of"]: row["row"]
        for row in ArtifactRef("user_states", "k", tmp_path / "user_states" / "k").table("rows.parquet").to_pylist()
    }
    assert list(made) == dates[:2], "nothing happened in the week before the third date"
    columns = Examples.open(ref).columns
    user = np.asarray(columns["user"])
    expected = [made[dates[0]], made[dates[0]], made[dates[1]], made[dates[1]], made[dates[1]]]
    assert columns["user_states"][user == 0].tolist() == expected
    assert columns["user_states_status"][user == 0].tolist() == [OK, OK, OK, OK, STALE]
    assert columns["user_states"][user == 1].tolist() == [-1]
    assert columns["user_states_status"][user == 1].tolist() == [MISSING]
    assert (ref.metrics["user_states_missing"], ref.metrics["user_states_stale"]) == (1, 1)
    assert ref.array("user_states.npy").shape[0] == 2
