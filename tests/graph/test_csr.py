import numpy as np

from graph.csr import EdgeList, to_csr


def edges(rows):
    src, dst, time, seen = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return EdgeList(src, dst, time, seen, np.ones(len(src), np.float32))


ROWS = [(2, 0, 5, 6), (0, 1, 9, 10), (0, 0, 1, 12), (0, 2, 9, 10), (2, 1, 4, 6), (0, 1, 9, 10)]


def test_rows_are_sorted_by_visibility_then_time():
    csr = to_csr(edges(ROWS), 4, 3)
    assert csr.rowptr.tolist() == [0, 4, 4, 6, 6]
    assert csr.visible_from.tolist() == [10, 10, 10, 12, 6, 6]
    assert csr.times.tolist()[3:] == [1, 4, 5]
    assert csr.col.dtype == np.int32


def test_the_order_of_the_edges_does_not_matter():
    shuffled = [ROWS[i] for i in (3, 0, 5, 4, 1, 2)]
    for one, other in zip(
        vars(to_csr(edges(ROWS), 4, 3)).values(), vars(to_csr(edges(shuffled), 4, 3)).values(), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_edges_of_one_moment_do_not_come_in_the_order_of_their_numbers():
    basket = [(0, col, 7, 8) for col in range(200)]
    col = to_csr(edges(basket), 1, 200).col
    assert sorted(col.tolist()) == list(range(200))
    assert abs(col[-20:].mean() - 100) < 45  # the last by number would have mean 189.5


def test_visible_counts_a_prefix_of_each_row():
    csr = to_csr(edges(ROWS), 4, 3)
    rows, times = np.array([0, 0, 0, 1, 2, 2, 3]), np.array([9, 10, 99, 99, 5, 6, 0])
    assert csr.visible(rows, times).tolist() == [0, 3, 4, 0, 0, 2, 0]


def test_visible_agrees_with_counting_on_long_rows():
    rng = np.random.default_rng(0)
    row, seen = rng.integers(0, 7, 997), rng.integers(0, 300, 997)
    csr = to_csr(EdgeList(row, row, seen - 1, seen, np.ones(997, np.float32)), 9, 9)
    asked, times = rng.integers(0, 9, 400), rng.integers(-5, 310, 400)
    expected = [((row == r) & (seen <= t)).sum() for r, t in zip(asked, times, strict=True)]
    assert csr.visible(asked, times).tolist() == expected
