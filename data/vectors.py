"""The one door to FAISS: build, save and search exact or IVF indexes behind explicit int64 ids.

On another device than the CPU, exact search is data.device_search's, loaded when it is asked for.

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
from data.vector_checks import check_queries, check_vectors

FLAT_LIMIT = 200_000
"""Above this many vectors an IVF index is built; below it exact search is faster than the id lookup after it."""

_ROUNDING = 1e-6
"""Of the largest score of a query: two searches may round a score differently by that much."""


def build(vectors: NDArray[np.float32], ids: NDArray[np.int64]) -> faiss.Index:
    """An inner-product index of `vectors` (n, d) under `ids` (n,): exact behind an IDMap, IVF-Flat when large.

    Raises BadDataError for NaN or infinite components, duplicate or negative ids, or lengths that differ.
    """
    if len(vectors) <= FLAT_LIMIT:
        return flat(vectors, ids)
    check_vectors(vectors, ids)
    lists = int(4 * np.sqrt(len(vectors)))
    inverted: Any = faiss.index_factory(vectors.shape[1], f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
    inverted.train(np.ascontiguousarray(vectors))
    inverted.nprobe = max(8, lists // 16)
    index: faiss.Index = inverted
    index.add_with_ids(np.ascontiguousarray(vectors), np.ascontiguousarray(ids))
    return index


def flat(vectors: NDArray[np.float32], ids: NDArray[np.int64]) -> faiss.Index:
    """An exact inner-product index of any number of vectors; raises as `build` does."""
    check_vectors(vectors, ids)
    index = faiss.IndexIDMap(faiss.IndexFlatIP(vectors.shape[1]))
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
    check_queries(queries, index.d)
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


def exact(
    vectors: NDArray[np.float32], ids: NDArray[np.int64], queries: NDArray[np.float32], k: int, device: str = "cpu"
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Exact search without an index to keep, on `device`: what `search` answers from a flat index of `vectors` (n, d).

    data.device_search says in which sense answers of two devices are equal. Raises BadDataError for bad vectors.
    """
    if device != "cpu":
        from data.device_search import DeviceIndex

        return DeviceIndex(vectors, ids, device).search(queries, k)
    return search(flat(vectors, ids), queries, k)


def exact_recall(
    index: faiss.Index, vectors: NDArray[np.float32], ids: NDArray[np.int64], k: int = 10, device: str = "cpu"
) -> float:
    """Share of the exact top-`k` that `index` returns, over up to 256 of its own vectors spread evenly.

    What scores as well as the last of the exact ones (up to rounding) is one of them, so that it does not matter which
    of equal vectors was found. Exact search is the costly part, O(256 n d), and happens on `device`.
    """
    if len(vectors) == 0:
        return 1.0
    probes = vectors[:: max(1, len(vectors) // 256)][:256]
    k = min(k, len(vectors))
    truth, _ = exact(vectors, ids, probes, k, device)
    scores, _ = search(index, probes, k)
    least = truth[:, -1:] - _ROUNDING * np.abs(truth).max(axis=1, keepdims=True)
    return float((scores >= least).mean())
