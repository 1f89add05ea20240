"""Bags of primitives: exact cuts, honest residuals, a temperature that hits its target, bits free of the batch."""

import numpy as np
import pytest

from hierarchy.bags import BLOCK, cosines, cut, entropy, fit_tau, softmax
from hierarchy.kmeans import unit


def unit_rows(count, dim=12, seed=0):
    return unit(np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32))


def test_a_rows_cosines_have_the_same_bits_alone_and_in_any_company():
    rows, prototypes = unit_rows(BLOCK + 37), unit_rows(13, seed=1)
    together = cosines(rows, prototypes)
    np.testing.assert_allclose(together, rows @ prototypes.T, atol=1e-6)
    for place in (0, 1, BLOCK - 1, BLOCK, BLOCK + 36):
        assert cosines(rows[place : place + 1], prototypes).tobytes() == together[place].tobytes()
    assert cosines(rows[:0], prototypes).shape == (0, 13)


def test_a_cut_keeps_the_strongest_and_accounts_for_the_rest():
    shares = np.array([[0.1, 0.5, 0.05, 0.35], [0.25, 0.25, 0.25, 0.25]], np.float32)
    found = cut(shares, 2)
    assert found.primitive.tolist() == [[1, 3], [0, 1]]
    np.testing.assert_allclose(found.weight, [[0.5 / 0.85, 0.35 / 0.85], [0.5, 0.5]], rtol=1e-6)
    np.testing.assert_allclose(found.residual, [0.15, 0.5], atol=1e-6)


def test_a_cut_wider_than_the_level_keeps_all_and_drops_nothing():
    found = cut(softmax(unit_rows(5, 3)), 8)
    assert found.primitive.shape == (5, 3)
    np.testing.assert_allclose(found.weight.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(found.residual, 0, atol=1e-6)


@pytest.mark.parametrize("perplexity", [1.5, 2.5, 6.0])
def test_the_fitted_temperature_gives_the_wanted_perplexity(perplexity):
    cosine = unit_rows(300) @ unit_rows(32, seed=1).T
    tau = fit_tau(cosine, np.zeros(300, np.int64), perplexity)
    assert np.exp(entropy(softmax(cosine / tau)).mean()) == pytest.approx(perplexity, rel=0.02)


def test_a_small_group_counts_as_much_as_a_large_one():
    sharp, vague = np.eye(8, dtype=np.float32)[np.zeros(90, int)], np.full((10, 8), 0.5, np.float32)
    vague[:, 0] = 0.6
    both = np.concatenate([sharp, vague])
    by_group = fit_tau(both, np.repeat([0, 1], [90, 10]), 2.0)
    by_row = fit_tau(both, np.zeros(100, np.int64), 2.0)
    assert by_group < by_row
