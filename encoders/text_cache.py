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
from encoders.batches import Batch, padded_share
from encoders.text import TextEncoder


def encode_texts(
    encoder: TextEncoder, texts: Sequence[str], batch_tokens: int | None, out: OutputDir, ctx: RunContext
) -> tuple[Vectors, float]:
    """Write text.npy, float32 (U, d) with one unit-norm row a text; returns it mapped, and the share of padding.

    `ctx.threads` batches are computed at once, each by a single thread: the fastest way for small batches, and no bit
    depends on the number of threads. Finished batches are stored meanwhile, so that nobody waits for the disk.
    """
    vectors: Vectors = out.open_array("text.npy", (len(texts), encoder.dim), np.float32)
    shards = out.work / "text"
    shards.mkdir(parents=True, exist_ok=True)
    plan = encoder.plan(texts, batch_tokens)
    paths = [shards / _name(encoder, batch) for batch in plan]
    pool = ThreadPoolExecutor(ctx.threads, initializer=torch.set_num_threads, initargs=(1,))
    with pool, ctx.progress.step("encode texts", len(texts), "texts") as step:
        try:
            found = pool.map(partial(_vectors, encoder), paths, plan)
            for path, batch, rows in zip(paths, plan, found, strict=True):
                if not path.exists():
                    _save(path, rows)
                vectors[batch.index] = rows
                step.advance(len(rows))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return vectors, padded_share(plan)


def _name(encoder: TextEncoder, batch: Batch) -> str:
    """File of a batch's vectors, named by all that decides them, so that none is ever stale."""
    causes = hashlib.sha256(json.dumps([encoder.identity, batch.ids.shape], sort_keys=True).encode())
    causes.update(batch.ids.tobytes())
    causes.update(batch.lengths.tobytes())
    return f"{causes.hexdigest()[:32]}.npy"


def _vectors(encoder: TextEncoder, path: Path, batch: Batch) -> Vectors:
    if not path.exists():
        return encoder.encode_planned(batch)
    vectors: Vectors = np.load(path, allow_pickle=False)
    return vectors


def _save(path: Path, vectors: Vectors) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "wb") as stream:
        np.save(stream, vectors, allow_pickle=False)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, path)
