"""Bags of meaning: exact weights, one sort order, and nothing in a bag that was not known at its date."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from data.artifacts import Store
from data.errors import UsageError
from data.schema import MICROS_PER_DAY, TOKENS, to_micros
from hierarchy import supergraph, tokens
from hierarchy.levels import published
from tests.fixtures import worlds
from tests.hierarchy.planted import T0, Shop

INPUTS = ("embeddings", "supergraph")


def shop_with_tokens(store, world, **options):
    shop = Shop(store, world, **options)
    shop.run(
        "supergraph", supergraph, supergraph.Config(t0=T0), ("events", "graph", "features", "learner", "embeddings")
    )
    shop.run("tokens", tokens, tokens.Config(), INPUTS)
    return shop


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return shop_with_tokens(Store(tmp_path_factory.mktemp("tokens")), worlds.world(), heads=2)


def by_hand(vectors, level):
    """The bag of an entity's heads (H, d), in double precision."""
    logits = vectors.astype(np.float64) @ level.vectors.astype(np.float64).T / level.tau
    share = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    mean = share.mean(axis=0)
    best = np.argsort(-mean, kind="stable")[: level.top]
    return level.ids.take(pa.array(best)).to_pylist(), mean[best] / mean[best].sum(), 1 - mean[best].sum()


def test_every_bag_is_the_cut_softmax_of_its_embeddings_heads_merged(shop):
    embeddings = shop.refs["embeddings"].table("embeddings/").to_pylist()
    heads: dict = {}
    for row in embeddings:
        heads.setdefault((row["entity_type"], row["entity_id"], row["as_of"]), []).append(row["vector"])
    bags: dict = {}
    for row in shop.refs["tokens"].table("tokens/").to_pylist():
        bags.setdefault((row["entity_type"], row["entity_id"], row["as_of"]), {}).setdefault(row["level"], []).append(
            row
        )
    assert bags.keys() == heads.keys()
    assert {len(rows) for key, rows in heads.items() if key[0] == "user"} == {2}
    levels = published(shop.refs["supergraph"])
    for key in sorted(heads)[::17]:
        for level in levels:
            rows = bags[key][level.level]
            ids, weights, residual = by_hand(np.array(heads[key], np.float32), level)
            np.testing.assert_allclose([row["weight"] for row in rows], weights, atol=2e-5)
            np.testing.assert_allclose([row["residual"] for row in rows], residual, atol=2e-5)
            assert [row["rank"] for row in rows] == list(range(level.top))
            if np.diff(weights).max() < -1e-4:
                assert [row["primitive_id"] for row in rows] == ids


def test_rows_are_sorted_and_carry_both_versions(shop):
    table = shop.refs["tokens"].table("tokens/")
    assert (table.schema.names, table.schema.metadata) == (TOKENS.names, TOKENS.metadata)
    keys = [(name, "ascending") for name in ("as_of", "entity_type", "entity_id", "level", "rank")]
    assert table.equals(table.take(pc.sort_indices(table, keys)))
    assert pc.unique(table["model_version"]).to_pylist() == ["planted"]
    assert pc.unique(table["vocab_version"]).to_pylist() == [shop.refs["supergraph"].metrics["vocab_version"]]


def test_a_products_strongest_primitives_are_its_department_and_type(shop):
    labels = {r["primitive_id"]: r["label"] for r in shop.refs["supergraph"].table("primitives.parquet").to_pylist()}
    category = {row["product_id"]: row["category"] for row in shop.world["products"].to_pylist()}
    filters = (pc.field("entity_type") == "product") & (pc.field("rank") == 0)
    rows = shop.refs["tokens"].table("tokens/", filters=filters).to_pylist()
    right = [labels[row["primitive_id"]] == category[row["entity_id"]][0 if row["level"] == 1 else -1] for row in rows]
    assert np.mean(right) == 1.0


def test_row_groups_are_small_and_their_bounds_find_an_entity(shop, monkeypatch):
    monkeypatch.setattr(tokens, "_ROWS", 60)
    ref = shop.run("tokens-small", tokens, tokens.Config(), INPUTS)
    assert ref.table("tokens/").equals(shop.refs["tokens"].table("tokens/")), "chunks change no bit"
    file = pq.ParquetFile(ref.file(ref.names("tokens/")[0]))
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    assert max(sizes) <= 60
    assert all(file.metadata.row_group(group).column(0).statistics.has_min_max for group in range(file.num_row_groups))


def test_deleting_the_future_leaves_every_earlier_bag_as_it_was(shop, world, tmp_path):
    cut = T0.replace(day=T0.day + 16)
    past = shop_with_tokens(Store(tmp_path), world, until=cut, heads=2)
    kept = pc.field("as_of") <= to_micros(cut) - MICROS_PER_DAY
    known, whole = (s.refs["tokens"].table("tokens/", filters=kept) for s in (past, shop))
    assert len(pc.unique(known["as_of"])) == 3
    assert known.equals(whole)


def test_equal_inputs_give_equal_bytes(shop, world, tmp_path):
    again = shop_with_tokens(Store(tmp_path), world, heads=2)
    files = [
        {name: listed["sha256"] for name, listed in s.refs["tokens"].manifest["files"].items()} for s in (shop, again)
    ]
    assert files[0] == files[1]


def test_the_metrics_say_how_spread_bags_are(shop):
    levels = shop.refs["tokens"].metrics["levels"]
    assert [level["level"] for level in levels] == [1, 2]
    for level in levels:
        assert 0.05 < level["mean_entropy"] < np.log(level["top"])
        assert 0 < level["mean_residual"] < 0.5


def test_fewer_primitives_can_be_kept_and_more_than_there_are_cannot(shop):
    ref = shop.run("tokens-top", tokens, tokens.Config(top=(1, 99)), INPUTS)
    first = ref.table("tokens/").slice(0, 17).to_pylist()
    assert [row["level"] for row in first] == [1] + [2] * 16
    assert first[0]["weight"] == 1.0
    assert first[1]["residual"] == pytest.approx(0, abs=1e-5)
    with pytest.raises(UsageError, match="one number for each of 2 levels"):
        shop.run("tokens-wrong", tokens, tokens.Config(top=(1,)), INPUTS)
