"""What a search over vectors asks of them beforehand, whoever does the search."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from data.errors import BadDataError


def check_vectors(vectors: NDArray[np.float32], ids: NDArray[np.int64]) -> None:
    """Raise BadDataError for NaN or infinite components, duplicate or negative ids, or lengths that differ."""
    if vectors.ndim != 2 or len(vectors) != len(ids):
        raise BadDataError(f"expected vectors (n, d) and ids (n,), got {vectors.shape} and {ids.shape}")
    if not np.isfinite(vectors).all():
        bad = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise BadDataError(f"vector of id {ids[bad]} has NaN or infinite components: refusing to index it")
    if len(np.unique(ids)) != len(ids) or (len(ids) and ids.min() < 0):
        raise BadDataError("expected unique ids >= 0, got duplicates or negative ids")


def check_queries(queries: NDArray[np.float32], dim: int) -> None:
    """Raise BadDataError for NaN or infinite components or another dimension than `dim`."""
    if queries.ndim != 2 or queries.shape[1] != dim:
        raise BadDataError(f"expected queries (q, {dim}), got {queries.shape}")
    if not np.isfinite(queries).all():
        raise BadDataError("query has NaN or infinite components")
