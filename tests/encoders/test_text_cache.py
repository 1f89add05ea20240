from threading import Lock

import numpy as np
import pytest

from data.artifacts import OutputDir
from data.context import RunContext
from encoders.text import TextEncoder
from encoders.text_cache import encode_texts
from tests.fixtures.tiny_model import write_model

TEXTS = sorted(f"{word} {number}" for word in ("tea", "bread", "rose") for number in range(30))


class Counting:
    """Counts the texts that reach the network; stops after `limit` batches as a kill would."""

    def __init__(self, monkeypatch, limit=10**6):
        self.batches, self.texts, lock = 0, [], Lock()
        real = TextEncoder.encode_planned

        def encode(encoder, batch):
            with lock:
                if self.batches == limit:
                    raise KeyboardInterrupt
                self.batches += 1
                self.texts += [TEXTS[position] for position in batch.index.tolist()]
            return real(encoder, batch)

        monkeypatch.setattr(TextEncoder, "encode_planned", encode)


def written(folder, encoder, work=None, threads=2):
    out = OutputDir(folder / "out", work or folder / "work", "k")
    _, spent = encode_texts(encoder, TEXTS, 64, out, RunContext(threads=threads))
    assert spent == {"encoded": len(TEXTS), "padded": 0}
    return (out.path / "text.npy").read_bytes()


def test_every_text_is_encoded_once(tiny, tmp_path, monkeypatch):
    count = Counting(monkeypatch)
    written(tmp_path, tiny)
    assert sorted(count.texts) == TEXTS


def test_the_number_of_threads_changes_no_bit(tiny, tmp_path):
    assert written(tmp_path / "one", tiny, threads=1) == written(tmp_path / "three", tiny, threads=3)


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(tiny, tmp_path, monkeypatch):
    whole = written(tmp_path / "whole", tiny)
    Counting(monkeypatch, limit=4)
    with pytest.raises(KeyboardInterrupt):
        written(tmp_path / "killed", tiny)
    monkeypatch.undo()
    rest = Counting(monkeypatch)
    assert written(tmp_path / "killed", tiny) == whole
    assert rest.batches == len(tiny.plan(TEXTS, 64)) - 4


def test_shards_of_another_model_are_not_read(tiny, tmp_path, monkeypatch):
    written(tmp_path / "one", tiny)
    other = TextEncoder(write_model(tmp_path / "model", seed=1))
    count = Counting(monkeypatch)
    mixed = written(tmp_path / "two", other, work=tmp_path / "one" / "work")
    assert len(count.texts) == len(TEXTS)
    assert mixed != written(tmp_path / "three", tiny)


def test_rows_stand_in_the_order_of_the_texts(tiny, tmp_path):
    written(tmp_path, tiny)
    vectors = np.load(tmp_path / "out" / "text.npy")
    np.testing.assert_allclose(vectors[[5, 77]], tiny.encode([TEXTS[5], TEXTS[77]]), atol=1e-5)
