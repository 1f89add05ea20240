"""Vectors of all distinct texts, batch by batch, each finished batch kept in the work folder for a resumed run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data.artifacts import ArtifactRef, OutputDir
from data.context import RunContext
from encoders.base import Vectors
from encoders.batches import Batch
from encoders.earlier import Earlier, text_hashes, write_hashes
from encoders.shards import write_whole
from encoders.text_stream import Plans, encoded


def encode_texts(
    encoder: Plans,
    texts: Sequence[str],
    batch_tokens: int | None,
    out: OutputDir,
    ctx: RunContext,
    previous: ArtifactRef | None = None,
) -> tuple[Vectors, dict[str, Any]]:
    """Write text.npy, float32 (U, d) with one unit-norm row a text, and text_hashes.npy; returns the vectors mapped,
    and figures: how many texts were encoded here, and the share of padding.

    Texts that `previous`, features of an earlier day, has from the same encoder are taken from there.
    """
    vectors: Vectors = out.open_array("text.npy", (len(texts), encoder.dim), np.float32)
    shards = out.work / "text"
    shards.mkdir(parents=True, exist_ok=True)
    hashes, earlier = text_hashes(texts), Earlier(previous, "text", encoder.identity)
    write_hashes(out, "text", hashes)
    todo = earlier.lend(hashes, vectors)
    fresh = [texts[place] for place in todo]
    batches = encoded(encoder, fresh, batch_tokens, ctx.threads, partial(_vectors, encoder, shards))
    total = real = 0
    with ctx.progress.step("encode texts", len(fresh), "texts") as step, closing(batches):
        for batch, rows in batches:
            _save(shards / _name(encoder, batch), rows)
            vectors[todo[batch.index]] = rows
            total, real = total + batch.ids.size, real + int(batch.lengths.sum())
            step.advance(len(rows))
    return vectors, {"encoded": len(fresh), "padded": round(1 - real / total if total else 0.0, 4)}


def _name(encoder: Plans, batch: Batch) -> str:
    """File of a batch's vectors, named by all that decides them, so that none is ever stale."""
    causes = hashlib.sha256(json.dumps([encoder.identity, batch.ids.shape], sort_keys=True).encode())
    causes.update(batch.ids.tobytes())
    causes.update(batch.lengths.tobytes())
    return f"{causes.hexdigest()[:32]}.npy"


def _vectors(encoder: Plans, folder: Path, batch: Batch) -> Vectors:
    path = folder / _name(encoder, batch)
    if not path.exists():
        return encoder.encode_planned(batch)
    vectors: Vectors = np.load(path, allow_pickle=False)
    return vectors


def _save(path: Path, vectors: Vectors) -> None:
    """Write unless it is there: done beside the computing, so that nobody waits for the disk."""
    if path.exists():
        return
    write_whole(path, lambda stream: np.save(stream, vectors, allow_pickle=False))
