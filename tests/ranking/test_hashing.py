from __future__ import annotations

import numpy as np
import pyarrow as pa

from ranking.hashing import hash_share, mix64, stable_hash

_ALL = (1 << 64) - 1


def _mix(value: int) -> int:
    mixed = (value + 0x9E3779B97F4A7C15) & _ALL
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _ALL
    return mixed ^ (mixed >> 31)


def _reference(text: str) -> int:
    letters = text.encode()
    state = _mix(len(letters))
    for start in range(0, len(letters), 8):
        state = _mix(state ^ int.from_bytes(letters[start : start + 8], "little"))
    return state


def test_hashes_follow_their_definition_letter_by_letter() -> None:
    ids = ["", "u-1", "12345678", "a longer identifier", "ünïcödé" * 3]
    assert stable_hash(pa.array(ids)).tolist() == [_reference(text) for text in ids]
    assert _reference("") == 0xE220A8397B1DCDAF, "the first output of SplitMix64 with seed 0"


def test_a_hash_belongs_to_the_id_and_not_to_its_place() -> None:
    ids = pa.array([f"event-{i}" * (i % 5) for i in range(200)])
    whole = stable_hash(ids)
    assert np.array_equal(stable_hash(ids[37:61]), whole[37:61])
    assert np.array_equal(stable_hash(pa.chunked_array([ids[:9], ids[9:]])), whole)
    order = np.random.default_rng(0).permutation(200)
    assert np.array_equal(stable_hash(ids.take(pa.array(order))), whole[order])


def test_ids_that_differ_in_one_letter_or_in_length_differ() -> None:
    ids = ["", "\0", "a", "b", "aaaaaaaa", "aaaaaaab", "aaaaaaaa\0", "aaaaaaaaa", *[str(i) for i in range(5000)]]
    assert len(np.unique(stable_hash(pa.array(ids)))) == len(ids)


def test_null_counts_as_the_empty_string_and_no_ids_give_no_hashes() -> None:
    assert stable_hash(pa.array([None], pa.string())) == stable_hash(pa.array([""]))
    assert len(stable_hash(pa.array([], pa.string()))) == 0


def test_a_seed_gives_another_draw() -> None:
    ids = pa.array([str(i) for i in range(100)])
    assert not np.intersect1d(stable_hash(ids, 1), stable_hash(ids, 2)).size


def test_shares_are_uniform() -> None:
    share = hash_share(stable_hash(pa.array([str(i) for i in range(20_000)])))
    assert share.min() >= 0
    assert share.max() < 1
    assert np.allclose(np.histogram(share, 10, (0, 1))[0], 2000, atol=200)


def test_mixing_is_one_to_one() -> None:
    assert len(np.unique(mix64(np.arange(10_000, dtype=np.uint64)))) == 10_000
