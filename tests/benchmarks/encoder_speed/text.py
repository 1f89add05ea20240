"""Part text: our encoder and sentence-transformers on the same texts with the same weights, in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from encoders.base import Vectors
from encoders.text import PACKAGED_MODEL, TextEncoder, locate
from encoders.text_stream import encoded
from tests.benchmarks.encoder_speed.bench import Bench, check
from tests.benchmarks.encoder_speed.corpora import made_texts, made_words, real_texts
from tests.benchmarks.encoder_speed.models import TEXT_SHAPES, WORDS, write_text_model

MAX_TOKENS = 256
REFERENCE = "sentence-transformers"
HALF = f"{REFERENCE} bf16"

Variant = tuple[str, str, bool]
"""Name, dtype, and whether it is compiled."""

VARIANTS: tuple[Variant, ...] = (
    ("strata", "float32", False),
    ("strata bf16", "bfloat16", False),
    ("strata bf16 compiled", "bfloat16", True),
)
_MADE = 30_000
_WARM = 512


def measure(bench: Bench) -> None:
    """The packaged model on real texts on a CPU; random weights of known shapes on made texts on a GPU."""
    if bench.device == "cpu" and bench.data:
        _on_cpu(bench, _spread_over(real_texts(bench.data), bench.texts))
        return bench.flush()
    texts = made_texts(bench.texts or _MADE, made_words(WORDS))
    for name, shape in TEXT_SHAPES.items():
        model = write_text_model(bench.scratch / name, shape)
        compare_variants(bench, name, model, texts, VARIANTS)
        bench.flush()


def _on_cpu(bench: Bench, texts: list[str]) -> None:
    torch.set_num_threads(bench.threads)
    ours = TextEncoder(PACKAGED_MODEL, MAX_TOKENS)
    shape = _shape(PACKAGED_MODEL, texts)
    candidates = {REFERENCE: _peer(locate(PACKAGED_MODEL), texts, "cpu"), "strata": _ours(bench, ours, texts)}
    reference, found = (call() for call in candidates.values())
    bench.add("texts", "strata", "least cosine", "cosine", shape, [check("strata", found, reference)])
    _facts(bench, ours, texts, shape)
    bench.compare("texts", shape, len(texts), candidates, [REFERENCE])
    _utilise(bench, "strata", ours, texts, shape)


def compare_variants(bench: Bench, name: str, model: str, texts: list[str], variants: Sequence[Variant]) -> None:
    """Our encoder in every variant against the peer as it comes, in bfloat16, and in large batches."""
    shape = _shape(f"{name}, random weights", texts)
    encoders = {
        label: TextEncoder(model, MAX_TOKENS, bench.device, dtype, compile) for label, dtype, compile in variants
    }
    half = {"dtype": torch.bfloat16}
    candidates = {
        REFERENCE: _peer(model, texts, bench.device),
        HALF: _peer(model, texts, bench.device, half),
        f"{HALF}, 512 a batch": _peer(model, texts, bench.device, half, batch_size=512),
    }
    peers = list(candidates)
    candidates |= {label: _ours(bench, encoder, texts) for label, encoder in encoders.items()}
    found = _warmed(bench, candidates)
    bench.gate("texts", shape, found, REFERENCE, HALF)
    _facts(bench, next(iter(encoders.values())), texts, shape)
    bench.compare("texts", shape, len(texts), {label: candidates[label] for label in found}, peers)
    for label, encoder in encoders.items():
        if label in found:
            _utilise(bench, label, encoder, texts, shape)


def _warmed(bench: Bench, candidates: dict[str, Callable[[], Vectors]]) -> dict[str, Vectors]:
    """Vectors of one pass of each; a compiled candidate that fails is left out, and it is said why."""
    found = {}
    for label, call in candidates.items():
        try:
            took, found[label] = bench.seconds(call)
            bench.say(f"first pass: {label} {took:.2f} s")
        except Exception as error:
            if "compiled" not in label:
                raise
            bench.say(f"{label} is left out, it failed: {type(error).__name__}: {str(error)[:500]}")
    return found


def _ours(bench: Bench, encoder: TextEncoder, texts: Sequence[str]) -> Callable[[], Vectors]:
    def run() -> Vectors:
        vectors = np.zeros((len(texts), encoder.dim), np.float32)
        for batch, rows in encoded(encoder, texts, None, bench.threads):
            vectors[batch.index] = rows
        return vectors

    return run


def _peer(
    model: str, texts: list[str], device: str, options: dict[str, Any] | None = None, batch_size: int = 32
) -> Callable[[], Vectors]:
    """`SentenceTransformer.encode` with its defaults but for what is given."""
    from sentence_transformers import SentenceTransformer

    network = SentenceTransformer(str(Path(model)), device=device, model_kwargs=options or {})
    network.max_seq_length = MAX_TOKENS

    def run() -> Vectors:
        found: Vectors = network.encode(texts, batch_size=batch_size, show_progress_bar=False)
        return found.astype(np.float32)

    network.encode(texts[:_WARM], show_progress_bar=False)
    return run


def _facts(bench: Bench, encoder: TextEncoder, texts: list[str], shape: str) -> None:
    """Rows of padding and of tokenizing alone."""
    took, plan = bench.seconds(lambda: encoder.plan(texts))
    padded = 1 - sum(int(batch.lengths.sum()) for batch in plan) / sum(batch.ids.size for batch in plan)
    bench.add("texts", "strata", "padding", "share", shape, [padded])
    bench.add("texts", "strata", "tokenized and planned", "texts/s", shape, [len(texts) / took])


def _utilise(bench: Bench, label: str, encoder: TextEncoder, texts: list[str], shape: str) -> None:
    plan = encoder.plan(texts)
    flops = sum(_flops(encoder, batch.lengths) for batch in plan)

    def run() -> None:
        with ThreadPoolExecutor(bench.threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(encoder.encode_planned, plan))

    bench.utilisation("texts", label, shape, flops, run)


def _flops(encoder: TextEncoder, lengths: np.ndarray) -> float:
    """Operations on real tokens: 2 for each weight of a linear layer, 4 x width for each pair of tokens, by layer."""
    config = encoder.config
    width, inner = config.hidden_size, config.intermediate_size
    weights = 4 * width * width + 2 * width * inner
    tokens = lengths.astype(np.float64)
    return float(config.num_hidden_layers * (2 * weights * tokens.sum() + 4 * width * (tokens**2).sum()))


def _shape(model: str, texts: Sequence[str]) -> str:
    return f"{model}, {len(texts):,} texts, at most {MAX_TOKENS} tokens"


def _spread_over(texts: list[str], count: int | None) -> list[str]:
    """`count` of the texts at even distances; all when it is not given."""
    if not count or count >= len(texts):
        return texts
    return [texts[at] for at in np.linspace(0, len(texts) - 1, count).astype(int)]
