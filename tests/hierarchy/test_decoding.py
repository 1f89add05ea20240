"""Vectors told from tokens: cosines come back as the weights say, and the mean of primitives is farther off."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from data.errors import BadDataError
from hierarchy.bags import Bags
from hierarchy.decoding import decoded
from hierarchy.kmeans import unit
from hierarchy.levels import Level, bags_of

DIM = 16


def made_levels(rng):
    sizes, tops = (6, 20, 60), (2, 4, 8)
    vectors = [unit(rng.standard_normal((k, DIM)).astype(np.float32)) for k in sizes]
    return [
        Level(number + 1, pa.array([f"L{number + 1}-{i}" for i in range(len(own))]), own, top, 0.1)
        for number, (own, top) in enumerate(zip(vectors, tops, strict=True))
    ]


def profiles(found: list[Bags], levels: list[Level]) -> sparse.csr_array:
    rows = []
    for bag, level in zip(found, levels, strict=True):
        row = np.repeat(np.arange(len(bag.weight)), bag.weight.shape[1])
        shape = len(bag.weight), len(level.ids)
        rows.append(sparse.csr_array((bag.weight.ravel(), (row, bag.primitive.ravel())), shape=shape))
    return sparse.csr_array(sparse.hstack(rows, "csr"))


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(3)
    levels = made_levels(rng)
    vectors = unit(rng.standard_normal((300, DIM)).astype(np.float32))
    return levels, vectors, profiles(bags_of(levels, vectors, np.arange(301)), levels)


def test_a_told_vector_is_nearer_than_the_mean_of_its_primitives(planted):
    levels, vectors, tokens = planted
    told = decoded(tokens, levels)
    assert told == pytest.approx(unit(told), abs=1e-5)
    finest = tokens[:, -len(levels[-1].ids) :]
    mean = unit(np.asarray(finest @ levels[-1].vectors, np.float32))
    assert (told * vectors).sum(axis=1).mean() > (mean * vectors).sum(axis=1).mean() + 0.05


def test_cosines_differ_as_the_weights_say(planted):
    levels, vectors, tokens = planted
    told, level = decoded(tokens, levels), levels[1]
    kept = tokens[:, 6:26].toarray() > 0
    asked = [(row, *np.flatnonzero(kept[row])[:2]) for row in range(len(vectors))]
    row, one, other = np.array(asked).T
    apart = level.vectors[one] - level.vectors[other]
    # Told vectors are brought to norm 1, which the true ones had: their differences keep sign and most of their size.
    given, wanted = (told[row] * apart).sum(axis=1), (vectors[row] * apart).sum(axis=1)
    assert np.corrcoef(given, wanted)[0, 1] > 0.98


def test_what_is_told_does_not_depend_on_company_and_none_is_zero(planted):
    levels, _, tokens = planted
    some = decoded(tokens[[5, 9]], levels)
    assert some == pytest.approx(decoded(tokens, levels)[[5, 9]], abs=1e-5)
    empty = sparse.csr_array((3, tokens.shape[1]), dtype=np.float32)
    assert not decoded(empty, levels).any()
    assert decoded(empty, levels).shape == (3, DIM)


def test_a_level_of_unions_adds_nothing(planted):
    levels, vectors, _ = planted
    rng = np.random.default_rng(0)
    nested = [levels[1]._replace(united=rng.integers(0, 20, 60)), levels[2]]
    found = bags_of(nested, vectors, np.arange(301))
    assert np.array_equal(
        decoded(profiles(found, nested), nested), decoded(profiles(found[1:], nested[1:]), nested[1:])
    )


def test_bags_of_unequal_size_are_refused(planted):
    levels, _, tokens = planted
    torn = tokens.tolil()
    torn[0, int(tokens.indices[-1])] = 0.5
    torn[0, 26 + int(np.flatnonzero(torn[0, 26:].toarray().ravel() == 0)[0])] = 0.5
    with pytest.raises(BadDataError, match="as many primitives in every bag"):
        decoded(sparse.csr_array(torn), levels)
