"""Many texts through a text encoder: tokenizing goes on ahead of the network, and several batches are under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol, TypeVar

import torch

from encoders.base import Identity, Vectors
from encoders.batches import Batch

SLICE = 16_384
"""Texts tokenized and put into batches at a time."""

_In = TypeVar("_In")
_Out = TypeVar("_Out")


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
        plans = _ahead(tokenizing, plan, range(0, len(texts), slice_texts), 1)
        batches = (batch for planned in plans for batch in planned)
        yield from _ahead(computing, vectors, batches, 4 * threads)


def _ahead(pool: Executor, function: Callable[[_In], _Out], items: Iterable[_In], depth: int) -> Iterator[_Out]:
    """Results in the order of the items, of which at most `depth` are under way beyond the one handed out."""
    waiting: deque = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > depth:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
