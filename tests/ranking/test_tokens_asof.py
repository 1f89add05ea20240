from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from data.context import RunContext
from ranking.tokens_asof import TokenRows, read_tokens
from tests.ranking.shops import DAY, START, Shop, event, publish_shop, shop_of, token

_BAG = {"L1-0002": 0.6, "L1-0000": 0.4, "L2-0001": 1.0}
_IDS = {"user": pa.array(["u-0", "u-1"]), "product": pa.array(["p-0"]), "advertiser": pa.array([], pa.string())}


def _read(tokens: list[dict[str, object]], store: Path, permute: int | None = None) -> TokenRows:
    shop = shop_of([event("view", "u-0", "p-0", START)], tokens)
    refs = publish_shop(shop if permute is None else shop.permuted(permute), store)
    return read_tokens(refs["tokens"], _IDS, RunContext(threads=1))


def _bag(rows: TokenRows, row: int) -> dict[str, float]:
    names = rows.vocabulary["primitive_id"].to_pylist()
    filled = rows.primitive[row] >= 0
    names = [names[code] for code in rows.primitive[row][filled]]
    return {name: pytest.approx(float(weight)) for name, weight in zip(names, rows.weight[row][filled], strict=True)}


def test_an_entity_gets_the_last_row_at_or_before_the_time(tmp_path: Path) -> None:
    late = {"L1-0001": 1.0, "L2-0004": 1.0}
    tokens = [*token("user", "u-0", START, _BAG), *token("user", "u-0", START + DAY, late)]
    rows = _read(tokens, tmp_path)
    times = np.array([START - 1, START, START + DAY - 1, START + DAY, START + 99 * DAY])
    found = rows.find("user", np.zeros(5, np.int64), times)
    assert found[0] == -1
    assert [rows.as_of[row] for row in found[1:]] == [START, START, START + DAY, START + DAY]
    assert _bag(rows, found[1]) == _BAG
    assert _bag(rows, found[3]) == late


def test_entities_without_tokens_and_unknown_ones_are_missing(tmp_path: Path) -> None:
    rows = _read([*token("user", "u-1", START, _BAG), *token("user", "u-9", START, _BAG)], tmp_path)
    assert rows.find("user", np.array([0, 1, -1]), np.full(3, START)).tolist() == [-1, 0, -1]
    assert rows.find("product", np.array([0]), np.array([START])).tolist() == [-1]
    assert rows.find("advertiser", np.array([0]), np.array([START])).tolist() == [-1]
    assert len(rows.primitive) == 1, "u-9 is not among the users"


def test_types_do_not_share_rows_even_with_equal_ids(tmp_path: Path) -> None:
    rows = _read([*token("product", "p-0", START, {"L1-0000": 1.0}), *token("user", "u-0", START, _BAG)], tmp_path)
    (product,) = rows.find("product", np.array([0]), np.array([START]))
    (user,) = rows.find("user", np.array([0]), np.array([START]))
    assert _bag(rows, product) == {"L1-0000": 1.0}
    assert _bag(rows, user) == _BAG


def test_slots_are_laid_out_level_by_level_in_order_of_rank(tmp_path: Path) -> None:
    rows = _read(token("user", "u-0", START, _BAG), tmp_path)
    assert rows.levels == {1: (0, 2), 2: (2, 3)}
    assert rows.weight[0].tolist() == pytest.approx([0.6, 0.4, 1.0])


def test_row_order_of_the_file_does_not_matter(tmp_path: Path, shop: Shop) -> None:
    tokens = shop.tokens.to_pylist()
    one, other = _read(tokens, tmp_path / "a"), _read(tokens, tmp_path / "b", permute=1)
    assert len(one.primitive) > 3
    assert np.array_equal(one.primitive, other.primitive)
    assert np.array_equal(one.weight, other.weight)
    assert np.array_equal(one.as_of, other.as_of)


def test_no_tokens_at_all_means_missing_everywhere(tmp_path: Path) -> None:
    rows = _read([], tmp_path)
    assert rows.find("user", np.array([0, 1]), np.array([START, START])).tolist() == [-1, -1]
    assert rows.levels == {}


def test_a_model_reads_later_tokens_by_its_own_vocabulary_and_slots(tmp_path: Path) -> None:
    later = {"L1-0002": 0.5, "L1-0009": 0.3, "L1-0000": 0.2, "L2-0001": 1.0}
    rows = _read(token("user", "u-0", START, later), tmp_path)
    known = pa.table({"level": [1, 1, 2], "primitive_id": ["L1-0000", "L1-0002", "L2-0001"]})
    read = rows.relabelled(known, {1: (0, 2), 2: (2, 4), 3: (4, 5)})
    assert read.primitive.tolist() == [[1, -1, 2, -1, -1]], "L1-0009 is unknown, and L1-0000 has no slot left"
    assert read.weight[0].tolist() == pytest.approx([0.5, 0, 1, 0, 0])
    assert read.find("user", np.array([0]), np.array([START])).tolist() == [0]
    same = rows.relabelled(rows.vocabulary, rows.levels)
    assert np.array_equal(same.primitive, rows.primitive)
    assert np.array_equal(same.weight, rows.weight)
