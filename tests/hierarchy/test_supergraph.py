"""The vocabulary of the planted shop: its words, its tree, its flow, and a version that says what it holds."""

import numpy as np
import pyarrow.compute as pc
import pytest

from data.artifacts import Store
from data.errors import UsageError
from data.schema import PRIMITIVE_EDGES, PRIMITIVES
from hierarchy import supergraph
from hierarchy.levels import published
from tests.fixtures import worlds
from tests.hierarchy.planted import DEPARTMENTS, T0, TYPES, Shop

INPUTS = ("events", "graph", "features", "learner", "embeddings")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return Shop(Store(tmp_path_factory.mktemp("supergraph")), worlds.world())


@pytest.fixture(scope="module")
def made(shop):
    return shop.run("supergraph", supergraph, supergraph.Config(t0=T0), INPUTS)


def test_labels_are_the_planted_departments_and_types(shop, made):
    table = made.table("primitives.parquet")
    assert (table.schema.names, table.schema.metadata) == (PRIMITIVES.names, PRIMITIVES.metadata)
    rows = table.to_pylist()
    assert [row["label"] for row in rows if row["level"] == 1] == DEPARTMENTS
    assert [row["label"] for row in rows if row["level"] == 2] == [leaf for _, leaf in TYPES]
    assert rows[4]["primitive_id"] == "L2-0000"
    assert {"espresso", "beans"} <= set(rows[4]["top_terms"])
    titles = {row["product_id"]: row["title"] for row in shop.world["products"].to_pylist()}
    assert all("Espresso Beans" in titles[product] for product in rows[4]["top_products"][:4])


def test_the_tree_is_the_planted_one_and_masses_are_shares(made):
    rows = made.table("primitives.parquet").to_pylist()
    label = {row["primitive_id"]: row["label"] for row in rows}
    assert [(label[row["parent_id"]], row["label"]) for row in rows if row["level"] == 2] == TYPES
    for level in (1, 2):
        mass = np.array([row["mass"] for row in rows if row["level"] == level])
        assert mass.sum() == pytest.approx(1, abs=1e-5)
        assert (mass > 0).all()


def test_primitives_keep_soft_parents_and_the_first_is_the_hardened_one(shop, made):
    edges = made.table("primitive_edges.parquet")
    assert edges.schema.equals(PRIMITIVE_EDGES, check_metadata=True)
    rows = [row for row in made.table("primitives.parquet").to_pylist() if row["parent_id"]]
    parents = edges.filter(pc.equal(edges["relation"], "parent")).to_pylist()
    assert [edge["source"] for edge in parents] == [row["primitive_id"] for row in rows for _ in range(3)]
    assert [edge["target"] for edge in parents[::3]] == [row["parent_id"] for row in rows]
    names = [leaf for _, leaf in TYPES]
    for row, first in zip(rows, range(0, len(parents), 3), strict=True):
        vector = shop.direction[names[rows.index(row)]]
        soft = np.sort(np.exp([vector @ shop.direction[department] / 0.1 for department in DEPARTMENTS]))[::-1][:3]
        given = [edge["weight"] for edge in parents[first : first + 3]]
        np.testing.assert_allclose(given, soft / soft.sum(), atol=1e-5)
    none = shop.run("supergraph-one-parent", supergraph, supergraph.Config(t0=T0, parents=1), INPUTS)
    edges = none.table("primitive_edges.parquet")
    alone = edges.filter(pc.equal(edges["relation"], "parent"))
    assert (alone.num_rows, set(alone["weight"].to_pylist())) == (16, {1.0})


@pytest.mark.parametrize("relation", ["co_purchase", "then_purchase"])
def test_flow_stays_within_the_department_that_a_user_likes(made, relation):
    edges = [
        edge
        for edge in made.table("primitive_edges.parquet").to_pylist()
        if edge["relation"] == relation and edge["level"] == 2
    ]
    parent = {row["primitive_id"]: row["parent_id"] for row in made.table("primitives.parquet").to_pylist()}
    within = sum(edge["weight"] for edge in edges if parent[edge["source"]] == parent[edge["target"]])
    total = sum(edge["weight"] for edge in edges)
    assert total == pytest.approx(len({edge["source"] for edge in edges}), abs=1e-4)
    assert within > 0.7 * total


def test_every_kind_of_link_is_there_at_every_level_and_within_one(made):
    edges = made.table("primitive_edges.parquet")
    assert made.metrics["edges"].keys() == {"parent", "co_purchase", "then_purchase", "advertiser_purchase"}
    for edge in edges.to_pylist():
        assert edge["source"].startswith(f"L{edge['level']}-")
        assert edge["target"].startswith(f"L{edge['level'] - (edge['relation'] == 'parent')}-")
        assert 0 < edge["weight"] <= 1
    for relation in ("co_purchase", "then_purchase", "advertiser_purchase"):
        assert 2 in edges.filter(pc.equal(edges["relation"], relation))["level"].to_pylist()


def test_levels_say_how_tokens_are_made(made):
    levels = published(made)
    assert [(level.level, len(level.ids), level.top) for level in levels] == [(1, 4, 2), (2, 16, 4)]
    assert all(0.001 < level.tau < 1 for level in levels)
    assert [entry["active_share"] for entry in made.metrics["levels"]] == [1.0, 1.0]


def test_events_after_t0_change_nothing_in_the_vocabulary(made, world, tmp_path):
    past = Shop(Store(tmp_path), world, until=T0).run("supergraph", supergraph, supergraph.Config(t0=T0), INPUTS)
    for name in ("primitives.parquet", "primitive_edges.parquet", "levels.json"):
        assert past.manifest["files"][name]["sha256"] == made.manifest["files"][name]["sha256"]


def test_the_version_follows_the_content_not_the_key(shop, made, world, tmp_path):
    version = made.metrics["vocab_version"]
    assert set(made.table("primitives.parquet")["vocab_version"].to_pylist()) == {version}
    elsewhere = Shop(Store(tmp_path), world, key="other").run(
        "supergraph", supergraph, supergraph.Config(t0=T0), INPUTS
    )
    assert elsewhere.metrics["vocab_version"] == version
    softer = shop.run("supergraph-softer", supergraph, supergraph.Config(t0=T0, spread=0.9), INPUTS)
    assert softer.metrics["vocab_version"] != version
    assert [a.tau > b.tau for a, b in zip(published(softer), published(made), strict=True)] == [True, True]


def test_the_version_covers_how_tokens_are_made(made):
    table, levels = made.table("primitives.parquet"), made.json("levels.json")
    versions = set()
    for change in ({}, {"tau": 0.5}, {"top": 1}):
        changed = [levels[0] | change, levels[1]]
        versions.add(supergraph._versioned(table, changed)["vocab_version"][0].as_py())
    assert len(versions) == 3
    assert made.metrics["vocab_version"] in versions


def test_levels_of_unions_are_published_with_their_parts(shop, made, monkeypatch):
    monkeypatch.setattr(supergraph, "are_unions", lambda learner: True)
    united = shop.run("supergraph-united", supergraph, supergraph.Config(t0=T0), INPUTS)
    coarse, fine = published(united)
    rows = united.table("primitives.parquet", ["primitive_id", "parent_id"]).to_pylist()
    parents = {row["primitive_id"]: row["parent_id"] for row in rows}
    assert [coarse.ids[row].as_py() for row in coarse.united] == [parents[name] for name in fine.ids.to_pylist()]
    assert fine.united is None
    assert [level.united for level in published(made)] == [None, None]
    assert united.metrics["vocab_version"] != made.metrics["vocab_version"]


def test_temperatures_can_be_given_one_for_each_level(shop):
    given = shop.run("supergraph-given", supergraph, supergraph.Config(t0=T0, tau=(0.3, 0.2)), INPUTS)
    assert [level.tau for level in published(given)] == [0.3, 0.2]
    with pytest.raises(UsageError, match=r"one number for each of 2 levels"):
        shop.run("supergraph-wrong", supergraph, supergraph.Config(t0=T0, tau=(0.3,)), INPUTS)
