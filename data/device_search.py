"""Exact search by inner product in torch, on any device: what FAISS's flat index does, where there is no FAISS for it.

The answer is defined to the last id: larger scores first, and among equal ones the lower id. FAISS finds the same ids
and scores, but which of equal scores it keeps and in which order depends on its blocks. Products are fp32 throughout
(no TF32); two machines may round a score differently, so "equal results" means: scores that differ by rounding at most,
and the same ids but where such scores tie. With components that are small integers every sum is exact, and so are ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from data.vector_checks import check_queries, check_vectors

AT_ONCE = 1 << 27
"""Scores that exist at a time: 512 MiB of them."""
QUERIES = 1024
"""Queries scored at a time, each against AT_ONCE / QUERIES vectors or more."""
NOTHING = float(np.finfo(np.float32).min)
"""The score that goes with id -1, as in FAISS."""

Top = tuple[torch.Tensor, torch.Tensor]
"""Scores (q, k) and rows of the index (q, k), best first."""


class DeviceIndex:
    """Vectors on a device, searched exactly. Memory: 4 n d bytes, and O(AT_ONCE) while searching."""

    def __init__(
        self, vectors: NDArray[np.float32], ids: NDArray[np.int64], device: str | torch.device = "cpu"
    ) -> None:
        """`vectors` (n, d) under `ids` (n,). Raises BadDataError as `data.vectors.build` does."""
        check_vectors(vectors, ids)
        order = np.argsort(ids, kind="stable")
        self.device, self._ids = torch.device(device), ids[order]
        self._vectors = torch.from_numpy(np.ascontiguousarray(vectors[order], np.float32)).to(self.device)

    @torch.no_grad()
    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The `k` ids of largest inner product for each query: scores (q, k) and ids (q, k), -1 where fewer exist.

        Time O(q n d). Raises BadDataError for NaN queries or a wrong dimension.
        """
        check_queries(queries, self._vectors.shape[1])
        count = min(k, len(self._ids))
        scores = np.full((len(queries), k), NOTHING, np.float32)
        ids = np.full((len(queries), k), -1, np.int64)
        for start in range(0, len(queries) if count else 0, QUERIES):
            rows = slice(start, start + QUERIES)
            asked = torch.from_numpy(np.ascontiguousarray(queries[rows], np.float32)).to(self.device)
            with _full_precision():
                found, place = self._best(asked, count)
            scores[rows, :count], ids[rows, :count] = found.cpu().numpy(), self._ids[place.cpu().numpy()]
        return scores, ids

    def _best(self, queries: torch.Tensor, k: int) -> Top:
        size = max(AT_ONCE // len(queries), 1)
        best: Top | None = None
        for start in range(0, len(self._vectors), size):
            scores = queries @ self._vectors[start : start + size].t()
            found, place = _top(scores, min(k, scores.shape[1]))
            place = place + start
            if best is not None:
                found, place = torch.cat([best[0], found], dim=1), torch.cat([best[1], place], dim=1)
            # Rows rise from block to block, so what came first stays first among equals.
            best = _ordered(found, place, k)
        assert best is not None
        return best


def _top(scores: torch.Tensor, k: int) -> Top:
    """The `k` largest of each row of `scores` (q, n), ordered; of those equal to the smallest, the first."""
    found, place = torch.topk(scores, min(k + 1, scores.shape[1]), dim=1)
    if found.shape[1] > k:
        tied = torch.nonzero(found[:, k - 1] == found[:, k])[:, 0]
        found, place = found[:, :k], place[:, :k].clone()
        for rows in torch.split(tied, max(1, len(scores) // 8)) if len(tied) else ():
            place[rows] = torch.topk(_keys(scores[rows]), k, dim=1).indices
            # A tied row's scores are as they were: only which of the smallest it holds has changed.
        found = scores.gather(1, place)
    place, order = place.sort(dim=1)
    return _ordered(found.gather(1, order), place, k)


def _keys(scores: torch.Tensor) -> torch.Tensor:
    """int64 keys that rise with the score and, among equal scores, fall with the column."""
    bits = (scores + 0.0).view(torch.int32).to(torch.int64)
    rising = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return rising * (1 << 31) - torch.arange(scores.shape[1], device=scores.device)


def _ordered(scores: torch.Tensor, places: torch.Tensor, k: int) -> Top:
    """The `k` largest, best first, equal ones in the order they came in."""
    scores, order = (scores + 0.0).sort(dim=1, descending=True, stable=True)
    return scores[:, :k], places.gather(1, order)[:, :k]


@contextmanager
def _full_precision() -> Iterator[None]:
    """Matrix products without TF32, whatever the setting was."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
