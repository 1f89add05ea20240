"""Training-free retrieval methods against their formulas on small dense arrays."""

import dataclasses

import numpy as np
import pytest

from data.errors import SystemStateError
from hierarchy.baselines.blend import Blend
from hierarchy.baselines.cheby_cf import ChebyCf, coefficients
from hierarchy.baselines.content import ContentOnly
from hierarchy.baselines.directional_knn import DirectionalKnn
from hierarchy.baselines.ease import Ease
from hierarchy.baselines.gf_cf import GfCf
from hierarchy.baselines.item_knn import ItemKnn
from hierarchy.baselines.novelty import Novelty
from hierarchy.baselines.popularity import Popularity
from hierarchy.baselines.spectral import Spectral
from hierarchy.baselines.transition_graph import TransitionGraph
from hierarchy.directional import DirectionalSettings
from hierarchy.kmeans import unit
from hierarchy.spectral import SpectralSettings
from tests.hierarchy.test_baselines import history, random_history
from tests.hierarchy.test_directional import looped, sequences
from tests.hierarchy.test_evaluate import Fixed

USERS = np.arange(7)


def binary(known):
    return (known.matrix().toarray() > 0).astype(np.float64)


def smoothed(known):
    """R~ with both exponents one half, and the degrees of products."""
    taken = binary(known)
    users, items = (np.maximum(taken.sum(axis=axis), 1) for axis in (1, 0))
    return taken / np.sqrt(users)[:, None] / np.sqrt(items), items


def test_ease_is_the_constrained_least_squares_solution():
    """Column by column: ridge regression on all other products, the diagonal exactly zero."""
    known = random_history()
    taken = binary(known)
    want = np.zeros((11, 11))
    for item in range(11):
        others = np.arange(11) != item
        gram = taken[:, others].T @ taken[:, others] + 3.0 * np.eye(10)
        want[others, item] = np.linalg.solve(gram, taken[:, others].T @ taken[:, item])
    found = Ease(known, 3.0).scores(USERS)
    np.testing.assert_allclose(found, known.matrix().toarray() @ want, rtol=1e-3, atol=1e-4)


def test_novelty_puts_what_a_user_had_behind_everything_else():
    known = random_history()
    later = dataclasses.replace(known, product=(known.product + 1) % known.num_products)
    for scorer, what in ((Novelty(known), known), (Novelty(known).grown(later), later)):
        np.testing.assert_array_equal(scorer.scores(USERS), -binary(what)[USERS])


def test_ease_refuses_before_it_takes_memory_it_may_not_have():
    with pytest.raises(SystemStateError, match=r"12.* GiB for 40,981 products, more than the 8 GiB"):
        Ease(history((0, 1, 1), products=40_981), 100.0)


@pytest.mark.parametrize("power", [0.0, 0.25])
def test_gf_cf_is_its_dense_formula(power):
    known = random_history()
    matrix, items = smoothed(known)
    right = np.linalg.svd(matrix)[2][:3]
    own = known.matrix().toarray()
    linear = (own / items**power) @ (matrix.T @ matrix) * items**power
    want = linear + 0.3 * (own / items**0.5) @ (right.T @ right) * items**0.5
    np.testing.assert_allclose(GfCf(known, 0.3, 3, power).scores(USERS), want, rtol=1e-3, atol=1e-5)


def test_cheby_cf_is_a_polynomial_of_the_laplacian_that_meets_its_target_at_the_nodes():
    known = random_history()
    matrix, items = smoothed(known)
    values, vectors = np.linalg.eigh(np.eye(11) - 2 * matrix.T @ matrix)
    series = coefficients(6, 1.5).astype(np.float64)
    passed = vectors @ np.diag(np.polynomial.chebyshev.chebval(values, series)) @ vectors.T
    right = np.linalg.svd(matrix)[2][:2]
    want = (known.matrix().toarray() / items**0.4) @ (passed + 0.2 * right.T @ right) * items**0.4
    found = ChebyCf(known, 6, 1.5, 2, 0.2, 0.4).scores(USERS)
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4)
    nodes = np.cos((6.5 - np.arange(7)) / 7 * np.pi)
    points = np.cos((6 - np.arange(7)) / 6 * np.pi).round(3)
    target = 0.5 - 0.5 * np.sign(points) * np.abs(points) ** 1.5
    np.testing.assert_allclose(np.polynomial.chebyshev.chebval(nodes, series), target, atol=1e-6)


def test_a_smooth_filter_passes_low_and_stops_high_frequencies():
    series = coefficients(8, 1.5)
    low, middle, high = np.polynomial.chebyshev.chebval(np.array([-1.0, 0.0, 1.0]), series)
    assert low > 0.9
    assert abs(middle - 0.5) < 0.05
    assert high < 0.1


@pytest.mark.parametrize(("last", "both"), [(1, False), (2, True)])
def test_the_transition_graph_walks_one_and_two_steps_from_the_last_items(last, both):
    known = sequences()
    content = unit(np.random.default_rng(1).normal(size=(11, 5)).astype(np.float32))
    settings = DirectionalSettings(window=1, decay=0.5, rho=float(both), row_power=1.0)
    step = looped(known, settings)
    start = np.zeros((7, 11))
    recent = known.recency() < last
    np.add.at(start, (known.user[recent], known.product[recent]), 0.5 ** known.recency()[recent])
    want = start @ step + 0.3 * start @ step @ step + 0.1 * start @ (content @ content.T)
    found = TransitionGraph(known, content, last, 1, both).scores(USERS)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_a_blend_is_a_weighted_sum_on_one_scale():
    one, two = np.random.default_rng(0).normal(size=(2, 3, 6)).astype(np.float32)
    rows = np.array([2, 0])
    largest = Blend([Fixed(one), Fixed(two)], [1.0, 0.5], "max").scores(rows)
    want = one / np.abs(one).max(1, keepdims=True) + 0.5 * two / np.abs(two).max(1, keepdims=True)
    np.testing.assert_allclose(largest, want[rows], rtol=1e-5, atol=1e-6)
    z = Blend([Fixed(one), Fixed(two)], [1.0, 2.0], "z").scores(rows)
    np.testing.assert_allclose(
        z, sum(w * (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) for w, x in ((1, one), (2, two)))[rows],
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip
    flat = Blend([Fixed(np.zeros((3, 6))), Fixed(two)], [1.0, 1.0], "z").scores(rows)
    assert np.isfinite(flat).all(), "a method that says nothing leaves the other as it is"


MAKERS = [
    Popularity,
    lambda known: ItemKnn(known, 0.5, 0.3, 1e9, 3.0),
    lambda known: ContentOnly(known, unit(np.eye(11, 5, dtype=np.float32) + 0.1)),
    lambda known: DirectionalKnn(known, DirectionalSettings(), 0.7),
    lambda known: Spectral(known, SpectralSettings(4), 0.5),
    lambda known: Ease(known, 5.0, 0.8),
    lambda known: GfCf(known, dim=4),
    lambda known: ChebyCf(known, dim=4),
    lambda known: TransitionGraph(known),
    lambda known: Blend([Popularity(known), Spectral(known, SpectralSettings(4), 0.5)], [1.0, 0.5], "z"),
]


@pytest.mark.parametrize("make", [MAKERS[place] for place in (0, 3, 4, 8, 9)])
def test_who_has_no_history_gets_what_sells_most(make):
    known = sequences()
    kept = known.user != 2
    known = dataclasses.replace(known, user=known.user[kept], product=known.product[kept], age=known.age[kept])
    scores = make(known).scores(np.array([2]))[0]
    assert np.argsort(-scores, kind="stable").tolist() == np.argsort(-known.popularity(), kind="stable").tolist()


@pytest.mark.parametrize("make", MAKERS)
def test_a_grown_method_keeps_its_parameters_and_reads_the_users_new_history(make):
    known = sequences()
    method = make(known)
    np.testing.assert_allclose(method.grown(known).scores(USERS), method.scores(USERS), rtol=1e-6)
    before = method.scores(USERS)
    swapped = dataclasses.replace(known, user=6 - known.user)
    np.testing.assert_allclose(method.grown(swapped).scores(USERS), before[::-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(method.scores(USERS), before, err_msg="growing leaves the first one alone")
