import numpy as np

from graph.picks import counter_hash, unit_interval


def test_hashes_are_fixed_for_ever():
    # SplitMix64 of a zero state folded with 0: its first output for seed 0.
    assert int(counter_hash(0)) == 0xE220A8397B1DCDAF


def test_hashes_depend_on_every_part_and_their_order():
    assert len({int(counter_hash(*parts)) for parts in [(1, 2), (2, 1), (1,), (1, 2, 0), (-1, 2)]}) == 5


def test_hashes_broadcast_like_numpy():
    nodes, slots = np.arange(3)[:, None], np.arange(4)[None, :]
    grid = counter_hash(7, nodes, slots)
    assert grid.shape == (3, 4)
    assert grid[2, 1] == counter_hash(7, np.array(2), np.array(1))


def test_hashes_are_uniform():
    draws = unit_interval(counter_hash(3, np.arange(20_000)))
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = np.bincount((draws * 10).astype(int), minlength=10)
    assert abs(counts - 2000).max() < 200
