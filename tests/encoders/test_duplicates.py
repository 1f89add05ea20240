import numpy as np
import pytest

from encoders.base import MODALITIES, unit
from encoders.content import Source
from encoders.duplicates import originals, table

RNG = np.random.default_rng(0)
BASE = unit(RNG.normal(size=(6, 32)))


def noisy(vector, cosine):
    """A unit vector at that cosine from `vector`."""
    other = RNG.normal(size=len(vector))
    other -= (other @ vector) * vector
    return unit((cosine * vector + np.sqrt(1 - cosine**2) * other / np.linalg.norm(other))[None])[0]


def found(text, known, near=0.98, image=None, text_rows=None):
    """Originals of products with these texts (vectors) and pictures (None: no picture)."""
    count = len(known)
    sources = {"text": Source(np.asarray(text, np.float32), np.array(text_rows or range(count), np.int32))}
    content = sources["text"].vectors[sources["text"].rows].copy()
    present = np.zeros((count, len(MODALITIES)), bool)
    present[:, 0] = True
    if image is not None:
        rows = np.array([-1 if vector is None else place for place, vector in enumerate(image)], np.int32)
        vectors = np.array([np.zeros(32) if vector is None else vector for vector in image], np.float32)
        sources["image"] = Source(vectors, rows)
        present[:, 1] = rows >= 0
        content = unit(content + np.where(present[:, 1:2], vectors, 0))
    original, exact = originals(sources, content, present, np.array(known, np.int64), near)
    return original.tolist(), exact.tolist()


def test_equal_content_is_an_exact_copy_of_the_first_known():
    original, exact = found(BASE[:2], [5, 3, 4], None, text_rows=[0, 0, 1])
    assert (original, exact) == ([1, 1, 2], [True, False, False])


def test_ties_in_time_go_to_the_first_row():
    assert found(BASE[:1], [7, 7], text_rows=[0, 0])[0] == [0, 0]


@pytest.mark.parametrize(("cosine", "expected"), [(0.99, 0), (0.97, 1)])
def test_a_near_copy_is_as_near_as_asked(cosine, expected):
    original, exact = found([BASE[0], noisy(BASE[0], cosine)], [1, 2])
    assert original == [0, expected]
    assert not any(exact)


def test_every_modality_has_to_be_alike():
    text = [BASE[0], noisy(BASE[0], 0.995), noisy(BASE[0], 0.995)]
    assert found(text, [1, 2, 3], image=[BASE[1], noisy(BASE[1], 0.995), BASE[2]])[0] == [0, 0, 2]
    assert found(text, [1, 2, 3], image=[BASE[1], noisy(BASE[1], 0.995), None])[0] == [0, 0, 2]


def test_likeness_does_not_drift_along_a_chain():
    step = np.arccos(0.985)
    axis = noisy(BASE[0], 0.0)
    turn = [unit((np.cos(step * k) * BASE[0] + np.sin(step * k) * axis)[None])[0] for k in range(3)]
    assert found(turn, [1, 2, 3])[0] == [0, 0, 2]


def test_exact_copies_of_a_near_copy_follow_it():
    texts = [BASE[0], noisy(BASE[0], 0.995)]
    assert found(texts, [1, 2, 3], text_rows=[0, 1, 1])[0] == [0, 0, 0]


def test_what_comes_later_changes_nothing_before():
    texts = [BASE[0], noisy(BASE[0], 0.995), BASE[3], noisy(BASE[3], 0.995)]
    whole, _ = found(texts, [4, 3, 2, 9])
    assert whole == [1, 1, 2, 2]
    assert found(texts[:3], [4, 3, 2])[0] == whole[:3]


def test_products_without_content_are_nobodys_copy():
    sources = {"text": Source(np.zeros((0, 32), np.float32), np.full(3, -1, np.int32))}
    nothing = np.zeros((3, len(MODALITIES)), bool)
    original, exact = originals(sources, np.zeros((3, 8), np.float32), nothing, np.zeros(3, np.int64), 0.98)
    assert original.tolist() == [0, 1, 2]
    assert not exact.any()


def test_the_table_lists_copies_only():
    rows = table(["a", "b", "c"], np.array([0, 0, 2]), np.array([False, True, False])).to_pylist()
    assert rows == [{"entity_id": "b", "original_id": "a", "exact": True}]
