"""From an interest to its entities: the same rows as the tokens, in another order, at any date."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.artifacts import Store
from data.errors import BadDataError, UsageError
from data.schema import MICROS_PER_DAY, to_micros
from data.snapshot import Snapshot
from hierarchy import postings, supergraph, tokens
from hierarchy.postings import POSTINGS, entities_of
from hierarchy.query import entities_of as asked
from tests.fixtures import worlds
from tests.hierarchy.planted import T0, Shop
from tests.hierarchy.retrained import STAGES


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    made = Shop(Store(tmp_path_factory.mktemp("postings")), worlds.world())
    made.run("supergraph", supergraph, supergraph.Config(t0=T0), STAGES)
    made.run("tokens", tokens, tokens.Config(), ("embeddings", "supergraph"))
    made.run("postings", postings, postings.Config(), ("tokens",))
    return made


@pytest.fixture(scope="module")
def table(shop):
    return shop.refs["tokens"].table("tokens/").to_pylist()


def by_hand(table, primitive, kind, as_of):
    """(entity, weight) of every bag of that time that holds the primitive, heaviest first."""
    newest = {}
    for row in table:
        if row["entity_type"] == kind and row["as_of"] <= as_of:
            newest[row["entity_id"]] = max(row["as_of"], newest.get(row["entity_id"], 0))
    rows = [
        (-row["weight"], row["entity_id"], row["as_of"])
        for row in table
        if row["primitive_id"] == primitive and row["entity_type"] == kind
        if newest.get(row["entity_id"]) == row["as_of"]
    ]
    return [{"entity_id": entity, "weight": -weight, "as_of": date} for weight, entity, date in sorted(rows)]


def test_every_token_is_there_once_in_the_stated_order(shop, table):
    found = shop.refs["postings"].table("postings.parquet")
    assert found.schema.equals(POSTINGS, check_metadata=True)
    names = ("level", "primitive_id", "entity_type", "weight", "entity_id", "as_of")
    expected = sorted(
        (tuple(row[name] for name in names) for row in table), key=lambda row: (*row[:3], -row[3], *row[4:])
    )
    assert [tuple(row[name] for name in names) for row in found.to_pylist()] == expected
    assert shop.refs["postings"].metrics["postings"] == len(table)


@pytest.mark.parametrize("days", [0, 10, 400])
@pytest.mark.parametrize("kind", ["user", "product", "advertiser"])
def test_entities_of_an_interest_are_those_whose_bag_of_that_time_holds_it(shop, table, days, kind):
    as_of = to_micros(T0) + days * MICROS_PER_DAY
    held = 0
    for primitive in ("L1-0000", "L2-0003", "L2-0015"):
        expected = by_hand(table, primitive, kind, as_of)
        held += len(expected)
        assert entities_of(shop.refs["postings"], primitive, kind, 10_000, as_of) == expected
        assert entities_of(shop.refs["postings"], primitive, kind, 3, as_of) == expected[:3]
        if days == 400:
            assert entities_of(shop.refs["postings"], primitive, kind, 3) == expected[:3]
    assert held
    assert entities_of(shop.refs["postings"], "L1-0000", kind, 3, to_micros(T0) - 1) == []


def test_few_row_groups_are_read_for_one_interest_and_chunks_change_no_row(shop, monkeypatch):
    monkeypatch.setattr(postings, "_GROUP", 50)
    small = shop.run("postings-small", postings, postings.Config(memory_limit="200MB"), ("tokens",))
    assert small.table("postings.parquet").equals(shop.refs["postings"].table("postings.parquet"))
    with pq.ParquetFile(small.file("postings.parquet")) as file:
        groups = list(postings._groups(file, "L2-0003", "product"))
        assert 0 < len(groups) < file.num_row_groups / 10
    whole = [entities_of(ref, "L2-0003", "user", 10_000) for ref in (small, shop.refs["postings"])]
    assert whole[0] == whole[1]


def test_equal_tokens_give_equal_bytes_however_many_threads(shop):
    again = shop.run("postings-again", postings, postings.Config(), ("tokens",), threads=2)
    files = [ref.manifest["files"]["postings.parquet"]["sha256"] for ref in (again, shop.refs["postings"])]
    assert files[0] == files[1]


def test_wrong_questions_are_answered_with_the_nearest_right_one(shop):
    found = Snapshot("s", {name: shop.refs[name].key for name in ("postings", "supergraph")}, "", "", 0)
    assert asked(shop.store, found, "L2-0003", "user", 2) == entities_of(shop.refs["postings"], "L2-0003", "user", 2)
    with pytest.raises(BadDataError, match=r"no primitive 'L2-0099'.*did you mean"):
        asked(shop.store, found, "L2-0099", "user")
    with pytest.raises(UsageError, match="did you mean 'user'"):
        entities_of(shop.refs["postings"], "L2-0003", "usr")
    with pytest.raises(UsageError, match="at least 1"):
        entities_of(shop.refs["postings"], "L2-0003", "user", 0)
    assert pa.types.is_int64(POSTINGS.field("until").type)
