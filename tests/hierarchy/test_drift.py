"""Density and drift by hand: what differs by chance alone has no drift beyond its floor, what changed has."""

import numpy as np
import pytest
from scipy import sparse

from data.errors import UsageError
from data.schema import MICROS_PER_DAY as DAY
from graph.csr import EdgeList, to_csr
from hierarchy.cooccurrence import Together
from hierarchy.drift import between, density, divergence, drift

MONTHS = [0, 28 * DAY, 56 * DAY]


def pairs(*counts):
    """Symmetric counts of the pairs 01, 02, 12, with a diagonal that must not matter."""
    found = np.diag([7, 8, 9])
    for (a, b), count in zip(((0, 1), (0, 2), (1, 2)), counts, strict=True):
        found[a, b] = found[b, a] = count
    return sparse.csr_array(found)


def log(users, months, seed=0):
    """Events of `users` users: in each month a week's basket of three products out of that month's range."""
    rng = np.random.default_rng(seed)
    rows = []
    for month, products in enumerate(months):
        for user in range(users):
            for product in rng.choice(products, 3, replace=False):
                rows.append((user, product, (28 * month + 7 * rng.integers(0, 4) + 1) * DAY))
    user, product, time = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    time = time[0] * 0 + np.repeat(time.reshape(-1, 3)[:, 0], 3)  # one week a basket
    return to_csr(EdgeList(user, product, time, time + 1, np.ones(len(user), np.float32)), users, 20)


def test_divergence_by_hand():
    assert divergence(pairs(1, 0, 0), pairs(0, 3, 0)) == pytest.approx(1.0)
    assert divergence(pairs(2, 2, 4), pairs(1, 1, 2)) == pytest.approx(0.0)
    # p = (1/2, 1/2, 0), q = (1/2, 0, 1/2): H of the mean is 1.5, of each 1.
    assert divergence(pairs(1, 1, 0), pairs(5, 0, 5)) == pytest.approx(0.5)
    assert divergence(pairs(0, 0, 0), pairs(0, 0, 0)) == 0.0
    assert divergence(pairs(0, 0, 0), pairs(1, 0, 0)) == 1.0


def test_density_counts_pairs_of_the_nodes_asked_about():
    together = Together(pairs(2, 0, 1), 5)
    assert density(together) == pytest.approx(2 / 3)
    assert density(together, np.array([0, 2])) == 0.0
    assert density(together, np.array([1, 2])) == 1.0
    assert density(together, np.array([1])) == 0.0


def test_between_keeps_rows_and_what_became_visible_then():
    events = log(4, [range(10), range(10)])
    first = between(events, *MONTHS[:2], np.array([True, False, True, True]))
    assert len(first.rowptr) == 5
    assert np.diff(first.rowptr).tolist() == [3, 0, 3, 3]
    assert (first.visible_from <= MONTHS[1]).all()
    assert (first.times == first.visible_from - 1).all()


def test_months_alike_differ_by_chance_alone():
    events = log(2000, [range(20), range(20)])
    found = drift(events, np.arange(20, dtype=np.int32), 20, MONTHS, 7 * DAY)
    assert found.floor[0] > 0.01
    assert abs(found.beyond_chance()) < 0.01


def test_a_shift_within_groups_is_seen_between_products_and_not_between_groups():
    """Products of each of four groups give way to others of the same group."""
    early, late = [p for p in range(20) if p % 5 < 3], [p for p in range(20) if p % 5 >= 2]
    events = log(400, [early, late])
    products = drift(events, np.arange(20, dtype=np.int32), 20, MONTHS, 7 * DAY)
    groups = drift(events, (np.arange(20) // 5).astype(np.int32), 4, MONTHS, 7 * DAY)
    assert products.beyond_chance() > 0.4
    assert abs(groups.beyond_chance()) < 0.02
    assert products.divergence[0] > 2 * groups.divergence[0]


def test_months_must_be_whole_windows():
    events = log(4, [range(10), range(10)])
    for months in ([0, 28 * DAY], [0, 28 * DAY, 57 * DAY]):
        with pytest.raises(UsageError, match="two months of whole windows"):
            drift(events, np.arange(20, dtype=np.int32), 20, months, 7 * DAY)
