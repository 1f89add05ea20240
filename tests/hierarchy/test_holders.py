"""Who holds an interest: only newest bags count, wherever the file is cut."""

import pyarrow as pa
import pytest

import hierarchy.holders
from data.artifacts import Store
from data.schema import TOKENS
from hierarchy.holders import holders
from tests.fixtures.artifacts import make_ref, write_dates

BAGS = {
    ("product", "a"): {1: {"L1-0000": 0.6, "L1-0001": 0.4}},
    ("user", "a"): {1: {"L1-0000": 1.0}, 2: {"L1-0001": 0.7, "L1-0002": 0.3}},
    ("user", "b"): {1: {"L1-0001": 1.0}, 2: {"L1-0000": 0.5, "L1-0001": 0.5}},
    ("user", "c"): {1: {"L1-0002": 1.0}},
    ("user", "d"): {1: {"L1-0001": 0.9, "L1-0000": 0.1}, 2: {"L1-0003": 1.0}},
    ("user", "e"): {2: {"L1-0001": 0.2, "L1-0003": 0.8}},
}


def rows():
    for (kind, entity), dates in BAGS.items():
        for as_of, bag in dates.items():
            for rank, (primitive, weight) in enumerate(bag.items()):
                yield (entity, kind, 1, primitive, weight, 0.0, rank, "v", "m", as_of)


@pytest.fixture(scope="module", params=[1, 3, 1000])
def tokens(request, tmp_path_factory):
    """The same bags in row groups of several sizes."""
    columns = zip(zip(*rows(), strict=True), TOKENS, strict=True)
    table = pa.table([pa.array(column, field.type) for column, field in columns], schema=TOKENS)
    store = Store(tmp_path_factory.mktemp("holders"))
    return make_ref(store, "tokens", lambda out: write_dates(out, "tokens/", table, request.param))


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 100])
def test_only_newest_bags_count_wherever_the_file_is_cut(tokens, batch, monkeypatch):
    monkeypatch.setattr(hierarchy.holders, "_ROWS", batch)
    found = holders(tokens, "user", {"L1-0000", "L1-0001"})
    assert list(found) == ["a", "b", "e"]
    assert found["a"] == {"L1-0001": pytest.approx(0.7)}
    assert found["b"] == {"L1-0000": 0.5, "L1-0001": 0.5}
    assert found["e"] == {"L1-0001": pytest.approx(0.2)}


def test_types_are_kept_apart(tokens):
    assert holders(tokens, "product", {"L1-0000"}) == {"a": {"L1-0000": pytest.approx(0.6)}}
    assert holders(tokens, "advertiser", {"L1-0000"}) == {}
    assert holders(tokens, "user", {"L9-0000"}) == {}
