"""A catalogue that grew: what it had is not encoded again, and has the vectors it had, to the bit."""

import numpy as np
import pyarrow as pa
import pytest

from data import synthetic
from data.artifacts import OutputDir, Store
from data.context import RunContext
from encoders import encode
from encoders.attributes import AttributeEncoder
from encoders.describe import Facts
from encoders.earlier import HASH_BYTES, Earlier, file_hashes, text_hashes
from encoders.fuse import fit_whitening
from encoders.text import TextEncoder
from encoders.text_cache import encode_texts
from tests.fixtures.artifacts import make_ref
from tests.fixtures.tiny_model import write_model

T0 = synthetic.cuts()[0]


def described(folder, encoder, texts):
    """A features artifact of texts alone."""

    def write(out):
        encode_texts(encoder, texts, None, out, RunContext(threads=1))
        out.write_json("encoder.json", {"text": encoder.identity})

    return make_ref(Store(folder), "features", write)


def encoded(folder, encoder, texts, previous):
    out = OutputDir(folder, folder / "work", "k")
    vectors, spent = encode_texts(encoder, texts, None, out, RunContext(threads=1), previous)
    return np.array(vectors), spent["encoded"]


OLD = [f"tea {number}" for number in range(40)]
GROWN = sorted([*OLD, "a bread", "rose", "tea 7x"])


def test_only_new_texts_are_encoded_and_all_are_as_if_encoded_at_once(tiny, tmp_path):
    previous = described(tmp_path / "store", tiny, OLD)
    lent, new = encoded(tmp_path / "lent", tiny, GROWN, previous)
    whole, every = encoded(tmp_path / "whole", tiny, GROWN, None)
    assert (new, every) == (3, len(GROWN))
    assert np.array_equal(lent, whole)
    assert encoded(tmp_path / "same", tiny, OLD, previous)[1] == 0


def test_another_encoder_takes_nothing(tiny, tmp_path):
    previous = described(tmp_path / "store", tiny, OLD)
    other = TextEncoder(write_model(tmp_path / "model", seed=1))
    assert encoded(tmp_path / "other", other, OLD, previous)[1] == len(OLD)


def test_rows_are_found_by_content_whatever_the_order(tiny, tmp_path):
    earlier = Earlier(described(tmp_path / "store", tiny, OLD), "text", tiny.identity)
    assert earlier.rows(text_hashes(["rose", OLD[5], OLD[0]])).tolist() == [-1, 5, 0]
    assert Earlier(None, "text", tiny.identity).rows(text_hashes(OLD)).tolist() == [-1] * len(OLD)
    assert file_hashes(["ab" * 32]).tolist() == [[0xAB] * HASH_BYTES]
    assert earlier.rows(text_hashes([])).tolist() == []


def test_whitened_rows_depend_on_no_other_row():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1300, 48)).astype(np.float32)
    whitening = fit_whitening(rows, 16, 0.5, 0.1)
    whole = whitening.apply(rows)
    some = rng.permutation(len(rows))[:700]
    assert np.array_equal(whitening.apply(rows[some]), whole[some])
    assert np.array_equal(whitening.apply(rows[:1]), whole[:1])


def test_attribute_vectors_depend_on_no_other_record():
    records = [Facts(("A", f"B{n % 7}"), (("size", f"{n} ml"), ("style", f"S{n % 5}")), n / 3) for n in range(60)]
    encoder = AttributeEncoder({"price": [0.0, 5.0, 20.0], "size [ml]": [0.0, 30.0, 60.0]}, 64)
    whole = encoder.encode(records)
    for start in (0, 17, 41):
        assert np.array_equal(encoder.encode(records[start : start + 9][::-1])[::-1], whole[start : start + 9])


@pytest.fixture
def stage(tmp_path, tiny_model):
    """`stage(world, key, previous) -> features`."""
    store = Store(tmp_path / "stage")

    def make(world, key, previous=None):
        events = make_ref(store, "events", lambda out: synthetic.write_events(world, out), key)
        inputs = {"events": events} | ({"previous": previous} if previous else {})
        config = encode.Config(t0=T0, model=tiny_model, dim=8)
        return make_ref(store, "features", lambda out: encode.run(config, inputs, out, RunContext(threads=1)), key)

    return make


def test_the_stage_gives_the_same_bytes_with_and_without_an_earlier_day(stage, world):
    products = world["products"]
    small = {**world, "products": products.filter(pa.array([n % 9 != 4 for n in range(len(products))]))}
    first = stage(small, "first")
    grown, whole = stage(world, "grown", first), stage(world, "whole")
    assert 0 < grown.metrics["encoded"] < whole.metrics["encoded"] == whole.metrics["texts"]
    for name, listed in whole.manifest["files"].items():
        assert grown.manifest["files"][name]["sha256"] == listed["sha256"], name
