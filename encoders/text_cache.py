"""Vectors of all distinct texts, batch by batch, each finished batch kept in the work folder for a resumed run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data.artifacts import OutputDir
from data.context import RunContext
from encoders.base import Vectors
from encoders.text import Batch, TextEncoder


def encode_texts(
    encoder: TextEncoder, texts: Sequence[str], batch_tokens: int, out: OutputDir, ctx: RunContext
) -> Vectors:
    """Write text.npy, float32 (U, d) with one unit-norm row a text, and return it mapped.

    A shard is named by the hash of its texts, its shape and the encoder's identity, so that a stale one is never read.
    """
    vectors: Vectors = out.open_array("text.npy", (len(texts), encoder.dim), np.float32)
    shards = out.work / "text"
    shards.mkdir(parents=True, exist_ok=True)
    with ctx.progress.step("encode texts", len(texts), "texts") as step:
        for batch in encoder.plan(texts, batch_tokens):
            path = shards / f"{_name(encoder, texts, batch)}.npy"
            if not path.exists():
                _save(path, encoder.encode_planned(texts, batch))
            vectors[list(batch.index)] = np.load(path, allow_pickle=False)
            step.advance(len(batch.index))
    return vectors


def _name(encoder: TextEncoder, texts: Sequence[str], batch: Batch) -> str:
    causes = [encoder.identity, batch.rows, batch.tokens, [texts[position] for position in batch.index]]
    return hashlib.sha256(json.dumps(causes, sort_keys=True).encode()).hexdigest()[:32]


def _save(path: Path, vectors: Vectors) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "wb") as stream:
        np.save(stream, vectors, allow_pickle=False)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, path)
