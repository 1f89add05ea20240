"""Flow between primitives: soft bags against a plain loop, a planted direction, decay by hand, and no later event."""

from itertools import product as pairs

import numpy as np
import pytest
from scipy import sparse

import hierarchy.flow
from data.schema import MICROS_PER_DAY as DAY
from graph.csr import EdgeList, to_csr
from hierarchy.flow import ADVERTISER, CO, THEN, Memberships, Timing, interest_flows, strongest

WEEK = 7 * DAY
BEFORE = 100 * DAY


def csr(*events, users=3, products=5):
    """Events (user, product, day), each visible a moment after it happened."""
    user, product, day = (np.array(column) for column in zip(*events, strict=True))
    time = np.round(day * DAY).astype(np.int64)
    ends = user.astype(np.int64), product.astype(np.int64)
    return to_csr(EdgeList(*ends, time, time + 1, np.ones(len(user), np.float32)), users, products)


def members(product, users=3, user=None, owner=None):
    product = np.asarray(product, np.float64)
    k = product.shape[1]
    user = np.zeros((users, k)) if user is None else np.asarray(user)
    owner = np.zeros_like(product) if owner is None else np.asarray(owner)
    return Memberships(*map(sparse.csr_array, (product, user, owner)))


def flows(events, given, **timing):
    (found,) = interest_flows(events, [given], Timing(BEFORE, WEEK, **timing))
    return {name: matrix.toarray() for name, matrix in found.items()}


def soft_bags(rng, products, k, kept=3):
    bags = rng.random((products, k)) * (rng.random((products, k)).argsort(axis=1) < kept)
    return bags / bags.sum(axis=1, keepdims=True)


def by_loops(log, bags, timing):
    """The definitions, one user at a time: CO and THEN."""
    k = bags.shape[1]
    found = {CO: np.zeros((k, k)), THEN: np.zeros((k, k))}
    seen = [(user, product, round(day * DAY)) for user, product, day in log if day * DAY < BEFORE]
    for user in {user for user, _, _ in seen}:
        own = [(product, time) for other, product, time in seen if other == user]
        window = [(BEFORE - time) // WEEK for _, time in own]
        for w in set(window):
            met = {product for (product, _), other in zip(own, window, strict=True) if other == w}
            for target in met:
                others = [bags[p] for p in met if p != target]
                if others:
                    found[CO] += timing.decay(np.array([w]))[0] * np.outer(np.mean(others, axis=0), bags[target])
        moments = sorted({time for _, time in own})
        for target, time in own:
            before = [m for m in moments if m < time][-timing.reach :]
            past = [bags[p] for p, t in own if t in before and time - t <= WEEK and p != target]
            if past:
                decay = timing.decay(np.array([(BEFORE - time) // WEEK]))[0]
                found[THEN] += decay * np.outer(np.mean(past, axis=0), bags[target])
    return found


@pytest.fixture
def log():
    rng = np.random.default_rng(0)
    days = rng.integers(60, 104, 240) + rng.integers(0, 3, 240) / 4
    return list(zip(rng.integers(0, 9, 240).tolist(), rng.integers(0, 12, 240).tolist(), days.tolist(), strict=True))


@pytest.mark.parametrize("reach", [1, 3, 50])
def test_soft_bags_flow_as_the_plain_loop_has_it(log, reach):
    bags = soft_bags(np.random.default_rng(1), 12, 6)
    timing = Timing(BEFORE, WEEK, 20 * DAY, reach)
    (found,) = interest_flows(csr(*log, users=9, products=12), [members(bags, users=9)], timing)
    expected = by_loops(log, bags, timing)
    assert expected[CO].sum() > 10
    assert expected[THEN].sum() > 10
    for name in (CO, THEN):
        np.testing.assert_allclose(found[name].toarray(), expected[name], atol=1e-12)
    np.testing.assert_allclose(found[CO].toarray(), found[CO].toarray().T, atol=1e-12)


def test_what_is_met_after_is_a_directed_flow_and_never_the_way_back():
    # Users meet 0, then 1 two days later, then long nothing; 2 and 3 come in either order.
    log = [(u, p, 10 * step + day + u / 10) for u in range(3) for step in range(9) for p, day in ((0, 1), (1, 3))]
    log += [(u, p, 10 * step + 5 + day) for u in range(3) for step in range(9) for p, day in ((2, step % 2), (3, 0.5))]
    found = flows(csr(*log, products=4), members(np.eye(4)), reach=1)
    source, target, weight = strongest(sparse.csr_array(found[THEN]), 1)
    links = dict(zip(source.tolist(), target.tolist(), strict=True))
    assert links[0] == 1
    assert found[THEN][1, 0] == 0
    assert found[THEN][2, 3] > 0
    assert found[THEN][3, 2] > 0
    np.testing.assert_allclose(weight, 1.0)
    assert found[CO][0, 1] == found[CO][1, 0] > 0, "together they are both ways"


def test_a_window_counts_half_of_that_of_a_half_life_later():
    # Windows 0, 1 and 3, counted back from day 100; the half-life is two windows.
    log = [(user, p, day + p / 2) for user, day in ((0, 99), (1, 92), (2, 78)) for p in (0, 1)]
    found = flows(csr(*log), members(np.eye(5)), half_life=2 * WEEK)
    average = 1 + 0.5**0.5 + 0.5**1.5
    assert found[CO][0, 1] == pytest.approx(average)
    assert found[THEN][0, 1] == pytest.approx(average)
    assert flows(csr(*log), members(np.eye(5)))[CO][0, 1] == pytest.approx(3)


def test_a_product_in_two_interests_makes_no_flow_with_itself():
    log = [(0, 0, 99), (0, 0, 98), (1, 0, 95), (1, 1, 94)]
    found = flows(csr(*log), members([[0.5, 0.5, 0], [0, 0, 1], *np.zeros((3, 3))]))
    assert found[CO][:2, :2].tolist() == [[0, 0], [0, 0]]
    assert found[THEN][:2, :2].tolist() == [[0, 0], [0, 0]]
    assert found[CO][0, 2] == found[CO][2, 1] == 0.5
    assert found[THEN][2].tolist() == [0.5, 0.5, 0]


def test_events_lead_from_the_interests_of_users_to_those_of_advertisers():
    owner = np.zeros((5, 2))
    owner[0], owner[1] = (0.25, 0.75), (1, 0)
    user = [(1, 0), (0.5, 0.5), (0, 0)]
    given = members(np.full((5, 2), 0.5), user=user, owner=owner)
    found = flows(csr((0, 0, 99), (1, 1, 92), (2, 0, 99), (0, 4, 99)), given, half_life=WEEK)
    np.testing.assert_allclose(found[ADVERTISER], [[0.25 + 0.5 * 0.5, 0.75], [0.5 * 0.5, 0]])


def test_later_events_and_products_without_a_bag_do_not_count():
    bags = np.eye(5)
    bags[3] = 0
    past = [(0, 0, 99), (0, 1, 99.5), (0, 3, 99.2), (1, 4, 98)]
    found = flows(csr(*past), members(bags))
    assert found[CO].sum() == 2
    later = flows(csr(*past, (0, 4, 100), (2, 0, 101), (2, 1, 101)), members(bags))
    for name, matrix in found.items():
        assert (later[name] == matrix).all()


def test_blocks_change_nothing_but_rounding_and_later_events_not_even_that(log, monkeypatch):
    bags = [soft_bags(np.random.default_rng(level), 12, k) for level, k in ((1, 6), (2, 4))]
    given, timing = [members(b, users=9) for b in bags], Timing(BEFORE, WEEK, 20 * DAY)
    whole = interest_flows(csr(*log, users=9, products=12), given, timing)
    monkeypatch.setattr(hierarchy.flow, "_EDGES", 30)
    parts = interest_flows(csr(*log, users=9, products=12), given, timing)
    more = [(user, 0, 100 + user / 10) for user in range(9) for _ in range(20)]
    after = interest_flows(csr(*log, *more, users=9, products=12), given, timing)
    for level, name in pairs(range(2), (CO, THEN)):
        np.testing.assert_allclose(parts[level][name].toarray(), whole[level][name].toarray(), atol=1e-12)
        assert (after[level][name].toarray() == parts[level][name].toarray()).all()


def test_a_link_is_as_strong_as_its_excess_over_chance():
    # All sums are 40 of 160, so chance gives 10 of each pair.
    counts = np.array([[4.0, 16, 12, 8], [16, 4, 8, 12], [10, 10, 10, 10], [10, 10, 10, 10]])
    source, target, weight = strongest(sparse.csr_array(counts), 3)
    assert list(zip(source.tolist(), target.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 0), (1, 3)]
    np.testing.assert_allclose(weight, [0.75, 0.25, 0.75, 0.25])


def test_only_the_strongest_links_stay_and_weights_of_a_source_sum_to_one():
    rng = np.random.default_rng(3)
    source, target, weight = strongest(sparse.csr_array(rng.integers(0, 50, (20, 20)).astype(float)), 2)
    assert np.bincount(source).tolist() == [2] * 20
    assert (source != target).all()
    np.testing.assert_allclose(np.bincount(source, weight), 1.0, rtol=1e-6)
    assert (weight[::2] >= weight[1::2]).all()


def test_without_events_there_is_no_flow():
    found = flows(csr((0, 0, 100)), members(np.eye(5)))
    assert all(matrix.sum() == 0 for matrix in found.values())
    source, target, weight = strongest(sparse.csr_array((5, 5)), 3)
    assert len(source) == len(target) == len(weight) == 0
