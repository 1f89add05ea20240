"""Files of new products and advertisers: what is read of them, and what is said when they are wrong."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.errors import BadDataError, UsageError
from flows.newcomers import read_new, render_new

CSV = """product_id,advertiser_id,title,category,price,attributes.style,image,users
0017,a1,Ground Coffee,Drinks > Coffee,4.5,Bold,one.png;two.png,u1;u2
0018,,Tea,,,,,
"""


def written(folder, text, name="new.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_a_csv_is_read_as_text_and_put_into_the_contracts_form(tmp_path):
    found = read_new(written(tmp_path, CSV), "product")
    first, second = found.rows
    assert first["product_id"] == "0017"
    assert (first["title"], first["category"], first["price"]) == ("Ground Coffee", ["Drinks", "Coffee"], 4.5)
    assert first["attributes"] == [("style", "Bold")]
    assert first["image"] == ["one.png", "two.png"]
    assert found.users == [["u1", "u2"], []]
    assert (second["advertiser_id"], second["price"], second["attributes"]) == (None, None, [])


def test_parquet_may_hold_lists(tmp_path):
    table = pa.table({"product_id": ["n"], "category": [["A", "B"]], "users": [["u1"]], "price": [2.0]})
    pq.write_table(table, tmp_path / "new.parquet")
    found = read_new(tmp_path / "new.parquet", "product")
    assert found.rows[0]["category"] == ["A", "B"]
    assert found.users == [["u1"]]
    assert found.rows[0]["title"] is None


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("product_id,titel\n1,x\n", UsageError, "unknown column 'titel': did you mean 'title'"),
        ("title\nx\n", BadDataError, "expected a column product_id"),
        ("product_id,price\n1,cheap\n", BadDataError, "row 1: expected a number as price, got 'cheap'"),
        ("product_id,title\n1,x\n,y\n", BadDataError, "row 2: expected a product_id, got none"),
        ("product_id,title\n1\n", BadDataError, "not readable as csv"),
        ("", BadDataError, "not readable as csv"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, text, error, words):
    with pytest.raises(error, match=words):
        read_new(written(tmp_path, text), "product")


def test_users_and_other_files_are_refused(tmp_path):
    with pytest.raises(UsageError, match="not 'user'"):
        read_new(written(tmp_path, "user_id\n1\n"), "user")
    with pytest.raises(UsageError, match=r"\.csv or \.parquet"):
        read_new(tmp_path / "new.xlsx", "product")
    with pytest.raises(UsageError, match=r"unknown column 'attributes\.style'"):
        read_new(written(tmp_path, "advertiser_id,attributes.style\n1,x\n"), "advertiser")


def test_the_table_shows_the_strongest_token_of_each_level(capsys):
    tokens = [
        {"entity_id": "n1", "level": 1, "rank": rank, "primitive_id": f"L1-{rank:04d}", "weight": 0.8 - 0.6 * rank}
        for rank in range(2)
    ]
    found = {"entity_type": "product", "entities": 1, "as_of": "2024-03-01", "out": None, "tokens": tokens}
    render_new({**found, "unread": {"a.png": "not_found"}})
    said = capsys.readouterr().out
    assert "L1-0000" in said
    assert "L1-0001" not in said
    assert "a.png was not read: not_found" in said
