"""Canaries planted in the future reach no statistic that retrieval is compared on: popularity, recency, novelty."""

import numpy as np
import pyarrow.compute as pc
import pytest

import graph.build
from data.artifacts import Store
from data.context import RunContext
from data.generator import write
from data.generator.config import Config
from graph.store import GraphStore
from hierarchy.purchases import history_at, products_with_events
from tests.fixtures.artifacts import make_ref

CONFIG = Config(users=200, products=150, events=40_000, days=20, canaries=2000, canary_day=12)
LIMIT = CONFIG.midnight(CONFIG.canary_day)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The graph of a log with canaries, and of the same log without."""
    store = Store(tmp_path_factory.mktemp("leaks"))

    def made(config, key):
        inputs = {"events": make_ref(store, "events", lambda out: write.artifact(config, out), key)}
        run, options = graph.build.run, graph.build.Config()
        return GraphStore.open(make_ref(store, "graph", lambda out: run(options, inputs, out, RunContext()), key))

    return made(CONFIG, "planted"), made(CONFIG.model_copy(update={"canaries": 0}), "clean")


@pytest.mark.parametrize("event_type", ["view", "click", "purchase"])
def test_popularity_and_recency_are_those_of_the_log_without_canaries(stores, event_type):
    planted, clean = (history_at(store, event_type, LIMIT - 1) for store in stores)
    assert len(planted.age) == len(clean.age) > 150
    np.testing.assert_array_equal(np.sort(planted.age), np.sort(clean.age))
    for window in (None, 7.0):
        one, other = planted.popularity(window), clean.popularity(window)
        np.testing.assert_array_equal(one[: len(other)][other > 0], other[other > 0])
        assert one.sum() == other.sum()


def test_a_canary_has_no_event_before_its_time_and_has_some_after(stores):
    store = stores[0]
    canary = pc.starts_with(store.entity_ids("product"), "canary").to_numpy(zero_copy_only=False)
    assert not products_with_events(store, LIMIT - 1)[canary].any()
    assert products_with_events(store, LIMIT + 10**13)[canary].all()
    assert history_at(store, "purchase", LIMIT + 10**13).popularity()[canary].sum() > 10
