"""Assignments: exact equals brute force, greedy equals exact where nothing is disputed, families come first."""

from itertools import permutations

import numpy as np
import pytest
from scipy import sparse

from data.errors import BadDataError
from hierarchy.bags import Bags
from hierarchy.kmeans import unit
from hierarchy.matching import Likeness, assign, greedy, hungarian, match, member_jaccard, nearest
from hierarchy.procrustes import procrustes
from tests.hierarchy.retrained import rotation

NONE = np.array([-1] * 6)


def of(alike):
    """A likeness with just these values: all from shared members."""
    alike = np.asarray(alike, float)
    zeros = [np.zeros((size, 2), np.float32) for size in alike.shape]
    return Likeness(*zeros, sparse.csr_array(alike), 0.0)


def rows(size):
    return np.arange(size)


@pytest.mark.parametrize("seed", range(20))
def test_hungarian_equals_brute_force(seed):
    rng = np.random.default_rng(seed)
    alike = np.round(rng.random((5, 6)), 4)
    old, new, got = hungarian(of(alike), rows(5), rows(6), 0.6)
    gain = np.where(alike >= 0.6, alike, 0.0)
    best = max(sum(gain[row, column] for row, column in enumerate(chosen)) for chosen in permutations(range(6), 5))
    assert got.sum() == pytest.approx(best)
    assert (got >= 0.6).all()
    assert (got == alike[old, new]).all()
    assert len(set(old.tolist())) == len(old) == len(set(new.tolist()))


def test_greedy_equals_hungarian_where_every_primitive_has_its_own_counterpart():
    rng = np.random.default_rng(3)
    order = rng.permutation(300)
    vectors = unit(rng.normal(size=(300, 24)).astype(np.float32))
    moved = unit(vectors[order] + 0.05 * rng.normal(size=(300, 24)).astype(np.float32))
    likeness = Likeness(vectors, moved, sparse.csr_array((300, 300)), 1.0)
    exact = assign(likeness, rows(300), rows(300), 0.5, exact_limit=300)
    quick = assign(likeness, rows(300), rows(300), 0.5, exact_limit=299)
    assert sorted(zip(*map(np.ndarray.tolist, exact), strict=True)) == sorted(
        zip(*map(np.ndarray.tolist, quick), strict=True)
    )
    assert (order[quick[1]] == quick[0]).all()
    assert len(quick[0]) == 300


def test_greedy_takes_the_likeliest_first_and_goes_on_for_those_who_lost_theirs(monkeypatch):
    monkeypatch.setattr("hierarchy.matching._CANDIDATES", 1)
    monkeypatch.setattr("hierarchy.matching._BLOCK", 1)
    alike = [[0.9, 0.7, 0.1], [0.8, 0.6, 0.1], [0.1, 0.1, 0.3]]
    old, new, got = greedy(of(alike), rows(3), rows(3), 0.5)
    assert list(zip(old.tolist(), new.tolist(), got.tolist(), strict=True)) == [(0, 0, 0.9), (1, 1, 0.6)]
    assert [len(part) for part in greedy(of(alike), rows(0), rows(3), 0.5)] == [0, 0, 0]


def test_children_are_matched_under_their_parent_before_the_rest():
    alike = np.full((4, 4), 0.1)
    alike[0, 0], alike[0, 2], alike[1, 1], alike[2, 2] = 0.6, 0.9, 0.8, 0.7
    alike[3, 3] = 0.4
    old_parent, new_parent = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1])
    within = match(of(alike), old_parent, new_parent, 0.5, 100)
    assert within.old.tolist() == [0, 1, 2, -1]
    assert within.within.tolist() == [True, True, True, False]
    anywhere = match(of(alike), NONE[:4], NONE[:4], 0.5, 100)
    assert anywhere.old.tolist() == [0, 1, 2, -1], "0.6 + 0.8 + 0.7 is more than 0.9 + 0.8"
    assert not anywhere.within.any()
    alike[0, 2] = 0.95
    alike[2, 2] = 0.1
    assert match(of(alike), old_parent, new_parent, 0.5, 100).old.tolist() == [0, 1, -1, -1], "its family comes first"
    assert match(of(alike), NONE[:4], NONE[:4], 0.5, 100).old.tolist() == [-1, 1, 0, -1]


def test_a_child_that_moved_to_another_parent_is_still_found():
    alike = np.eye(4) * 0.9
    moved = match(of(alike), np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), 0.5, 100)
    assert moved.old.tolist() == [0, 1, 2, 3]
    assert moved.within.tolist() == [True, False, True, True]


def test_member_jaccard_is_the_ratio_of_sums(monkeypatch):
    rng = np.random.default_rng(0)
    sides = []
    for size in (4, 5):
        primitive = np.array([rng.permutation(size)[:2] for _ in range(50)], np.int32)
        weight = rng.dirichlet((1, 1), 50).astype(np.float32)
        sides.append((Bags(primitive, weight, np.zeros(50, np.float32)), size))
    own = rng.random(50)
    dense = [np.zeros((50, size)) for _, size in sides]
    for (bags, _), full in zip(sides, dense, strict=True):
        np.put_along_axis(full, bags.primitive.astype(int), bags.weight.astype(float), axis=1)
    pairs = [[own @ np.minimum(a, b) / (own @ np.maximum(a, b)) for b in dense[1].T] for a in dense[0].T]
    for block in (7, 1000):
        monkeypatch.setattr("hierarchy.matching._ENTITIES", block)
        found = member_jaccard(sides[0][0], sides[1][0], (4, 5), own)
        np.testing.assert_allclose(found.toarray(), pairs, atol=1e-6)


def test_nearest_names_the_most_alike_on_the_other_side():
    likeness = of([[0.1, 0.3], [0.8, 0.2], [0.0, 0.0]])
    best, alike = nearest(likeness, rows(3), rows(2))
    assert (best.tolist(), alike.tolist()) == ([1, 0, 0], [0.3, 0.8, 0.0])
    best, alike = nearest(likeness.reversed(), rows(2), rows(3))
    assert (best.tolist(), alike.tolist()) == ([1, 0], [0.8, 0.3])


def test_procrustes_finds_a_rotation_and_the_noise_that_is_left():
    rng = np.random.default_rng(1)
    old = unit(rng.normal(size=(400, 16)).astype(np.float32))
    turn = rotation(9)
    exact = procrustes(old, old @ turn, np.ones(400))
    np.testing.assert_allclose(exact.matrix, turn, atol=1e-5)
    assert exact.residual < 1e-3
    assert exact.cosine == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(exact(old), old @ turn, atol=1e-5)
    noisy = procrustes(old, unit(old @ turn + 0.1 * rng.normal(size=old.shape).astype(np.float32)), np.ones(400))
    assert 0.2 < noisy.residual < 0.6
    assert noisy.residual**2 == pytest.approx(2 - 2 * noisy.cosine, abs=1e-4)


def test_procrustes_believes_heavy_pairs_and_takes_other_widths():
    rng = np.random.default_rng(2)
    old = unit(rng.normal(size=(200, 8)).astype(np.float32))
    good, bad = rotation(1, 8), rotation(2, 8)
    new = np.concatenate([old[:100] @ good, old[100:] @ bad])
    heavy = procrustes(old, new, np.where(np.arange(200) < 100, 1.0, 0.0))
    np.testing.assert_allclose(heavy.matrix, good, atol=1e-5)
    wide = np.concatenate([old @ good, np.zeros((200, 4), np.float32)], axis=1)
    np.testing.assert_allclose(procrustes(old, wide, np.ones(200))(old), wide, atol=1e-5)


def test_procrustes_refuses_what_does_not_pair_up():
    ones = np.ones((3, 2), np.float32)
    with pytest.raises(BadDataError, match="as many old vectors"):
        procrustes(ones, ones[:2], np.ones(3))
    with pytest.raises(BadDataError, match="weight above 0"):
        procrustes(ones, ones, np.zeros(3))
