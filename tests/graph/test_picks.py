import numpy as np
import torch

from graph import hashing
from graph.draws import below, counter_hash, unit_interval
from graph.picks import Picks, join

CPU = torch.device("cpu")


def test_hashes_are_fixed_for_ever():
    # SplitMix64 of a zero state folded with 0: its first output for seed 0.
    assert int(counter_hash(0)) % 2**64 == 0xE220A8397B1DCDAF
    assert int(hashing.counter_hash(0)) == 0xE220A8397B1DCDAF


def test_hashes_of_tensors_and_of_arrays_have_the_same_bits():
    rng = np.random.default_rng(0)
    parts = rng.integers(-(2**63), 2**63 - 1, (50, 1)), np.arange(-3, 4)
    for first in (7, -1, 2**63):
        found = counter_hash(first, *(torch.from_numpy(part) for part in parts))
        np.testing.assert_array_equal(found.numpy().view(np.uint64), hashing.counter_hash(first, *parts))


def test_hashes_depend_on_every_part_and_their_order():
    assert len({int(counter_hash(*parts)) for parts in [(1, 2), (2, 1), (1,), (1, 2, 0), (-1, 2)]}) == 5


def test_hashes_broadcast_and_ints_count_as_tensors():
    nodes, slots = torch.arange(3)[:, None], torch.arange(4)
    grid = counter_hash(7, nodes, slots)
    assert grid.shape == (3, 4)
    assert grid[2, 1] == counter_hash(7, 2, 1) == counter_hash(torch.tensor(7), torch.tensor(2), 1)
    assert nodes.flatten().tolist() == [0, 1, 2]


def test_hashes_are_uniform():
    hashes = counter_hash(3, torch.arange(20_000))
    draws = unit_interval(hashes)
    assert draws.min() >= 0
    assert draws.max() < 1
    for tenths in (draws * 10, below(hashes, torch.full((20_000,), 10))):
        counts = np.bincount(tenths.numpy().astype(int), minlength=10)
        assert abs(counts - 2000).max() < 200


def test_below_reaches_every_number_and_no_other():
    hashes = torch.tensor([0, -1, 1 << 62, -(1 << 63)])
    assert below(hashes, torch.tensor(0)).tolist() == [0] * 4
    assert below(hashes, torch.tensor(2**31 - 1)).tolist() == [0, 2**31 - 2, (2**31 - 1) // 4, (2**31 - 1) // 2]


def test_picks_are_joined_cut_and_masked():
    picks = Picks.empty((2, 3), CPU)
    assert [array.dtype for array in picks.arrays()] == [
        torch.int8,
        torch.int64,
        torch.int16,
        torch.int8,
        torch.int64,
        torch.float64,
        torch.bool,
    ]
    real = picks.where(~picks.mask)
    assert not real.mask.any()  # where only takes away
    whole = join([picks, picks.first(1)])
    assert whole.node.shape == (2, 4)
