import threading

import numpy as np
import pytest

from encoders.text_stream import encoded

TEXTS = [f"{word} {number}" for word in ("tea", "bread", "rose") for number in range(30)]


@pytest.mark.parametrize("slice_texts", [7, 90, 1000])
def test_every_text_comes_once_with_its_own_vector(tiny, slice_texts):
    vectors = np.zeros((90, 32), np.float32)
    seen = []
    for batch, rows in encoded(tiny, TEXTS, 64, threads=2, slice_texts=slice_texts):
        vectors[batch.index] = rows
        seen += batch.index.tolist()
    assert sorted(seen) == list(range(90))
    assert ((vectors * tiny.encode(TEXTS)).sum(axis=1) > 0.9999).all()


def test_no_texts_give_nothing(tiny):
    assert list(encoded(tiny, [], 64, threads=2)) == []


def test_only_a_few_batches_are_under_way(tiny):
    started, lock = [0], threading.Lock()

    def compute(batch):
        with lock:
            started[0] += 1
        return tiny.encode_planned(batch)

    batches = encoded(tiny, TEXTS, 1, 2, compute, slice_texts=10)
    next(batches)
    assert started[0] <= 9
    batches.close()
    assert started[0] <= 9


def test_a_failure_reaches_the_caller(tiny):
    def compute(batch):
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        list(encoded(tiny, TEXTS, 64, 2, compute))
