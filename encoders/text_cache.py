"""Vectors of all distinct texts, batch by batch, each finished batch kept in the work folder for a resumed run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch

from data.artifacts import OutputDir
from data.context import RunContext
from encoders.base import Vectors
from encoders.text import Batch, TextEncoder


def encode_texts(
    encoder: TextEncoder, texts: Sequence[str], batch_tokens: int, out: OutputDir, ctx: RunContext
) -> Vectors:
    """Write text.npy, float32 (U, d) with one unit-norm row a text, and return it mapped.

    `ctx.threads` batches are computed at once, each by a single thread: the fastest way for small batches, and no bit
    depends on the number of threads.
    """
    vectors: Vectors = out.open_array("text.npy", (len(texts), encoder.dim), np.float32)
    shards = out.work / "text"
    shards.mkdir(parents=True, exist_ok=True)
    plan = encoder.plan(texts, batch_tokens)
    pool = ThreadPoolExecutor(ctx.threads, initializer=torch.set_num_threads, initargs=(1,))
    with pool, ctx.progress.step("encode texts", len(texts), "texts") as step:
        try:
            for batch, rows in zip(plan, pool.map(partial(_shard, encoder, shards), plan), strict=True):
                vectors[list(batch.index)] = rows
                step.advance(len(rows))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return vectors


def _shard(encoder: TextEncoder, folder: Path, batch: Batch) -> Vectors:
    """Vectors of a batch, computed or read back. The file is named by all that decides them, so none is ever stale."""
    causes = json.dumps([encoder.identity, batch.rows, batch.tokens, batch.ids], sort_keys=True)
    path = folder / f"{hashlib.sha256(causes.encode()).hexdigest()[:32]}.npy"
    if not path.exists():
        _save(path, encoder.encode_planned(batch))
    vectors: Vectors = np.load(path, allow_pickle=False)
    return vectors


def _save(path: Path, vectors: Vectors) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "wb") as stream:
        np.save(stream, vectors, allow_pickle=False)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, path)
