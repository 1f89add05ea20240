"""Unions of primitives: planted groups are found whatever their size, levels nest, prototypes tell them apart."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from hierarchy.level_quality import nmi
from hierarchy.prototypes import Prototypes
from hierarchy.unions import content_space, joined_to, told_apart, unions


def planted(sizes, seed=0, dim=8, noise=0.1):
    """Points of groups of unequal size around random directions, and the group of each."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    return rng.standard_normal((len(sizes), dim))[group] + noise * rng.standard_normal((len(group), dim)), group


def by_hand(sums, mass, k, gamma):
    """The same joining by all pairs at each step."""
    parts = [[i] for i in range(len(mass))]
    while len(parts) > k:
        best = None
        for i in range(len(parts)):
            for j in range(i + 1, len(parts)):
                a, b = mass[parts[i]].sum(), mass[parts[j]].sum()
                apart = sums[parts[i]].sum(axis=0) / a - sums[parts[j]].sum(axis=0) / b
                cost = (apart**2).sum() * (a * b / (a + b)) ** gamma
                if best is None or cost < best[0]:
                    best = cost, i, j
        _, i, j = best
        parts[i] += parts.pop(j)
    return sorted(sorted(part) for part in parts)


@pytest.mark.parametrize("gamma", [0.25, 1.0])
def test_the_cheapest_pair_is_joined_at_every_step(gamma):
    rng = np.random.default_rng(1)
    mass = rng.integers(1, 50, 24).astype(float)
    sums = rng.standard_normal((24, 5)) * mass[:, None]
    union = joined_to(sums, mass, 5, gamma)
    assert sorted(np.unique(union)) == [0, 1, 2, 3, 4]
    assert sorted(np.flatnonzero(union == u).tolist() for u in range(5)) == by_hand(sums, mass, 5, gamma)


def test_unequal_groups_are_found_and_levels_nest():
    points, group = planted([40, 10, 6, 2])
    coarse, middle = unions(points, np.ones(len(points)), (4, 12), evenness=0.1)
    assert nmi(coarse, group) == pytest.approx(1.0)
    assert all(len(np.unique(coarse[middle == u])) == 1 for u in range(12))


def test_masses_are_as_even_as_asked():
    points, _ = planted([200, 4, 3, 3], noise=0.3)

    def perplexity(evenness):
        (union,) = unions(points, np.ones(len(points)), (6,), evenness)
        share = np.bincount(union, minlength=6) / len(union)
        return float(np.exp(-(share * np.log(share)).sum()))

    assert perplexity(0.0) < perplexity(0.6)


def test_prototypes_tell_their_unions_apart_and_stay_near_the_mean():
    rng = np.random.default_rng(0)
    shared = rng.standard_normal(8) * 2
    members = normalize(torch.from_numpy(shared + rng.standard_normal((40, 8))).float(), dim=1)
    union, weights = torch.arange(40) % 4, torch.from_numpy(rng.integers(1, 30, 40)).float()
    made = told_apart(members, weights, union, 0.05)
    sums = torch.zeros(4, 8).index_add_(0, union, members * weights[:, None])
    means = normalize(sums, dim=1)

    def right(prototypes):
        return float((weights * ((members @ prototypes.t()).argmax(dim=1) == union)).sum() / weights.sum())

    assert right(made) > right(means)
    assert (made * means).sum(dim=1).min() > 0.8
    assert made.norm(dim=1) == pytest.approx(torch.ones(4), abs=1e-5)
    assert torch.equal(made, told_apart(members, weights, union, 0.05))


def test_content_varies_most_where_there_is_most_of_it():
    rng = np.random.default_rng(0)
    content = (rng.standard_normal((500, 2)) * [2.0, 1.0]).astype(np.float32)
    made = content_space(content)
    # Distances are those of the second moment: a step along the first axis counts four times as much as one along the
    # second.
    second = content.astype(np.float64).T @ content / 500
    apart = content[0].astype(np.float64) - content[1]
    assert ((made[0] - made[1]) ** 2).sum() == pytest.approx(apart @ second @ apart, rel=1e-6)
    assert not content_space(np.zeros((4, 3), np.float32)).any()


@pytest.mark.parametrize("told", [True, False])
def test_coarse_primitives_are_those_of_content_or_else_of_vectors(told):
    rng = np.random.default_rng(0)
    points = rng.standard_normal((600, 8))
    halves = points[:, :2] > 0
    points[:, :2] = np.where(halves, [1.5, 2.0], [-1.5, -2.0])
    vectors, (group, other) = normalize(torch.from_numpy(points).float(), dim=1), halves.T.astype(np.int64)
    content = torch.from_numpy(np.eye(2, dtype=np.float32)[group]) if told else torch.zeros(600, 3)
    made = Prototypes((2, 24), 8, 1, 2)
    made.initialise(vectors, seed=0)
    finest = made.vectors(1).clone()
    made.unite(vectors, content, 0.65, 0.05)
    assert torch.equal(made.vectors(1), finest)
    assert made.mass(0).sum() == pytest.approx(1.0, abs=1e-5)
    coarse = (vectors @ made.vectors(0).t()).argmax(dim=1).numpy()
    # Vectors lie in four groups; which pairs of them belong together is what content says, else the longer axis.
    assert nmi(coarse, group if told else other) > 0.9
    own = (vectors @ finest.t()).argmax(dim=1).numpy()
    kept = [np.bincount(coarse[own == primitive], minlength=2).max() for primitive in np.unique(own)]
    assert sum(kept) / len(own) > 0.8


def test_the_finest_primitives_follow_content_where_it_weighs():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((400, 6))
    points[:, 0] = np.where(rng.random(400) > 0.5, 0.6, -0.6)
    vectors, group = normalize(torch.from_numpy(points).float(), dim=1), (points[:, 0] > 0).astype(np.int64)
    content = torch.from_numpy(np.eye(2, dtype=np.float32)[group])

    def agreement(weight):
        made = Prototypes((2, 8), 6, 1, 2)
        made.initialise(vectors, seed=0)
        if weight:
            made.divide(vectors, content, weight, 0.05)
        own = (vectors @ made.vectors(1).t()).argmax(dim=1).numpy()
        assert len(np.unique(own)) == 8
        assert made.mass(1).numpy() == pytest.approx(np.bincount(own) / 400, abs=1e-6)
        return nmi(own, group)

    assert agreement(2.0) > agreement(0.0) + 0.1
