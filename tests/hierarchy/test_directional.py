"""Directional co-occurrence against a plain double loop over pairs of events."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from hierarchy import directional
from hierarchy.baselines.directional_knn import DirectionalKnn
from hierarchy.directional import DirectionalSettings, directional_vectors, strongest, transitions
from tests.hierarchy.test_baselines import history, random_history


def looped(known, settings):
    """T by the formula, in float64."""
    table = np.zeros((known.num_products, known.num_products))
    recency, counts = known.recency(), known.counts()
    for user in range(known.num_users):
        own = np.flatnonzero(known.user == user)
        for a in own:
            for b in own:
                gap = recency[a] - recency[b]
                weight = counts[a] * counts[b] / len(own) ** settings.user_power
                if 1 <= gap <= settings.window:
                    table[known.product[a], known.product[b]] += weight * settings.decay ** (gap - 1)
                if gap == 0 and known.product[a] != known.product[b]:
                    table[known.product[a], known.product[b]] += weight
    table = table + settings.rho * table.T
    if not settings.repeats:
        np.fill_diagonal(table, 0)
    row, column = (np.maximum(table.sum(axis=axis), 1e-12) for axis in (1, 0))
    return table / row[:, None] ** settings.row_power / column**settings.column_power


def sequences(seed=1, weights=False):
    """Seven users with occasions of one or two products."""
    known = random_history(seed)
    age = np.floor(known.age / 4)
    weight = np.random.default_rng(2).integers(1, 4, len(age)).astype(np.float32) if weights else None
    return dataclasses.replace(known, age=age, weight=weight)


@pytest.mark.parametrize(
    "settings",
    [
        DirectionalSettings(window=1, row_power=0.0),
        DirectionalSettings(window=5, decay=0.7, rho=0.3, row_power=0.35, column_power=0.2),
        DirectionalSettings(window=50, decay=0.9, user_power=1.0, repeats=False),
    ],
)
@pytest.mark.parametrize("weights", [False, True])
def test_the_table_is_its_formula(settings, weights, monkeypatch):
    known = sequences(weights=weights)
    found = transitions(known, settings).toarray()
    np.testing.assert_allclose(found, looped(known, settings), rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(directional, "_PAIRS", 1)
    np.testing.assert_allclose(transitions(known, settings).toarray(), found, rtol=1e-5)


def test_without_an_order_it_is_plain_co_occurrence():
    known = dataclasses.replace(random_history(), age=np.zeros(120))
    table = transitions(known, DirectionalSettings(row_power=0.0)).toarray()
    together = known.matrix().toarray()
    want = together.T @ together
    np.fill_diagonal(want, 0)
    np.testing.assert_allclose(table, want)


def test_scores_are_the_decayed_sum_of_rows_and_grow_with_the_history():
    known = sequences()
    settings = DirectionalSettings(window=3, rho=0.5)
    want = known.profile(0.7).toarray() @ looped(known, settings)
    method = DirectionalKnn(known, settings, 0.7)
    np.testing.assert_allclose(method.scores(np.array([5, 0])), want[[5, 0]], rtol=1e-4, atol=1e-6)
    later = history((5, 2, 0), users=7, products=11)
    np.testing.assert_allclose(method.grown(later).scores(np.array([5]))[0], looped(known, settings)[2], rtol=1e-4)


def test_only_the_strongest_of_a_row_are_kept_and_of_equals_the_first():
    known = history((0, 0, 2), (0, 1, 1), (1, 0, 2), (1, 2, 1), (2, 0, 2), (2, 2, 1), (3, 0, 2), (3, 3, 1))
    table = strongest(transitions(known, DirectionalSettings(row_power=0.0)), 2).toarray()
    assert table[0].tolist() == [0, 1, 2, 0, 0, 0]


def test_the_strongest_are_those_of_a_full_sort():
    rng = np.random.default_rng(4)
    values = rng.integers(0, 6, (40, 30)).astype(np.float32)
    found = strongest(sparse.csr_array(values), 5).toarray()
    for row, kept in zip(values, found, strict=True):
        order = np.argsort(-row, kind="stable")[:5]
        want = np.zeros(30)
        want[order] = row[order]
        assert kept.tolist() == want.tolist()


def test_a_table_that_is_cut_on_the_way_keeps_what_is_strong_throughout(monkeypatch):
    known, settings = sequences(), DirectionalSettings(window=3)
    whole = strongest(transitions(known, settings), 1).toarray()
    monkeypatch.setattr(directional, "_PAIRS", 1)
    monkeypatch.setattr(directional, "_SLACK", 8)
    found = transitions(known, dataclasses.replace(settings, top=1)).toarray()
    assert (np.count_nonzero(found, axis=1) <= 1).all()
    assert ((found > 0) == (whole > 0)).mean() > 0.95


def test_two_vectors_a_product_give_the_table_back():
    table = transitions(sequences(), DirectionalSettings())
    vectors = directional_vectors(table, 11)
    np.testing.assert_allclose(vectors.source @ vectors.target.T, table.toarray(), atol=1e-4)
    assert directional_vectors(table, 3).target.shape == (11, 3)


def test_no_events_give_an_empty_table():
    assert transitions(history(), DirectionalSettings()).nnz == 0
