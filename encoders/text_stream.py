"""Many texts through a text encoder: tokenizing goes on ahead of the network, and several batches are under way."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch

from encoders.ahead import ahead
from encoders.base import Identity, Vectors
from encoders.batches import Batch

SLICE = 16_384
"""Texts tokenized and put into batches at a time."""


class Plans(Protocol):
    """An encoder that says which texts it reads together."""

    identity: Identity
    dim: int

    def plan(self, texts: Sequence[str], batch_tokens: int | None = None) -> list[Batch]:
        """Batches that cover all texts once."""
        ...

    def encode_planned(self, batch: Batch) -> Vectors:
        """Unit-norm float32 (len(batch.index), dim), safe in threads."""
        ...


def encode_all(encoder: Plans, texts: Sequence[str]) -> Vectors:
    """Unit-norm float32 (n, dim), one row a text, in this thread: for a few texts."""
    vectors = np.zeros((len(texts), encoder.dim), np.float32)
    for planned in encoder.plan(texts):
        vectors[planned.index] = encoder.encode_planned(planned)
    return vectors


def encoded(
    encoder: Plans,
    texts: Sequence[str],
    batch_tokens: int | None,
    threads: int,
    compute: Callable[[Batch], Vectors] | None = None,
    slice_texts: int = SLICE,
) -> Generator[tuple[Batch, Vectors], None, None]:
    """Every text once, as batches with their vectors float32 (n, dim); `batch.index` is the position in `texts`.

    `threads` batches are computed at once, each by a single thread: faster on a CPU than all threads on one batch, and
    no bit depends on their number. On a GPU the host's part of one overlaps with the device's part of another. Memory:
    two slices of tokens, whatever the number of texts. `compute` stands in for `encoder.encode_planned`.
    """

    def plan(start: int) -> list[Batch]:
        planned = encoder.plan(texts[start : start + slice_texts], batch_tokens)
        return [replace(batch, index=batch.index + start) for batch in planned]

    def vectors(batch: Batch) -> tuple[Batch, Vectors]:
        return batch, (compute or encoder.encode_planned)(batch)

    computing = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    with ThreadPoolExecutor(1) as tokenizing, computing:
        plans = ahead(tokenizing, plan, range(0, len(texts), slice_texts), 1)
        batches = (batch for planned in plans for batch in planned)
        yield from ahead(computing, vectors, batches, 4 * threads)
