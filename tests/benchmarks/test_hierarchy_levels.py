"""The hierarchy benchmark on a planted shop: every part of it writes the rows it should, and figures are right."""

import csv

import pytest

from data import snapshot
from data.artifacts import Store
from data.errors import UsageError
from flows.config import load_config
from hierarchy import supergraph, tokens
from tests.benchmarks.hierarchy import _named
from tests.benchmarks.hierarchy_levels.bench import Bench
from tests.benchmarks.hierarchy_levels.ground import Ground, from_stores
from tests.benchmarks.hierarchy_levels.methods import LEARNER, METHODS, NAMES
from tests.fixtures import worlds
from tests.fixtures.artifacts import make_ref
from tests.hierarchy.planted import T0, T1, T2, Shop


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    base = tmp_path_factory.mktemp("levels")
    shop = Shop(Store(base / "store"), worlds.world())
    shop.run(
        "supergraph", supergraph, supergraph.Config(t0=T0), ("events", "graph", "features", "learner", "embeddings")
    )
    shop.run("tokens", tokens, tokens.Config(), ("embeddings", "supergraph"))
    cuts = {"t0": T0.isoformat(), "t1": T1.isoformat(), "t2": T2.isoformat()}
    config = load_config({"cuts": cuts, "events": {"source": "completejourney"}}, None, {})
    ground = Ground("shop", config, [shop.refs])
    # The planted log names no source, so it says nothing of its clock.
    ground.__dict__["clock"] = True
    bench = Bench(ground, base / "results", base / "emitted", seeds=2, count=3, users=40)
    bench.product_graph()
    bench.learner()
    for name in ("hierarchical k-means, content", "hierarchical k-means, learner's vectors", "RQ-k-means, content"):
        bench.baseline(next(method for method in METHODS if method.name == name))
    found = {}
    for name in ("hierarchy", "hierarchy_trials"):
        with open(base / "results" / f"{name}.csv", newline="", encoding="utf-8") as stream:
            found[name] = list(csv.DictReader(stream))
    return found


def value(rows, peer, metric, what=""):
    (found,) = [
        row for row in rows["hierarchy"] if (row["peer"], row["metric"]) == (peer, metric) and what in row["what"]
    ]
    return float(found["p50"])


def test_planted_primitives_agree_with_the_categories(rows):
    for level in ("level 1", "level 2"):
        assert value(rows, LEARNER, "NMI with categories", level) == 1.0
        assert value(rows, LEARNER, "active", level) == 1.0
    assert value(rows, "hierarchical k-means, content", "NMI with categories", "level 2") > 0.9
    assert value(rows, "RQ-k-means, content", "nesting", "level 2") == 1.0


def test_tokens_find_much_of_what_vectors_find_among_a_tenth(rows):
    for peer in (LEARNER, "RQ-k-means, content"):
        assert value(rows, peer, "vectors' recall@100") > 0
        assert value(rows, peer, "tokens only: products scored") <= 0.1001
        share = value(rows, peer, "tokens propose, vectors rank: share of the vectors'")
        assert share == pytest.approx(
            value(rows, peer, "tokens propose, vectors rank: recall@100") / value(rows, peer, "vectors' recall@100"),
            rel=1e-3,
        )


def test_vectors_told_from_tokens_rank_as_few_products(rows):
    for name in ("tokens only, decoded", "tokens of products, decoded"):
        for peer in (LEARNER, "hierarchical k-means, content"):
            assert 0 < value(rows, peer, f"{name}: products scored") <= 0.1001
            assert value(rows, peer, f"{name}: recall@100") > 0
        # Residual codes have axes for vectors: nothing can be told from those.
        own = [row["metric"] for row in rows["hierarchy"] if row["peer"] == "RQ-k-means, content"]
        assert not [metric for metric in own if metric.startswith(name)]


def test_the_primitive_graph_is_denser_than_the_product_graph(rows):
    sparse = value(rows, "", "density")
    assert 0 < sparse < value(rows, LEARNER, "density", "level 1") <= 1.0
    assert value(rows, "", "drift, JS a month") > value(rows, LEARNER, "drift, JS a month", "level 1")


def test_every_trial_is_kept_and_seeds_have_a_spread(rows):
    assert len(rows["hierarchy_trials"]) == 3 * 3
    own = [row for row in rows["hierarchy"] if row["peer"] == "RQ-k-means, content"]
    assert all(row["p20"] and row["p80"] and "2 seeds" in row["shape"] for row in own)


def test_draws_are_distinct_and_begin_with_the_plain_setting():
    for method in METHODS:
        drawn = method.draws(20)
        assert drawn[0] == {name: values[0] for name, values in method.options.items()}
        assert len(drawn) == 20
        assert len({tuple(setting.items()) for setting in drawn}) == 20
        assert drawn == method.draws(20)


def test_methods_are_named_by_their_beginnings():
    assert _named("") == list(NAMES)
    assert _named("learner; RQ") == ["learner", "RQ-k-means, content", "RQ-VAE, content"]
    with pytest.raises(UsageError, match="no method 'louvain'"):
        _named("louvain")


def test_a_store_made_with_another_t0_is_refused(tmp_path):
    store = Store(tmp_path)

    def written(stage):
        def write(out):
            out.write_json("learner.json", {"config": {"t0": "2020-01-01T00:00:00Z"}})
            return {"name": "completejourney"}

        return make_ref(store, stage, write)

    names = ("events", "graph", "features", "learner", "embeddings", "supergraph", "tokens")
    snapshot.publish(store, {name: written(name) for name in names}, "v", "m", 0)
    with pytest.raises(UsageError, match="expected a store made with t0 2017"):
        from_stores([tmp_path])
