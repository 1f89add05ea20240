"""Spectral vectors against numpy's own decomposition, and the histories they are made from."""

import numpy as np
import pytest
from scipy import sparse

from data.errors import BadDataError, UsageError
from hierarchy.baselines.spectral import Spectral
from hierarchy.spectral import SpectralSettings, spectral_vectors
from hierarchy.subspace import _device_factors, _factors, truncated_svd
from tests.hierarchy.test_baselines import history, random_history


def dense(known, repeats=0.0):
    counts = known.matrix().toarray().astype(np.float64)
    return np.where(counts > 0, counts**repeats, 0.0)


@pytest.mark.parametrize("repeats", [0.0, 0.5])
def test_scores_are_the_low_pass_filter_of_the_formula(repeats):
    """(r Di^-pre V) (V S^q Di^post)', with R~ decomposed by numpy in float64."""
    known = random_history()
    settings = SpectralSettings(4, 0.4, 0.3, 0.2, 0.5, 0.7, repeats)
    matrix = dense(known, repeats)
    users, items = (np.maximum(matrix.sum(axis=axis), 1e-12) for axis in (1, 0))
    _, values, right = np.linalg.svd(matrix / users[:, None] ** 0.4 / items**0.3)
    low = (right[:4].T * values[:4] ** 0.7) @ right[:4]
    counts = known.matrix().toarray()
    want = (counts / items**0.2) @ low * items**0.5
    found = Spectral(known, settings).scores(np.arange(7))
    np.testing.assert_allclose(found, want, rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(spectral_vectors(known, settings).singular_values, values[:4], rtol=1e-5)


def test_popularity_stays_beside_the_direction():
    known = random_history()
    plain, scaled = (spectral_vectors(known, SpectralSettings(3, target_power=power)) for power in (0.0, 0.5))
    np.testing.assert_array_equal(plain.direction, scaled.direction)
    assert not plain.log_scale.any()
    degree = (known.matrix().toarray() > 0).sum(axis=0)
    np.testing.assert_allclose(scaled.target, plain.target * np.sqrt(degree)[:, None], rtol=1e-5)


def test_recent_purchases_count_more_with_decay_and_alike_without_an_order():
    known = history((0, 1, 9), (0, 2, 3), (0, 3, 3), (0, 4, 1), (1, 4, 8), (2, 0, 5), (2, 1, 5))
    assert known.recency().tolist() == [2, 1, 1, 0, 0, 0, 0]
    assert known.profile(0.5).toarray()[0].tolist() == [0, 0.25, 0.5, 0.5, 1, 0]
    assert known.profile(1.0).toarray().tolist() == known.matrix().toarray().tolist()


def test_products_without_events_are_zero_and_few_products_give_few_dimensions():
    known = history((0, 1, 5), (1, 1, 5), (1, 2, 5))
    vectors = spectral_vectors(known, SpectralSettings(64))
    assert vectors.source.shape == vectors.target.shape == (6, 2), "the matrix has rank two"
    assert np.isfinite(vectors.target).all()
    assert np.abs(vectors.source[[0, 3, 4, 5]]).max() < 1e-5


def test_the_same_seed_gives_the_same_bits_and_another_the_same_space():
    rng = np.random.default_rng(3)
    left, right = rng.normal(size=(90, 5)), rng.normal(size=(5, 70))
    matrix = sparse.csr_array((left @ right).astype(np.float32))
    one, same, other = (truncated_svd(matrix, 5, seed) for seed in (0, 0, 1))
    for got, again, near in zip(one, same, other, strict=True):
        assert got.tobytes() == again.tobytes()
        np.testing.assert_allclose(got, near, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(one.left * one.values @ one.right.T, matrix.toarray(), rtol=1e-3, atol=1e-3)


def test_what_cannot_be_is_refused():
    with pytest.raises(BadDataError, match="expected events"):
        spectral_vectors(history(), SpectralSettings())
    with pytest.raises(UsageError, match="at least 1 dimension"):
        spectral_vectors(random_history(), SpectralSettings(0))


def test_a_device_finds_the_factors_of_the_host():
    """`_device_factors` runs on any device; here on the CPU, against the host's own."""
    matrix = sparse.random_array((60, 40), density=0.2, random_state=np.random.default_rng(0), dtype=np.float32)
    matrix, start = sparse.csr_array(matrix), np.random.default_rng(1).standard_normal((40, 40), np.float32)
    found = [_factors(matrix, start.copy(), 4), _device_factors(matrix, start.copy(), 4, "cpu")]
    for basis, left, values, turn in found:
        np.testing.assert_allclose((left * values) @ turn @ basis.T, matrix.toarray(), atol=1e-4)
    np.testing.assert_allclose(found[0][2], found[1][2], rtol=1e-4)
