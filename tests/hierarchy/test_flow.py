"""Flow between primitives: what is bought together counts once a window, and more than chance would give."""

import numpy as np
import pytest
from scipy import sparse

import hierarchy.flow
from data.schema import MICROS_PER_DAY as DAY
from graph.csr import EdgeList, to_csr
from hierarchy.flow import Together, co_engagement, flow

WEEK = 7 * DAY
BEFORE = 100 * DAY


def csr(*events, users=3, products=5):
    """Events (user, product, day), each visible a moment after it happened."""
    user, product, day = (np.array(column, np.int64) for column in zip(*events, strict=True))
    time = day * DAY
    return to_csr(EdgeList(user, product, time, time + 1, np.ones(len(user), np.float32)), users, products)


def test_pairs_count_once_for_each_user_and_window():
    events = csr((0, 0, 99), (0, 1, 98), (0, 1, 97), (0, 2, 80), (1, 0, 95), (1, 1, 94), (2, 2, 99))
    (found,) = co_engagement(events, [np.arange(5, dtype=np.int32)], [5], BEFORE, WEEK)
    assert found.windows == 4
    counts = found.counts.toarray()
    assert counts[0, 1] == counts[1, 0] == 2
    assert counts.diagonal().tolist() == [2, 2, 2, 0, 0]
    assert counts[0, 2] == 0, "a purchase three weeks earlier is not together with it"


def test_later_events_and_products_without_a_primitive_do_not_count():
    events = csr((0, 0, 99), (0, 1, 99), (0, 2, 99), (0, 1, 100), (0, 3, 101))
    primitive = np.array([0, -1, 1, 1, 1], np.int32)
    (found,) = co_engagement(events, [primitive], [2], BEFORE, WEEK)
    assert found.counts.toarray().tolist() == [[1, 1], [1, 1]]


def test_counting_in_blocks_changes_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    events = csr(
        *zip(rng.integers(0, 9, 200), rng.integers(0, 7, 200), rng.integers(0, 99, 200), strict=True),
        users=9,
        products=7,
    )
    levels = [np.arange(7, dtype=np.int32), (np.arange(7) % 3).astype(np.int32)]
    whole = co_engagement(events, levels, [7, 3], BEFORE, WEEK)
    monkeypatch.setattr(hierarchy.flow, "_EDGES", 1)
    for one, other in zip(whole, co_engagement(events, levels, [7, 3], BEFORE, WEEK), strict=True):
        assert one.windows == other.windows
        assert (one.counts.toarray() == other.counts.toarray()).all()


def test_a_link_is_as_strong_as_its_excess_over_chance():
    # 0 is in every window; 1 and 2 are only ever bought together; 3 meets both no more than chance has it.
    counts = np.array([[100, 10, 10, 50], [10, 10, 10, 5], [10, 10, 10, 5], [50, 5, 5, 50]])
    source, target, weight = flow(Together(sparse.csr_array(counts), 100), 3)
    assert list(zip(source.tolist(), target.tolist(), strict=True)) == [(1, 2), (2, 1)]
    np.testing.assert_allclose(weight, 1.0)


def test_only_the_strongest_links_stay_and_weights_of_a_source_sum_to_one():
    counts = np.full((6, 6), 4)
    counts[range(6), range(6)] = [10, 20, 10, 10, 10, 10]
    counts[0, 1:] = [9, 8, 7, 6, 5]
    source, target, weight = flow(Together(sparse.csr_array(counts), 100), 2)
    # Chance gives 2 of the first pair and 1 of the others.
    strength = {1: (9 - 2) / np.sqrt(2), 2: 8 - 1, 3: 7 - 1}
    assert target[source == 0].tolist() == [2, 3]
    np.testing.assert_allclose(weight[source == 0], [7 / 13, 6 / 13], rtol=1e-6)
    assert sorted(strength, key=lambda place: -strength[place])[:2] == [2, 3]
    np.testing.assert_allclose(np.bincount(source, weight), 1.0, rtol=1e-6)
    assert np.bincount(source).max() == 2


def test_without_events_there_is_no_flow():
    events = csr((0, 0, 100))
    (found,) = co_engagement(events, [np.arange(5, dtype=np.int32)], [5], BEFORE, WEEK)
    source, _, weight = flow(found, 3)
    assert len(source) == len(weight) == found.windows == 0
    with pytest.raises(IndexError):
        source[0]
