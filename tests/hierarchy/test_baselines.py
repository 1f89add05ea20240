"""Baselines against their formulas on small dense arrays, and the history they all rest on."""

import numpy as np
import pytest

from data.schema import MICROS_PER_DAY as DAY
from hierarchy.baselines.content import ContentOnly
from hierarchy.baselines.item_knn import ItemKnn
from hierarchy.baselines.own_frequency import OwnFrequency
from hierarchy.baselines.popularity import Popularity
from hierarchy.kmeans import unit
from hierarchy.purchases import History, bought_between, history_at, products_with_events
from tests.hierarchy.planted import Shop


def history(*events, users=4, products=6):
    """Events (user, product, age in days)."""
    user, product, age = zip(*events, strict=True) if events else ((), (), ())
    return History(np.array(user, np.int64), np.array(product, np.int64), np.array(age, float), users, products)


def random_history(seed=0, count=120, users=7, products=11):
    rng = np.random.default_rng(seed)
    events = zip(
        rng.integers(0, users, count), rng.integers(0, products, count), rng.uniform(0, 90, count), strict=True
    )
    return history(*events, users=users, products=products)


def test_popularity_counts_events_within_its_window():
    known = history((0, 1, 5), (1, 1, 50), (2, 2, 5), (3, 2, 6), (3, 3, 80))
    assert Popularity(known).scores(np.array([0, 3])).tolist() == [[0, 2, 2, 1, 0, 0]] * 2
    assert Popularity(known, window=28).scores(np.array([0])).tolist() == [[0, 1, 2, 0, 0, 0]]


def test_own_frequency_puts_a_users_habits_first_and_the_rest_by_popularity():
    known = history((0, 1, 5), (0, 1, 50), (0, 4, 1), (1, 2, 5), (2, 2, 6), (2, 3, 6))
    order = np.argsort(-OwnFrequency(known).scores(np.array([0, 3])), axis=1, kind="stable")
    assert order[0].tolist()[:4] == [1, 4, 2, 3]
    assert order[1].tolist()[:2] == [1, 2]
    recent = OwnFrequency(known, half_life=5).scores(np.array([0]))[0]
    assert recent[4] > recent[1] > recent[2], "one purchase of yesterday outweighs two that are older"


@pytest.mark.parametrize(("source", "target", "half_life"), [(0.5, 0.3, 60.0), (0.2, 0.9, None)])
def test_item_knn_is_its_formula_without_ever_forming_the_matrix(source, target, half_life):
    known = random_history()
    occasion = {}
    for user, product, age in zip(known.user, known.product, known.age, strict=True):
        occasion.setdefault((user, age // 7), set()).add(product)
    together = np.zeros((11, 11))
    for products in occasion.values():
        together[np.ix_(sorted(products), sorted(products))] += 1
    times = np.maximum(together.diagonal(), 1)
    profile = np.zeros((7, 11))
    decay = np.ones(120) if half_life is None else 2.0 ** (-known.age / half_life)
    np.add.at(profile, (known.user, known.product), decay)
    want = (profile / times**source) @ (together / times**target)
    users = np.array([6, 0, 3])
    np.testing.assert_allclose(
        ItemKnn(known, source, target, 7.0, half_life).scores(users), want[users], rtol=1e-4, atol=1e-5
    )


def test_item_knn_falls_back_on_popularity_for_a_user_without_history():
    known = history((0, 1, 5), (1, 1, 9), (1, 2, 9))
    assert ItemKnn(known, 0.5, 0.5, 7.0, None).scores(np.array([3]))[0].argmax() == 1


def test_content_only_is_the_cosine_with_the_mean_of_the_history():
    content = unit(np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32))
    content[5] = 0
    known = history((0, 1, 5), (0, 1, 6), (0, 2, 80))
    want = unit((2 * content[1] + content[2])[None]) @ content.T
    found = ContentOnly(known, content).scores(np.array([0, 2]))
    np.testing.assert_allclose(found[0], want[0], rtol=1e-5, atol=1e-6)
    assert not found[1].any()
    assert found[0, 5] == 0


def test_nothing_breaks_without_any_history():
    none, users = history(), np.array([0, 1])
    for method in (
        Popularity(none),
        OwnFrequency(none),
        ItemKnn(none, 0.5, 0.5, 7.0, 60.0),
        ContentOnly(none, np.ones((6, 2))),
    ):
        assert method.scores(users).shape == (2, 6)
        assert np.isfinite(method.scores(users)).all()


def test_a_history_holds_what_was_visible_and_what_came_after_is_asked_for(store, world):
    """Some purchases are known an hour late: at their own time they belong to neither side."""
    shop = Shop(store, world)
    events = [row for row in world["events"].to_pylist() if row["event_type"] == "purchase"]
    late = next(row for row in events if row["known_at"] > row["ts"])
    as_of = late["ts"] + DAY // 48
    known = history_at(shop.nodes, "purchase", as_of)
    assert len(known.user) == sum(max(row["ts"] + 1, row["known_at"]) <= as_of for row in events)
    assert known.age.min() >= 0
    asked = bought_between(shop.nodes, "purchase", as_of, as_of + 7 * DAY)
    pairs = {(row["user_id"], row["product_id"]) for row in events if as_of <= row["ts"] < as_of + 7 * DAY}
    assert asked.nnz == len(pairs)
    assert asked.data.all()


def test_a_product_is_named_by_any_event_even_an_impression(store, world):
    shop = Shop(store, world)
    shown = next(row for row in world["events"].to_pylist() if row["product_id"])
    assert shown["event_type"] == "impression"
    node = shop.nodes.encode("product", [shown["product_id"]])
    assert not products_with_events(shop.nodes, shown["ts"]).any()
    named = products_with_events(shop.nodes, shown["ts"] + 1)
    assert named[node].all()
    assert not named.all()
