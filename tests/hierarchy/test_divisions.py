"""Hierarchy baselines on a planted tree: they find it, refuse what they cannot do, and tokens say what they chose."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy import sparse

from data.artifacts import Store
from data.errors import BadDataError, SystemStateError, UsageError
from data.schema import to_micros
from hierarchy import supergraph
from hierarchy.baselines import leiden
from hierarchy.baselines.division import branching, fit_map, membership_space, prefixes
from hierarchy.baselines.emission import emit, mapped, pooled
from hierarchy.baselines.leiden import Leiden, co_engagement_graph
from hierarchy.baselines.rq_kmeans import RqKmeans
from hierarchy.baselines.rq_vae import RqVae, Settings
from hierarchy.baselines.tree_kmeans import TreeKmeans
from hierarchy.kmeans import unit
from hierarchy.level_quality import nmi
from hierarchy.levels import published
from hierarchy.purchases import History
from hierarchy.token_retrieval import read_profiles
from tests.fixtures import worlds
from tests.hierarchy.planted import T0, Shop
from tests.hierarchy.planted_tree import SIZES, planted_tree

TREE = planted_tree()


def test_hierarchical_kmeans_recovers_every_level():
    made = TreeKmeans(TREE.vectors, SIZES, seed=0, restarts=4)
    for own, label in zip(made.assign(TREE.vectors), TREE.labels, strict=True):
        assert nmi(own, label) > 0.9
    again = TreeKmeans(TREE.vectors, SIZES, seed=0, restarts=4)
    assert all(np.array_equal(one, two) for one, two in zip(made.vectors, again.vectors, strict=True))


def test_more_restarts_never_fit_worse():
    def fit(restarts):
        return float((TREE.vectors @ TreeKmeans(TREE.vectors, SIZES, 5, restarts).vectors[-1].T).max(axis=1).mean())

    assert fit(6) >= fit(1) - 1e-6


def test_residual_codes_say_more_with_every_level():
    made = RqKmeans(TREE.vectors, SIZES, seed=0, restarts=4)
    errors = made.errors(TREE.vectors)
    assert errors[0] > 1.2 * errors[1] > 1.2 * errors[2] > 0
    spread = float(((TREE.vectors - TREE.vectors.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert errors[0] < spread
    assigned = made.assign(TREE.vectors)
    assert nmi(assigned[0], TREE.labels[0]) > 0.9
    assert [level.shape for level in made.vectors] == [(3, 24), (9, 24), (27, 24)]
    # A prefix goes on the one above it, and its vector is nearest to those products that it was given to.
    assert np.array_equal(assigned[2] // 3, assigned[1])
    own = (TREE.vectors * made.vectors[2][assigned[2]]).sum(axis=1)
    assert own.mean() > (TREE.vectors @ made.vectors[2].T).mean() + 0.5


def test_rq_vae_has_no_dead_code_and_finds_the_tree():
    before = torch.get_rng_state()
    made = RqVae(TREE.vectors, SIZES, seed=0, settings=Settings(hidden=64, code=16, steps=150, batch=256))
    assert torch.equal(before, torch.get_rng_state()), "the random state of others is left alone"
    for code, branch in zip(made.codes(TREE.vectors), made.branches, strict=True):
        assert len(np.unique(code)) == branch
    assigned = made.assign(TREE.vectors)
    assert nmi(assigned[0], TREE.labels[0]) > 0.8
    assert nmi(assigned[2], TREE.labels[2]) > 0.6
    own = (TREE.vectors * made.vectors[2][assigned[2]]).sum(axis=1)
    assert own.mean() > 0.7, "what a prefix stands for is like its products"


def test_rq_vae_gives_equal_bits_for_equal_seeds():
    short = Settings(steps=20, batch=64)
    one, two = (RqVae(TREE.vectors, SIZES, 3, short) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one.vectors, two.vectors, strict=True))


def test_prefix_codes_need_sizes_that_divide():
    assert branching((16, 64, 256)) == [16, 4, 4]
    codes = [np.array([0, 2]), np.array([1, 0]), np.array([2, 1])]
    assert [part.tolist() for part in prefixes(codes, [3, 3, 3])] == [[0, 2], [1, 6], [5, 19]]
    for method in (RqKmeans, RqVae):
        with pytest.raises(UsageError, match="multiples"):
            method(TREE.vectors, (3, 10), 0)
        with pytest.raises(BadDataError, match="expected at least 3 vectors"):
            method(TREE.vectors[:2], (3, 9), 0)


def _communities(groups=6, each=15, seed=0):
    """Weights within groups, fewer and lighter across."""
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(groups), each)
    same = label[:, None] == label
    held = rng.random(same.shape) < np.where(same, 0.6, 0.03)
    upper = np.triu(held * np.where(same, 1.0, 0.3), k=1)
    return sparse.csr_array(upper + upper.T), label


def test_leiden_finds_planted_communities_and_equal_sizes():
    pytest.importorskip("igraph")
    graph, label = _communities()
    content = unit(np.random.default_rng(1).standard_normal((len(label), 8)).astype(np.float32))
    content += np.eye(6, 8, dtype=np.float32)[label]
    made = Leiden(graph, unit(content), (6, 18), seed=0)
    coarse, fine = made.assign(unit(content))
    assert nmi(coarse, label) > 0.95
    assert fine.max() < 18
    assert len(np.unique(fine)) >= 14
    # What the graph does not know is with the community of the nearest content.
    later = np.eye(6, 8, dtype=np.float32)[[4]]
    assert nmi(made.assign(np.concatenate([unit(content), later]))[0][:-1], label) > 0.95
    assert made.assign(np.concatenate([unit(content), later]))[0][-1] == np.bincount(coarse[label == 4]).argmax()
    again = Leiden(graph, unit(content), (6, 18), seed=0)
    assert np.array_equal(again.assign(unit(content))[1], fine)
    with pytest.raises(BadDataError, match="expected at least 91 products"):
        Leiden(graph, unit(content), (6, 91), seed=0)


def test_without_igraph_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "igraph", None)
    with pytest.raises(SystemStateError, match="bench"):
        leiden._igraph()


def test_small_communities_join_those_they_are_tied_to():
    ties = sparse.lil_array(np.zeros((5, 5)))
    ties[0, 1] = ties[1, 0] = ties[2, 3] = ties[3, 2] = 1.0
    ties[2, 1] = ties[1, 2] = 0.5
    member = np.array([0, 0, 1, 1, 2])
    assert leiden._kept(member, sparse.csr_array(ties), 1).tolist() == [0, 0, 0, -1, -1]


def test_co_engagement_counts_occasions_and_keeps_the_strongest():
    user, product = np.array([0, 0, 0, 1, 1]), np.array([0, 1, 2, 0, 1])
    history = History(user, product, np.array([0.0, 0.5, 9.0, 1.0, 1.5]), 2, 4)
    plain = co_engagement_graph(history, window=7.0, power=0.0, neighbours=5).toarray()
    assert plain.tolist() == [[0, 2, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    whole = co_engagement_graph(history, window=100.0, power=0.5, neighbours=1).toarray()
    assert whole[0, 1] == whole[1, 0] == pytest.approx(1.0)
    assert whole[2].max() == pytest.approx(1 / np.sqrt(2)), "kept from one side is kept from both"


def test_a_map_scales_directions_by_their_power():
    vectors = np.array([[4, 0], [0, 1], [4, 1], [-4, 1]], np.float32)
    assert fit_map(vectors, 1, 0.0).matrix.shape == (2, 1)
    kept, whitened = fit_map(vectors, 2, 0.0).matrix, fit_map(vectors, 2, -1.0).matrix
    np.testing.assert_allclose(np.linalg.norm(kept, axis=0), [1, 1], rtol=1e-5)
    second = (vectors @ whitened).T @ (vectors @ whitened)
    assert second[0, 0] == pytest.approx(second[1, 1], rel=1e-4)
    np.testing.assert_allclose(np.linalg.norm(fit_map(vectors, 2, 0.5)(vectors), axis=1), 1, rtol=1e-5)


def test_in_the_space_of_memberships_the_nearest_primitive_is_the_own():
    rng = np.random.default_rng(0)
    fine = np.concatenate([np.arange(20), rng.integers(0, 20, 280)])
    coarse = np.where(rng.random(300) < 0.7, fine // 5, rng.integers(0, 4, 300))  # levels that do not nest
    members, primitives = membership_space([coarse, fine], (4, 20))
    for level, own in zip(primitives, (coarse, fine), strict=True):
        assert np.array_equal((members @ level.T).argmax(axis=1), own)
    most = [np.bincount(coarse[fine == p], minlength=4).argmax() for p in range(20)]
    assert np.mean((primitives[1] @ primitives[0].T).argmax(axis=1) == most) > 0.9
    lost, _ = membership_space([np.array([-1]), np.array([-1])], (4, 20))
    assert not lost.any()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return Shop(Store(tmp_path_factory.mktemp("emission")), worlds.world())


def _vectors(shop):
    rows = shop.world["products"].to_pylist()
    place = shop.nodes.encode("product", [row["product_id"] for row in rows])
    found = np.zeros((shop.nodes.num_nodes["product"], 16), np.float32)
    found[place] = [shop.product_vector(row["category"], row["product_id"]) for row in rows]
    return found


def _assigned(shop, refs, time):
    found, first = [], 0
    levels = published(refs["supergraph"])
    ids, weights = read_profiles(refs["tokens"], "product", levels, time)
    place = shop.nodes.encode("product", ids)
    for level in levels:
        own = np.full(shop.nodes.num_nodes["product"], -1)
        own[place] = weights[:, first : first + len(level.ids)].argmax(axis=1)
        found.append(own)
        first += len(level.ids)
    return found


def test_tokens_of_emitted_codes_are_the_codes(shop, tmp_path):
    vectors, t0 = _vectors(shop), to_micros(T0)
    made = RqKmeans(vectors, (4, 16), seed=0)
    assigned = made.assign(vectors)
    members, levels = membership_space(assigned, (4, 16))
    entities = pooled(shop.nodes, members, "purchase", [t0])
    config = supergraph.Config(t0=T0, tau=(0.05, 0.05))
    refs = emit(Store(tmp_path), "rq", shop.refs, entities, [(levels[0], 2), (levels[1], 4)], config)
    known = shop.nodes.known_at("product") <= t0
    for own, said in zip(assigned, _assigned(shop, refs, t0), strict=True):
        assert np.array_equal(own[known], said[known])
    table = refs["supergraph"].table("primitives.parquet", ["level", "primitive_id", "parent_id"]).to_pydict()
    parents = dict(zip(table["primitive_id"], table["parent_id"], strict=True))
    fine = published(refs["supergraph"])[1].ids.to_pylist()
    used = np.unique(assigned[1][known])
    assert all(parents[fine[p]].endswith(f"{p // 4:04d}") for p in used)


def test_emitted_users_are_the_mean_of_what_they_bought(shop):
    t0 = to_micros(T0)
    vectors = _vectors(shop)
    entities = pooled(shop.nodes, vectors, "purchase", [t0])
    people = entities[t0]["user"]
    events = shop.world["events"].to_pylist()
    user = people.entity_id[3].as_py()
    bought = [
        row["product_id"]
        for row in events
        if row["user_id"] == user and row["event_type"] == "purchase" and row["known_at"] <= t0 and row["ts"] < t0
    ]
    mean = vectors[shop.nodes.encode("product", pa.array(bought))].sum(axis=0)
    np.testing.assert_allclose(people.vectors[3, 0], mean / np.linalg.norm(mean), atol=1e-5)
    assert people.degree[3] == len(bought)
    image = fit_map(vectors, 3, 0.0)
    assert mapped(entities, image)[t0]["user"].vectors.shape == (len(people.entity_id), 1, 3)
