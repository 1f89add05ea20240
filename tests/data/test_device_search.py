"""Exact search in torch: FAISS's answers, defined to the last id, whatever the size of the pieces."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from data import device_search, vectors
from data.device_search import NOTHING, DeviceIndex
from data.errors import BadDataError

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]


def _drawn(whole, n=700, dim=6, queries=90, seed=0):
    """Vectors, shuffled ids with gaps, and queries; `whole` numbers make every sum exact and most scores tie."""
    rng = np.random.default_rng(seed)
    make = (lambda *shape: rng.integers(-3, 4, shape)) if whole else (lambda *shape: rng.standard_normal(shape))
    return make(n, dim).astype(np.float32), rng.permutation(3 * n)[:n], make(queries, dim).astype(np.float32)


def _sorted_by_hand(rows, ids, queries, k):
    """Larger score first, then the lower id, by a full sort."""
    scores = (queries.astype(np.float64) @ rows.T.astype(np.float64)).astype(np.float32)
    order = np.lexsort((np.broadcast_to(ids, scores.shape), -scores))[:, :k]
    return np.take_along_axis(scores, order, axis=1), ids[order]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("k", [1, 10, 100, 700])
@pytest.mark.parametrize(("at_once", "asked"), [(1 << 20, 1024), (64 * 150, 64), (1, 7)])
def test_whole_numbers_give_the_one_right_answer(device, k, at_once, asked, monkeypatch):
    monkeypatch.setattr(device_search, "AT_ONCE", at_once)
    monkeypatch.setattr(device_search, "QUERIES", asked)
    rows, ids, queries = _drawn(True, queries=90 if at_once > 1 else 9)
    scores, found = DeviceIndex(rows, ids, device).search(queries, k)
    wanted, right = _sorted_by_hand(rows, ids, queries, k)
    assert (np.diff(wanted, axis=1) == 0).any() or k == 1
    np.testing.assert_array_equal(scores, wanted)
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("whole", [False, True])
def test_answers_are_those_of_faiss_but_for_ties(device, whole):
    rows, ids, queries = _drawn(whole, dim=32)
    scores, found = DeviceIndex(rows, ids, device).search(queries, 20)
    theirs, faiss_ids = vectors.exact(rows, ids, queries, 20)
    np.testing.assert_allclose(scores, theirs, rtol=1e-5, atol=1e-5)
    sure = scores > scores[:, -1:] + 1e-4
    assert sure.mean() > 0.5
    for ours, other, above in zip(found, faiss_ids, sure, strict=True):
        assert set(ours[above]) <= set(other)
    if not whole:
        assert (found == faiss_ids).mean() > 0.99


def test_the_door_hands_other_devices_to_torch():
    """ "cpu:0" is the same device under a name that FAISS does not know."""
    rows, ids, queries = _drawn(True)
    _, found = vectors.exact(rows, ids, queries, 12, "cpu:0")
    np.testing.assert_array_equal(found, _sorted_by_hand(rows, ids, queries, 12)[1])
    index = vectors.build(np.repeat(rows, 3, axis=0), np.arange(3 * len(rows)))
    assert vectors.exact_recall(index, np.repeat(rows, 3, axis=0), np.arange(3 * len(rows)), 10, "cpu:0") == 1.0


def test_signed_zeros_tie():
    rows = np.array([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], np.float32)
    queries = np.array([[0.0, 1.0], [-0.0, 0.0]], np.float32)
    for k in (1, 3, 4):
        assert DeviceIndex(rows, np.arange(4), "cpu").search(queries, k)[1].tolist() == [list(range(k))] * 2


def test_missing_places_are_minus_one():
    rows, ids, queries = _drawn(False, n=3)
    scores, found = DeviceIndex(rows, ids).search(queries, 5)
    assert (found[:, 3:] == -1).all()
    assert (scores[:, 3:] == NOTHING).all()
    theirs, faiss_ids = vectors.exact(rows, ids, queries, 5)
    np.testing.assert_array_equal(found, faiss_ids)
    np.testing.assert_allclose(scores, theirs, rtol=1e-5, atol=1e-5)
    assert DeviceIndex(rows[:0], ids[:0]).search(queries, 2)[1].tolist() == [[-1, -1]] * len(queries)
    assert DeviceIndex(rows, ids).search(queries[:0], 2)[1].shape == (0, 2)


def test_a_query_is_answered_alike_alone_and_among_others():
    rows, ids, queries = _drawn(True)
    index = DeviceIndex(rows, ids)
    alone = np.concatenate([index.search(query[None], 30)[1] for query in queries])
    np.testing.assert_array_equal(alone, index.search(queries, 30)[1])


def test_it_refuses_what_the_door_to_faiss_refuses():
    rows, ids, queries = _drawn(False)
    bad = rows.copy()
    bad[4, 2] = np.nan
    with pytest.raises(BadDataError, match=f"vector of id {ids[4]} "):
        DeviceIndex(bad, ids)
    with pytest.raises(BadDataError, match="duplicates or negative"):
        DeviceIndex(rows, np.zeros_like(ids))
    with pytest.raises(BadDataError, match=r"expected queries \(q, 6\)"):
        DeviceIndex(rows, ids).search(queries[:, :2], 2)
    with pytest.raises(BadDataError, match="NaN"):
        DeviceIndex(rows, ids).search(bad, 2)


def test_tf32_is_off_while_it_searches_and_as_before_afterwards():
    torch.set_float32_matmul_precision("high")
    try:
        rows, ids, queries = _drawn(False)
        DeviceIndex(rows, ids).search(queries, 2)
        assert torch.get_float32_matmul_precision() == "high"
        with device_search._full_precision():
            assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_it_needs_no_faiss():
    code = "import sys, data.device_search; print('faiss' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
