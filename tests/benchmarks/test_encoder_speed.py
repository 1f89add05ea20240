"""The encoders' benchmark refuses wrong vectors, and its GPU part runs through with tiny shapes on a CPU."""

import importlib.util

import numpy as np
import pytest

from data.errors import BadDataError
from tests.benchmarks.encoder_speed import text
from tests.benchmarks.encoder_speed.bench import Bench, check
from tests.benchmarks.encoder_speed.corpora import made_texts, made_words
from tests.benchmarks.encoder_speed.models import WORDS, write_text_model

TINY = {"hidden_size": 48, "num_hidden_layers": 2, "intermediate_size": 96}


def test_the_gate_refuses_one_wrong_vector_and_vectors_that_are_all_alike():
    good = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    assert check("x", good * 3, good) > 0.9999
    wrong = good.copy()
    wrong[7] = good[8]
    with pytest.raises(BadDataError, match="cosines of at least"):
        check("x", wrong, good)
    with pytest.raises(BadDataError, match="different items"):
        check("x", np.ones((20, 8), np.float32), np.ones((20, 8), np.float32))
    with pytest.raises(BadDataError, match="finite"):
        check("x", good * np.nan, good)


def test_bfloat16_may_differ_no_more_than_the_peers(tmp_path):
    rng = np.random.default_rng(0)
    good = rng.normal(size=(50, 8)).astype(np.float32)
    near, far = (good + size * rng.normal(size=good.shape).astype(np.float32) for size in (0.01, 0.1))
    bench = Bench("cpu", tmp_path)
    bench.gate("x", "", {"peer": good, "peer bf16": far, "strata bf16": near}, "peer", "peer bf16")
    assert [row["metric"] for row in bench.rows] == ["least cosine"]
    with pytest.raises(BadDataError, match="on average"):
        bench.gate("x", "", {"peer": good, "peer bf16": near, "strata bf16": far}, "peer", "peer bf16")


def test_made_texts_are_about_as_long_as_real_ones():
    words = made_words(1000)
    lengths = [len(text.split()) for text in made_texts(2000, words)]
    assert len(set(words)) == 1000
    assert 20 < np.median(lengths) < 35
    assert np.quantile(lengths, 0.9) > 100


@pytest.mark.filterwarnings("default")
@pytest.mark.skipif(importlib.util.find_spec("sentence_transformers") is None, reason="the peer is an extra")
def test_the_gpu_part_gives_rows_of_every_candidate(tmp_path):
    bench = Bench("cpu", tmp_path, repeats=1)
    texts = made_texts(40, made_words(WORDS))
    text.compare_variants(bench, "tiny", write_text_model(tmp_path / "m", TINY), texts, text.VARIANTS[:2])
    rates = {
        row["peer"]: row["p50"] for row in bench.rows if row["unit"] == "texts/s" and row["metric"] == "throughput"
    }
    assert set(rates) == {text.REFERENCE, text.HALF, f"{text.HALF}, 512 a batch", "strata", "strata bf16"}
    assert all(rate > 0 for rate in rates.values())
    ratios = [row["peer"] for row in bench.rows if row["unit"] == "ratio"]
    assert len(ratios) == 6
    assert {row["dtype"] for row in bench.rows if row["peer"].startswith("strata bf16")} == {"bfloat16"}
