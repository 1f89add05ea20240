"""Memberships at each level, and levels of unions, whose memberships are sums."""

import numpy as np
import pyarrow as pa
import pytest

from hierarchy.bags import cosines, softmax
from hierarchy.kmeans import unit
from hierarchy.levels import Level, are_unions, bags_of, bags_of_all, memberships
from tests.hierarchy import small_learner as small

UNITED = np.array([0, 2, 1, 0, 1, 2, 2, 0])


def made(united=UNITED):
    rng = np.random.default_rng(0)
    vectors = [unit(rng.standard_normal((k, 6)).astype(np.float32)) for k in (3, 8)]
    names = [pa.array([f"L{n}-{row}" for row in range(len(own))]) for n, own in enumerate(vectors)]
    return [Level(1, names[0], vectors[0], 2, 0.2, united), Level(2, names[1], vectors[1], 4, 0.1)]


@pytest.fixture
def entities():
    return unit(np.random.default_rng(1).standard_normal((50, 6)).astype(np.float32))


def test_a_share_of_a_union_is_the_sum_of_the_shares_of_its_parts(entities):
    coarse, fine = memberships(made(), entities)
    assert np.array_equal(fine, softmax(cosines(entities, made()[1].vectors) / np.float32(0.1)))
    for row in range(3):
        assert np.allclose(coarse[:, row], fine[:, row == UNITED].sum(axis=1))
    assert np.allclose(coarse.sum(axis=1), 1, atol=1e-5)


def test_other_levels_go_by_their_own_vectors(entities):
    levels = made(None)
    for level, share in zip(levels, memberships(levels, entities), strict=True):
        assert np.array_equal(share, softmax(cosines(entities, level.vectors) / np.float32(level.tau)))


def test_the_strongest_union_holds_most_of_the_finest_bag_of_several_heads(entities):
    first = np.arange(0, 51, 2)
    coarse, fine = bags_of(made(), entities, first)
    whole = memberships(made(), entities)[1].reshape(25, 2, 8).mean(axis=1)
    wanted = np.stack([whole[:, row == UNITED].sum(axis=1) for row in range(3)], axis=1)
    assert np.array_equal(coarse.primitive[:, 0], wanted.argmax(axis=1))
    assert fine.weight.shape == (25, 4)


def test_blocks_change_nothing_and_nobody_is_an_empty_bag(entities, monkeypatch):
    whole = bags_of(made(), entities, np.arange(51))
    monkeypatch.setattr("hierarchy.levels._TOGETHER", 7)
    for one, other in zip(bags_of_all(made(), entities[:20, None], entities[20:, None]), whole, strict=True):
        assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))
    assert [len(bag.weight) for bag in bags_of_all(made(), entities[:0, None])] == [0, 0]


def test_a_learner_says_whether_its_coarse_levels_are_unions(root, inputs):
    united = small.trained(root, inputs, "united")
    apart = small.trained(root, inputs, "apart", distillation={**small.CONFIG["distillation"], "evenness": 0.0})
    assert [are_unions(ref) for ref in (united, apart)] == [True, False]
