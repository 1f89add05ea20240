from __future__ import annotations

import numpy as np

from ranking.asof import AsOf


def _brute(keys: np.ndarray, times: np.ndarray, key: int, at: int) -> list[int]:
    rows = np.flatnonzero((keys == key) & (times <= at))
    return sorted(rows, key=lambda row: (times[row], row))


def test_spans_match_a_search_through_all_rows() -> None:
    rng = np.random.default_rng(0)
    keys, times = rng.integers(0, 9, 300) * 7, rng.integers(0, 40, 300)
    index, order = AsOf.build(keys, times)
    asked, at = rng.integers(-1, 64, 500), rng.integers(-2, 45, 500)
    start, end = index.spans(asked, at)
    latest = index.latest(asked, at)
    for number in range(500):
        expected = _brute(keys, times, asked[number], at[number])
        assert order[start[number] : end[number]].tolist() == expected
        assert latest[number] == (end[number] - 1 if expected else -1)


def test_a_row_is_visible_at_its_own_time_and_not_before() -> None:
    index, _ = AsOf.build(np.array([5, 5]), np.array([10, 20]))
    assert index.latest(np.array([5, 5, 5, 5]), np.array([9, 10, 19, 20])).tolist() == [-1, 0, 0, 1]


def test_an_empty_index_knows_nothing() -> None:
    index, order = AsOf.build(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert len(order) == 0
    assert index.latest(np.array([0, 1]), np.array([5, 5])).tolist() == [-1, -1]
