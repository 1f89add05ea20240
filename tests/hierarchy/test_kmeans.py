import numpy as np
import pytest

from data.errors import BadDataError
from hierarchy.kmeans import hierarchical_kmeans, spherical_kmeans, unit


def _blobs(groups: int, each: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = unit(rng.standard_normal((groups, 8)))
    label = np.repeat(np.arange(groups), each)
    return unit(centres[label] + 0.05 * rng.standard_normal((len(label), 8))), label


def test_planted_groups_are_found():
    vectors, label = _blobs(5, 31)
    centroids, assigned = spherical_kmeans(vectors, 5, np.random.default_rng(1))
    assert np.allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-5)
    pairs = {(int(a), int(b)) for a, b in zip(label, assigned, strict=True)}
    assert len(pairs) == 5


def test_equal_seeds_give_equal_bits_and_no_cluster_is_empty():
    vectors, _ = _blobs(3, 40)
    first, assigned = spherical_kmeans(vectors, 17, np.random.default_rng(2))
    again, _ = spherical_kmeans(vectors, 17, np.random.default_rng(2))
    assert first.tobytes() == again.tobytes()
    assert len(np.unique(assigned)) == 17


def test_levels_refine_each_other_and_have_the_sizes_asked_for():
    vectors, label = _blobs(4, 25)
    coarse, fine = hierarchical_kmeans(vectors, (4, 12), np.random.default_rng(3))
    assert (len(coarse), len(fine)) == (4, 12)
    parent_of_member = (vectors @ coarse.T).argmax(axis=1)
    parent_of_fine = (fine @ coarse.T).argmax(axis=1)[(vectors @ fine.T).argmax(axis=1)]
    assert (parent_of_member == parent_of_fine).mean() > 0.95
    assert label.size == 100


def test_too_few_vectors_are_refused():
    vectors, _ = _blobs(1, 3)
    with pytest.raises(BadDataError, match="choose a smaller k"):
        spherical_kmeans(vectors, 4, np.random.default_rng(0))
    with pytest.raises(BadDataError, match="to split clusters"):
        hierarchical_kmeans(vectors, (2, 9), np.random.default_rng(0))


def test_unit_keeps_rows_of_zeros():
    assert np.array_equal(unit(np.zeros((2, 3), np.float32)), np.zeros((2, 3)))
