"""The one door to FAISS: build, save and search exact or IVF indexes behind explicit int64 ids.

FAISS accepts NaN vectors, duplicate ids and flipped bits without a word, so this module checks all three
(the last through the sha256 in the artifact's manifest).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from data.errors import BadDataError

FLAT_LIMIT = 200_000
"""Above this many vectors an IVF index is built; below it exact search is faster than the id lookup after it."""


def build(vectors: NDArray[np.float32], ids: NDArray[np.int64]) -> faiss.Index:
    """An inner-product index of `vectors` (n, d) under `ids` (n,): exact behind an IDMap, IVF-Flat when large.

    Raises BadDataError for NaN or infinite components, duplicate or negative ids, or lengths that differ.
    """
    if vectors.ndim != 2 or len(vectors) != len(ids):
        raise BadDataError(f"expected vectors (n, d) and ids (n,), got {vectors.shape} and {ids.shape}")
    if not np.isfinite(vectors).all():
        bad = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise BadDataError(f"vector of id {ids[bad]} has NaN or infinite components: refusing to index it")
    if len(np.unique(ids)) != len(ids) or (len(ids) and ids.min() < 0):
        raise BadDataError("expected unique ids >= 0, got duplicates or negative ids")
    dim = vectors.shape[1]
    index: faiss.Index
    if len(vectors) <= FLAT_LIMIT:
        index = faiss.IndexIDMap(faiss.IndexFlatIP(dim))
    else:
        lists = int(4 * np.sqrt(len(vectors)))
        inverted: Any = faiss.index_factory(dim, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
        inverted.train(np.ascontiguousarray(vectors))
        inverted.nprobe = max(8, lists // 16)
        index = inverted
    index.add_with_ids(np.ascontiguousarray(vectors), np.ascontiguousarray(ids))
    return index


def save(index: faiss.Index, path: Path) -> None:
    """Write an index file."""
    faiss.write_index(index, str(path))


def load(path: Path) -> faiss.Index:
    """Read an index file whose hash the caller has verified (a torn file raises BadDataError)."""
    try:
        return faiss.read_index(str(path))
    except RuntimeError as error:
        raise BadDataError(f"index {path} is unreadable: {error}") from error


def search(
    index: faiss.Index, queries: NDArray[np.float32], k: int, allowed: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The `k` ids of largest inner product for each query: scores (q, k) and ids (q, k), -1 where fewer exist.

    `allowed` restricts the answer to those ids. Raises BadDataError for NaN queries or a wrong dimension.
    """
    if queries.ndim != 2 or queries.shape[1] != index.d:
        raise BadDataError(f"expected queries (q, {index.d}), got {queries.shape}")
    if not np.isfinite(queries).all():
        raise BadDataError("query has NaN or infinite components")
    contiguous = np.ascontiguousarray(queries, dtype=np.float32)
    if allowed is None:
        scores, ids = index.search(contiguous, k)
        return scores, ids
    selector = faiss.IDSelectorBatch(np.ascontiguousarray(allowed, dtype=np.int64))
    scores, ids = index.search(contiguous, k, params=_restricted(index, selector))
    return scores, ids


def _restricted(index: Any, selector: Any) -> Any:
    """Search parameters that admit only what `selector` does; an IVF index needs its own kind."""
    inverted = isinstance(index, faiss.IndexIVF)
    make: Any = faiss.SearchParametersIVF if inverted else faiss.SearchParameters
    return make(sel=selector, nprobe=index.nprobe) if inverted else make(sel=selector)


def exact_recall(index: faiss.Index, vectors: NDArray[np.float32], ids: NDArray[np.int64], k: int = 10) -> float:
    """Share of the exact top-`k` that `index` returns, over up to 256 of its own vectors spread evenly."""
    if len(vectors) == 0:
        return 1.0
    probes = vectors[:: max(1, len(vectors) // 256)][:256]
    k = min(k, len(vectors))
    exact = faiss.IndexIDMap(faiss.IndexFlatIP(vectors.shape[1]))
    exact.add_with_ids(np.ascontiguousarray(vectors), np.ascontiguousarray(ids))
    _, truth = exact.search(np.ascontiguousarray(probes), k)
    _, found = search(index, probes, k)
    hits = sum(len(np.intersect1d(a, b)) for a, b in zip(truth, found, strict=True))
    return hits / truth.size
