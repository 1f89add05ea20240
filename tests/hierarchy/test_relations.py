"""Links of the planted shop, against plain loops over its events and the tokens that the shop publishes at T0."""

from collections import defaultdict

import numpy as np
import pytest
from scipy import sparse

from data.artifacts import Store
from data.schema import MICROS_PER_DAY, to_micros
from hierarchy import supergraph, tokens
from hierarchy.flow import strongest
from tests.fixtures import worlds
from tests.hierarchy.planted import T0, Shop

INPUTS = ("events", "graph", "features", "learner", "embeddings")
WEEK = 7 * MICROS_PER_DAY
BEFORE = to_micros(T0)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    shop = Shop(Store(tmp_path_factory.mktemp("relations")), worlds.world(), heads=2)
    shop.run("supergraph", supergraph, supergraph.Config(t0=T0, neighbours=16), INPUTS)
    shop.run("tokens", tokens, tokens.Config(), ("embeddings", "supergraph"))
    return shop


@pytest.fixture(scope="module")
def purchases(shop):
    """(user, product, advertiser, ts) of every purchase that was visible at T0."""
    owner = {row["product_id"]: row["advertiser_id"] for row in shop.world["products"].to_pylist()}
    return [
        (row["user_id"], row["product_id"], owner[row["product_id"]], row["ts"])
        for row in shop.world["events"].to_pylist()
        if row["event_type"] == "purchase" and max(row["ts"] + 1, row["known_at"]) <= BEFORE
    ]


@pytest.fixture(scope="module")
def bags(shop):
    """Level-2 bags at T0 as dense rows: (type, id) -> (16,)."""
    found = defaultdict(lambda: np.zeros(16))
    for row in shop.refs["tokens"].table("tokens/").to_pylist():
        if row["level"] == 2 and row["as_of"] <= BEFORE:
            found[row["entity_type"], row["entity_id"]][int(row["primitive_id"][3:])] = row["weight"]
    return found


def decay(ts):
    return 0.5 ** ((BEFORE - ts) // WEEK * 7 / 90)


def links(shop, relation, stage="supergraph"):
    edges = shop.refs[stage].table("primitive_edges.parquet").to_pylist()
    return {
        (edge["source"], edge["target"]): edge["weight"]
        for edge in edges
        if (edge["relation"], edge["level"]) == (relation, 2)
    }


def expected(matrix):
    names = [f"L2-{place:04d}" for place in range(16)]
    return {
        (names[source], names[target]): pytest.approx(float(weight), rel=1e-4)
        for source, target, weight in zip(*strongest(sparse.csr_array(matrix), 16), strict=True)
    }


def test_interests_of_users_lead_to_those_of_the_advertisers_whose_products_they_buy(shop, purchases, bags):
    matrix = np.zeros((16, 16))
    for user, product, advertiser, ts in purchases:
        if ("product", product) in bags:
            matrix += decay(ts) * np.outer(bags["user", user], bags["advertiser", advertiser])
    assert links(shop, "advertiser_purchase") == expected(matrix)


def test_interests_bought_in_one_week_are_linked(shop, purchases, bags):
    weeks = defaultdict(dict)
    for user, product, _, ts in purchases:
        if ("product", product) in bags:
            weeks[user, (BEFORE - ts) // WEEK][product] = decay(ts)
    matrix = np.zeros((16, 16))
    for met in weeks.values():
        for target, counted in met.items():
            others = [bags["product", product] for product in met if product != target]
            if others:
                matrix += counted * np.outer(np.mean(others, axis=0), bags["product", target])
    assert links(shop, "co_purchase") == expected(matrix)


def test_half_life_and_reach_change_what_they_are_said_to(shop):
    shop.run("alike", supergraph, supergraph.Config(t0=T0, neighbours=16, half_life_days=0), INPUTS)
    shop.run("last", supergraph, supergraph.Config(t0=T0, neighbours=16, reach=1), INPUTS)
    for relation in ("co_purchase", "then_purchase", "advertiser_purchase"):
        assert links(shop, relation, "alike") != links(shop, relation)
        assert (links(shop, relation, "last") != links(shop, relation)) == (relation == "then_purchase")


def test_an_event_type_without_events_has_no_links(shop):
    shop.run("clicks", supergraph, supergraph.Config(t0=T0, flows=("cart",)), INPUTS)
    relations = shop.refs["clicks"].table("primitive_edges.parquet")["relation"].to_pylist()
    assert set(relations) == {"parent"}
