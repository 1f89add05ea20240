"""The door to FAISS refuses what FAISS itself would take without a word."""

import numpy as np
import pytest

from data import vectors
from data.errors import BadDataError


@pytest.fixture
def rows():
    drawn = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.fixture
def ids(rows):
    return np.arange(len(rows), dtype=np.int64) * 7 + 3


@pytest.fixture(params=["flat", "ivf"])
def index(request, rows, ids, monkeypatch):
    if request.param == "ivf":
        monkeypatch.setattr(vectors, "FLAT_LIMIT", 100)
    built = vectors.build(rows, ids)
    assert ("IVF" in type(built).__name__) == (request.param == "ivf")
    return built


def test_the_nearest_of_a_vector_is_itself_under_its_own_id(index, rows, ids):
    scores, found = vectors.search(index, rows[:20], 3)
    assert found[:, 0].tolist() == ids[:20].tolist()
    assert scores[:, 0] == pytest.approx(1, abs=1e-5)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_only_allowed_ids_are_answered_and_missing_places_are_minus_one(index, rows, ids):
    allowed = ids[[5, 9]]
    _, found = vectors.search(index, rows[5:6], 4, allowed)
    kept = [i for i in found[0].tolist() if i >= 0]
    assert kept[0] == ids[5]
    assert set(kept) <= set(allowed.tolist())
    assert found[0, 2:].tolist() == [-1, -1]


def test_a_saved_index_answers_alike_and_a_torn_one_is_refused(index, rows, tmp_path):
    path = tmp_path / "x.faiss"
    vectors.save(index, path)
    assert np.array_equal(vectors.search(vectors.load(path), rows, 5)[1], vectors.search(index, rows, 5)[1])
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(BadDataError, match="unreadable"):
        vectors.load(path)


def test_exact_search_has_full_recall_and_ivf_is_measured(index, rows, ids):
    recall = vectors.exact_recall(index, rows, ids)
    assert recall == 1.0 if "IDMap" in type(index).__name__ else 0.2 < recall <= 1.0
    assert vectors.exact_recall(index, rows[:0], ids[:0]) == 1.0


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_nan_and_infinity_are_refused_by_id(rows, ids, poison):
    bad = rows.copy()
    bad[4, 2] = poison
    with pytest.raises(BadDataError, match=f"vector of id {ids[4]} "):
        vectors.build(bad, ids)
    with pytest.raises(BadDataError, match="query"):
        vectors.search(vectors.build(rows, ids), bad, 2)


def test_duplicate_negative_and_mismatched_ids_are_refused(rows, ids):
    for wrong in (np.where(ids == ids[1], ids[0], ids), ids - 10):
        with pytest.raises(BadDataError, match="duplicates or negative"):
            vectors.build(rows, wrong)
    with pytest.raises(BadDataError, match=r"expected vectors \(n, d\)"):
        vectors.build(rows, ids[:-1])
    with pytest.raises(BadDataError, match=r"expected queries \(q, 16\)"):
        vectors.search(vectors.build(rows, ids), rows[:, :8], 2)


def test_an_empty_index_answers_with_nothing(rows):
    empty = vectors.build(rows[:0], np.zeros(0, np.int64))
    assert vectors.search(empty, rows[:2], 3)[1].tolist() == [[-1] * 3] * 2
