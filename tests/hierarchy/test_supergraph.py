"""The vocabulary of the planted shop: its words, its tree, its flow, and a version that says what it holds."""

import numpy as np
import pyarrow.compute as pc
import pytest

from data import synthetic
from data.artifacts import Store
from data.errors import UsageError
from data.schema import PRIMITIVE_EDGES, PRIMITIVES
from hierarchy import supergraph
from hierarchy.levels import published
from tests.hierarchy.planted import DEPARTMENTS, T0, TYPES, Shop

INPUTS = ("events", "graph", "features", "learner", "embeddings")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return Shop(Store(tmp_path_factory.mktemp("supergraph")), synthetic.world())


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
    edges = made.table("primitive_edges.parquet")
    assert edges.schema.equals(PRIMITIVE_EDGES, check_metadata=True)
    parents = edges.filter(pc.equal(edges["relation"], "parent")).to_pylist()
    assert {(e["source"], e["target"]) for e in parents} == {
        (r["primitive_id"], r["parent_id"]) for r in rows if r["parent_id"]
    }
    assert all(edge["weight"] == pytest.approx(0.8, abs=1e-5) for edge in parents)


def test_flow_stays_within_the_department_that_a_user_likes(made):
    edges = [
        e
        for e in made.table("primitive_edges.parquet").to_pylist()
        if e["relation"] == "co_purchase" and e["level"] == 2
    ]
    parent = {row["primitive_id"]: row["parent_id"] for row in made.table("primitives.parquet").to_pylist()}
    within = sum(edge["weight"] for edge in edges if parent[edge["source"]] == parent[edge["target"]])
    total = sum(edge["weight"] for edge in edges)
    assert total == pytest.approx(len({edge["source"] for edge in edges}), abs=1e-4)
    assert within > 0.7 * total
    assert made.metrics["edges"].keys() == {"parent", "co_purchase"}


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


def test_temperatures_can_be_given_one_for_each_level(shop):
    given = shop.run("supergraph-given", supergraph, supergraph.Config(t0=T0, tau=(0.3, 0.2)), INPUTS)
    assert [level.tau for level in published(given)] == [0.3, 0.2]
    with pytest.raises(UsageError, match=r"one number for each of 2 levels"):
        shop.run("supergraph-wrong", supergraph, supergraph.Config(t0=T0, tau=(0.3,)), INPUTS)
