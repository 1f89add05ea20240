"""Retrieval through tokens: one-hot bags are a lookup, the score is the formula, and few products are looked at."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from data.artifacts import Store
from data.schema import TOKENS
from hierarchy.levels import Level
from hierarchy.token_retrieval import TokenIndex, TokenRetrieval, read_profiles, spread_over
from tests.fixtures.artifacts import make_ref, write_dates

AXES = np.eye(4, dtype=np.float32)


def csr(rows):
    return sparse.csr_array(np.array(rows, np.float32))


def test_one_hot_bags_are_a_lookup():
    own = np.array([0, 1, 2, 3, 1, 1, 0])
    index = TokenIndex(csr(AXES[own]), np.zeros(7, np.int64), prior=1.0)
    users = csr(AXES[[1, 3]])
    found = TokenRetrieval(index, spread_over(users, AXES, 1e-3, lists=1), budget=7)
    scores = found.scores(np.array([0, 1]))
    assert [np.flatnonzero(np.isfinite(row)).tolist() for row in scores] == [[1, 4, 5], [3]]
    assert np.isneginf(scores[1, 0])
    assert found.share_scored() == (3 + 1) / (2 * 7)


def test_the_score_is_the_formula():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((5, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    users, products = rng.random((3, 5)).astype(np.float32), rng.random((6, 5)).astype(np.float32)
    events = np.arange(6)
    spread = spread_over(csr(users), vectors, tau=0.5, lists=5)
    found = TokenIndex(csr(products), events, prior=0.5).scores(spread)
    for u in range(3):
        for i in range(6):
            near = [users[u] @ np.exp((vectors @ vectors[q] - 1) / 0.5) for q in range(5)]
            assert found[u, i] == pytest.approx((1 + events[i]) ** 0.5 * (near @ products[i]), rel=1e-4)


def test_a_spread_profile_keeps_its_strongest_primitives():
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1]], np.float32)
    spread = spread_over(csr([[1, 0, 0]]), vectors, tau=0.2, lists=2).toarray()[0]
    assert spread[0] == pytest.approx(1.0)
    assert spread[1] == pytest.approx(np.exp(-1.0), rel=1e-4)
    assert spread[2] == 0


def test_lists_are_read_in_order_of_impact_until_the_budget():
    weights = [[0.9, 0.0], [0.5, 0.4], [0.1, 0.8], [0.0, 0.3]]
    index = TokenIndex(csr(weights), np.zeros(4, np.int64), prior=0.0)
    both = np.array([0, 1])
    assert index.candidates(both, np.array([1.0, 0.5], np.float32), 3).tolist() == [0, 1, 2]
    assert index.candidates(both, np.array([0.2, 1.0], np.float32), 2).tolist() == [2, 1]
    assert index.candidates(both, np.array([0.2, 1.0], np.float32), 9).tolist() == [2, 1, 3, 0]
    assert index.candidates(both[:0], np.zeros(0, np.float32), 9).tolist() == []
    popular = TokenIndex(csr(weights), np.array([0, 0, 99, 0]), prior=1.0)
    assert popular.candidates(both, np.array([1.0, 0.0], np.float32), 1).tolist() == [2]


def test_another_scorer_ranks_within_the_candidates_only():
    class Fixed:
        def scores(self, users):
            return np.tile(np.array([5.0, 1.0, 9.0], np.float32), (len(users), 1))

    index = TokenIndex(csr([[1, 0], [1, 0], [0, 1]]), np.zeros(3, np.int64), 0.0)
    scores = TokenRetrieval(index, csr([[1, 0]]), 2, within=Fixed()).scores(np.array([0]))
    assert scores.tolist() == [[5.0, 1.0, -np.inf]]


def test_profiles_are_the_newest_bags_of_the_levels_asked_for(tmp_path):
    said = {"residual": 0.0, "rank": 0, "vocab_version": "", "model_version": ""}
    names = ("entity_id", "entity_type", "level", "primitive_id", "weight", "as_of")
    rows = [
        ("p1", "product", 1, "A", 1.0, 1),
        ("p1", "product", 2, "a", 0.25, 1),
        ("p1", "product", 1, "B", 1.0, 5),
        ("p1", "product", 2, "b", 0.75, 5),
        ("p1", "product", 2, "a", 1.0, 9),
        ("p2", "product", 2, "a", 0.5, 1),
        ("u1", "user", 2, "a", 0.5, 1),
    ]
    table = pa.Table.from_pylist([said | dict(zip(names, row, strict=True)) for row in rows], schema=TOKENS)
    ref = make_ref(Store(tmp_path), "tokens", lambda out: write_dates(out, "tokens/", table))
    fine = Level(2, pa.array(["a", "b"]), AXES[:2], 1, 0.1)
    ids, weights = read_profiles(ref, "product", [fine], time=6)
    assert (ids.to_pylist(), weights.toarray().tolist()) == (["p1", "p2"], [[0, 0.75], [0.5, 0]])
    coarse = Level(1, pa.array(["A", "B"]), AXES[:2], 1, 0.1)
    assert read_profiles(ref, "product", [coarse, fine], 6).weights.toarray()[0].tolist() == [0, 1, 0, 0.75]
