"""Interest tokens as a table for use outside: the newest bag by each row's time, and a model that reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.context import RunContext
from data.errors import BadDataError, UsageError
from data.schema import from_micros
from ranking import asked_rows
from ranking.asked_rows import read_asked
from ranking.token_table import TokenTable, write_table
from tests.ranking.shops import DAY, START, Shop, event, publish_shop, shop_of, token

BAG = {"L1-0002": 0.6, "L1-0000": 0.4, "L2-0001": 1.0}
LATER = {"L1-0001": 1.0, "L2-0003": 1.0}
TOKENS = [
    *token("user", "u-0", START, BAG),
    *token("user", "u-0", START + 7 * DAY, LATER),
    *token("product", "p-0", START + 7 * DAY, LATER),
]


def _table(tokens: list[dict[str, Any]], store: Path) -> TokenTable:
    shop = shop_of([event("view", "u-0", "p-0", START)], tokens)
    return TokenTable.open(publish_shop(shop, store)["tokens"], RunContext(threads=1))


def _csv(folder: Path, *lines: str, head: str = "entity_type,entity_id,ts") -> Path:
    (folder / "rows.csv").write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return folder / "rows.csv"


def test_each_row_gets_the_newest_bag_by_its_time_in_its_order(tmp_path: Path) -> None:
    asked = [("user", "u-0", 8), ("product", "p-0", 6), ("user", "u-0", 6), ("user", "no one", 9), ("user", "u-0", 0),
             ("user", "u-0", 36), ("user", "u-0", -1)]  # fmt: skip
    path = _csv(tmp_path, *(f"{kind},{name},{START + day * DAY}" for kind, name, day in asked))
    out = tmp_path / "new" / "tokens.parquet"
    found = write_table(_table(TOKENS, tmp_path), read_asked(path), out, stale_days=28, flat=True)
    rows = pq.read_table(out).to_pylist()
    assert [(row["entity_type"], row["entity_id"], (row["ts"] - START) // DAY) for row in rows] == asked
    assert [row["status"] for row in rows] == ["ok", "missing", "ok", "missing", "ok", "stale", "missing"]
    assert [row["as_of"] and (row["as_of"] - START) // DAY for row in rows] == [7, None, 0, None, 0, 7, None]
    assert [row["vocab_version"] for row in rows] == ["v", None, "v", None, "v", "v", None]
    assert rows[2]["level_1_primitive_id"] == ["L1-0002", "L1-0000"]
    assert rows[2]["level_1_weight"] == pytest.approx([0.6, 0.4])
    assert rows[0]["level_2_primitive_id"] == ["L2-0003"]
    assert (rows[0]["level_1_slot_0"], rows[0]["level_1_slot_1"], rows[0]["level_1_slot_1_weight"]) == (
        "L1-0001",
        None,
        0,
    )
    assert (rows[1]["level_1_primitive_id"], rows[1]["level_2_weight"], rows[1]["level_2_slot_0"]) == ([], [], None)
    assert found == {"ok": 3, "missing": 3, "stale": 1, "first": START - DAY, "last": START + 36 * DAY}
    assert [path.name for path in out.parent.iterdir()] == ["tokens.parquet"]


def test_everyone_at_a_time_is_everyone_with_a_bag_by_then(tmp_path: Path) -> None:
    table = _table(TOKENS, tmp_path)
    for day, expected in ((-1, []), (0, ["u-0"]), (7, ["u-0", "p-0"])):
        out = tmp_path / f"{day}.parquet"
        found = write_table(table, table.everyone(START + day * DAY), out, stale_days=28)
        assert pq.read_table(out)["entity_id"].to_pylist() == expected
        assert found["ok"] == len(expected)
        assert pq.read_table(out)["as_of"].to_pylist() == [START + day * DAY] * len(expected)


def test_deleting_what_comes_later_changes_no_row(shop: Shop, tmp_path: Path) -> None:
    t = START + 60 * DAY
    tables = []
    for name, version in (("all", shop), ("cut", shop.before(t))):
        refs = publish_shop(version, tmp_path / name)
        tables.append(TokenTable.open(refs["tokens"], RunContext(threads=1)))
    asked = _csv(tmp_path, *(f"user,u-{n % 24},{t - n * DAY // 3}" for n in range(200)))
    for number, table in enumerate(tables):
        found = write_table(table, read_asked(asked), tmp_path / f"{number}.parquet", 28)
        assert min(found["ok"], found["missing"]) > 10
    assert (tmp_path / "0.parquet").read_bytes() == (tmp_path / "1.parquet").read_bytes()


def test_pieces_change_nothing(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TokenTable.open(publish_shop(shop, tmp_path)["tokens"], RunContext(threads=1))
    kinds = [("user", "u"), ("product", "p"), ("advertiser", "a")]
    rows = [(*kinds[n % 3], n) for n in range(100)]
    asked = pa.table({
        "entity_type": [kind for kind, _, _ in rows],
        "entity_id": [f"{letter}-{n % 5}" for _, letter, n in rows],
        "ts": pa.array([START + n * DAY for _, _, n in rows], pa.int64()),
    })  # fmt: skip
    pq.write_table(asked, tmp_path / "rows.parquet")
    write_table(table, read_asked(tmp_path / "rows.parquet"), tmp_path / "one.parquet", 28)
    monkeypatch.setattr(asked_rows, "PIECE_ROWS", 7)
    assert len(list(read_asked(tmp_path / "rows.parquet"))) == 15
    write_table(table, read_asked(tmp_path / "rows.parquet"), tmp_path / "many.parquet", 28)
    assert pq.read_table(tmp_path / "one.parquet").equals(pq.read_table(tmp_path / "many.parquet"))


@pytest.mark.parametrize(
    "text",
    [
        "2024-03-01",
        "2024-03-01T00:00",
        "2024-03-01 00:00:00",
        "2024-03-01T00:00:00Z",
        "2024-03-01T02:00:00+02:00",
        "2024-03-01T00:00:00.000000",
        "1709251200000000",
    ],
)
def test_times_may_be_written_in_many_ways(text: str, tmp_path: Path) -> None:
    (piece,) = read_asked(_csv(tmp_path, f"user,007,{text}"))
    assert piece.to_pylist() == [{"entity_type": "user", "entity_id": "007", "ts": 1709251200000000}]


def test_parquet_may_hold_timestamps_dates_or_microseconds(tmp_path: Path) -> None:
    moment = from_micros(1709251200000000)
    for column in (
        pa.array([moment], pa.timestamp("ms", "UTC")),
        pa.array([moment], pa.timestamp("ns", "Europe/Paris")),
        pa.array([moment.replace(tzinfo=None)], pa.timestamp("us")),
        pa.array([moment.date()], pa.date32()),
        pa.array([1709251200000000], pa.int64()),
    ):
        pq.write_table(pa.table({"entity_type": ["user"], "entity_id": ["7"], "ts": column}), tmp_path / "r.parquet")
        (piece,) = read_asked(tmp_path / "r.parquet")
        assert piece["ts"].to_pylist() == [1709251200000000], column.type


def test_one_time_may_stand_for_all(tmp_path: Path) -> None:
    (piece,) = read_asked(_csv(tmp_path, "user,7", head="entity_type,entity_id"), START)
    assert piece["ts"].to_pylist() == [START]
    with pytest.raises(UsageError, match="one of the two"):
        list(read_asked(_csv(tmp_path, "user,7,2024-03-01"), START))


@pytest.mark.parametrize(
    ("head", "line", "error", "words"),
    [
        ("entity_type,entity_id,time", "user,7,2024-03-01", UsageError, "unknown column 'time'"),
        ("entity_type,entity_id", "user,7", BadDataError, "expected a column ts, or one time.* --as-of"),
        ("entity_id,ts", "7,2024-03-01", BadDataError, "expected a column entity_type"),
        ("entity_type,entity_id,ts", "shop,7,2024-03-01", BadDataError, "row 2: expected a type among .*got 'shop'"),
        ("entity_type,entity_id,ts", "user,,2024-03-01", BadDataError, "row 2: expected an entity_id"),
        ("entity_type,entity_id,ts", "user,7,yesterday", BadDataError, "row 2: expected a date .*got 'yesterday'"),
        ("entity_type,entity_id,ts", "user,7,20240301", BadDataError, "row 2: expected a date .*got '20240301'"),
        ("entity_type,entity_id,ts", "user,7,2024-13-01", BadDataError, "expected a date such as.*2024-13-01"),
        ("entity_type,entity_id,ts", "user,7,", BadDataError, "row 2: expected a"),
        ("entity_type,entity_id,ts", "user,7", BadDataError, "not readable as csv"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(
    head: str, line: str, error: type[Exception], words: str, tmp_path: Path
) -> None:
    good = dict(zip(("entity_type", "entity_id", "ts", "time"), ("user", "7", "2024-03-01", "2024-03-01"), strict=True))
    path = _csv(tmp_path, ",".join(good[name] for name in head.split(",")), line, head=head)
    out = tmp_path / "out" / "t.parquet"
    with pytest.raises(error, match=words):
        write_table(_table(TOKENS, tmp_path), read_asked(path), out, 28)
    assert not out.parent.exists() or list(out.parent.iterdir()) == [], "nothing half-written"


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.csv or \.parquet"):
        list(read_asked(tmp_path / "rows.txt"))
    with pytest.raises(BadDataError, match="found none"):
        list(read_asked(tmp_path / "rows.csv"))
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadDataError, match="not readable as parquet"):
        list(read_asked(tmp_path / "torn.parquet"))


def test_a_scikit_learn_model_reads_the_flat_table(tmp_path: Path) -> None:
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    # A label that the user's finest interest explains.
    interests = np.arange(60) % 4
    tokens = [row for n in range(60) for row in token("user", f"u-{n}", START, {f"L2-{interests[n]:04d}": 1.0})]
    asked = _csv(tmp_path, *(f"user,u-{n},2030-01-01" for n in range(60)))
    write_table(_table(tokens, tmp_path), read_asked(asked), tmp_path / "tokens.parquet", 10_000, flat=True)

    table = pq.read_table(tmp_path / "tokens.parquet")
    slots = [name for name in table.column_names if "_slot_" in name and not name.endswith("_weight")]
    weights = [f"{name}_weight" for name in slots]
    features = np.column_stack([table[name].to_numpy() for name in (*slots, *weights)])
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), list(range(len(slots)))), remainder="passthrough"
    )
    model = make_pipeline(encode, LogisticRegression()).fit(features, interests == 2)
    assert model.score(features, interests == 2) == 1.0
