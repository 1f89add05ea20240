"""The index artifact: row numbers as ids, words from the catalogue, and a check of its own recall."""

import numpy as np
import pytest

from data import vectors
from data.artifacts import Store
from data.errors import BadDataError
from hierarchy import index, supergraph
from tests.fixtures import worlds
from tests.hierarchy.planted import DEPARTMENTS, T0, Shop

INPUTS = ("events", "embeddings", "supergraph")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    shop = Shop(Store(tmp_path_factory.mktemp("index")), worlds.world(), heads=2)
    shop.run(
        "supergraph", supergraph, supergraph.Config(t0=T0), ("events", "graph", "features", "learner", "embeddings")
    )
    shop.run("index", index, index.Config(), INPUTS)
    return shop


def test_each_type_has_as_many_vectors_as_rows_and_its_ids_are_row_numbers(shop):
    ref = shop.refs["index"]
    sizes = {"product": 80, "user": 120, "advertiser": 8, "primitive": 20}
    for kind, size in sizes.items():
        found = ref.array(f"vectors_{kind}.npy")
        table = ref.table(f"entities_{kind}.parquet")
        assert len(found) == table.num_rows == size
        ids = table["entity_id"].to_pylist()
        assert ids == sorted(ids)
        _, rows = vectors.search(vectors.load(ref.file(f"{kind}.faiss")), np.asarray(found[[3, 5]]), 1)
        np.testing.assert_allclose(found[rows[:, 0]], found[[3, 5]], atol=1e-6)
        assert ref.metrics[kind] == {"vectors": size, "heads": 2 if kind == "user" else 1, "recall@10": 1.0}
    assert ref.metrics["as_of"] == shop.refs["embeddings"].metrics["last_as_of"]


def test_vectors_are_the_newest_of_each_entity(shop):
    rows = shop.refs["embeddings"].table("embeddings/").to_pylist()
    newest = {(row["entity_id"], row["head"]): row["vector"] for row in rows if row["entity_type"] == "user"}
    ids = shop.refs["index"].table("entities_user.parquet")["entity_id"].to_pylist()
    want = [newest[entity, place % 2] for place, entity in enumerate(ids)]
    np.testing.assert_array_equal(shop.refs["index"].array("vectors_user.npy"), np.array(want, np.float32))


def test_rows_carry_the_words_of_the_catalogue(shop):
    ref = shop.refs["index"]
    catalogue = {row["product_id"]: row for row in shop.world["products"].to_pylist()}
    for row in ref.table("entities_product.parquet").to_pylist():
        known = catalogue[row["entity_id"]]
        assert row["title"] == known["title"]
        assert row["category"] == " > ".join(known["category"])
        assert row["advertiser_id"] == known["advertiser_id"]
    advertiser = ref.table("entities_advertiser.parquet").to_pylist()[0]
    assert advertiser == {"entity_id": "a00", "title": "Drinks House 0", "advertiser_id": "a00", "category": "Drinks"}
    primitives = ref.table("entities_primitive.parquet").to_pylist()
    assert [row["title"] for row in primitives[:4]] == DEPARTMENTS
    assert (primitives[4]["title"], primitives[4]["category"]) == ("Espresso Beans", "Drinks")
    assert ref.table("entities_user.parquet")["title"].null_count == 120


def test_an_index_that_finds_too_little_is_not_published(shop, monkeypatch):
    monkeypatch.setattr(vectors, "exact_recall", lambda *_: 0.5)
    with pytest.raises(BadDataError, match=r"recall@10 of at least 0.9, got 0.500"):
        shop.run("index-bad", index, index.Config(), INPUTS)
