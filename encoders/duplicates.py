"""Copies of the same product under several ids: they keep their identity and share their content.

Exact copies are equal in every modality by content hash. Near copies are nearly equal in every modality they have, and
are found among the nearest neighbours by fused content. A copy takes the content of the first known of its kind, so
what joins the catalogue later changes nothing. Each is compared with originals only, never with another copy: likeness
does not drift along a chain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data import vectors
from encoders.base import Vectors, unit
from encoders.content import Presence, Sources

NEIGHBOURS = 16
"""Nearest products that are looked at."""

_BLOCK = 4096


def originals(
    sources: Sources, content: Vectors, present: Presence, known: NDArray[np.int64], near: float | None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For each of n products the position of its original (its own if it is none's copy), int64 (n,), and which are
    exact copies, bool (n,).

    `content` (n, D) is fused, `present` (n, M), `known` (n,) [us]; `near` is the least cosine in every modality of a
    near copy, None for exact ones only. Time: one search of the distinct products, exact up to data.vectors.FLAT_LIMIT
    of them. Products without any content are never copies.
    """
    count = len(known)
    order = np.lexsort((np.arange(count), known))
    keys = np.stack([np.full(count, -1), *(source.rows for source in sources.values())], axis=1)
    first = _first_alike(keys, order)
    first = np.where(present.any(axis=1), first, np.arange(count))
    exact = first != np.arange(count)
    if near is None:
        return first, exact
    heads = order[first[order] == order]  # in the order they became known
    heads = heads[present[heads].any(axis=1)]
    head_of = np.arange(count)
    head_of[heads] = heads[_near_original(sources, content, present, heads, near)]
    return head_of[first], exact


def _first_alike(keys: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row of `keys` the first equal one in `order`."""
    _, alike = np.unique(keys, axis=0, return_inverse=True)
    first = np.empty(int(alike.max(initial=-1)) + 1, np.int64)
    first[alike[order[::-1]]] = order[::-1]  # of several values for one place the last one stays
    return first[alike]


def _near_original(
    sources: Sources, content: Vectors, present: Presence, heads: NDArray[np.int64], near: float
) -> NDArray[np.int64]:
    """For each of `heads` the place among them of the original it is a near copy of, else its own."""
    found = np.arange(len(heads))
    for place, other in _candidates(sources, content, present, heads, near):
        if found[place] == place and found[other] == other:
            found[place] = other
    return found


def _candidates(
    sources: Sources, content: Vectors, present: Presence, heads: NDArray[np.int64], near: float
) -> Sequence[tuple[int, int]]:
    """Places (later, earlier) of products alike in every modality, by the later one and then the most alike."""
    if len(heads) < 2:
        return []
    index = vectors.build(content[heads], np.arange(len(heads)))
    pairs: list[tuple[int, int]] = []
    for start in range(0, len(heads), _BLOCK):
        _, close = vectors.search(index, content[heads[start : start + _BLOCK]], min(NEIGHBOURS, len(heads)))
        later = np.repeat(np.arange(start, start + len(close)), close.shape[1])
        earlier = close.ravel()
        kept = (earlier >= 0) & (earlier < later)
        later, earlier = later[kept], earlier[kept]
        alike = _alike(sources, present, heads[later], heads[earlier]) >= near
        pairs += zip(later[alike].tolist(), earlier[alike].tolist(), strict=True)
    return pairs


def _alike(
    sources: Sources, present: Presence, one: NDArray[np.int64], other: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Least cosine over the modalities of pairs, -1 where one has a modality that the other lacks; float32 (pairs,)."""
    least = np.where((present[one] == present[other]).all(axis=1), 1.0, -1.0).astype(np.float32)
    for source in sources.values():
        both = np.flatnonzero(source.present[one] & source.present[other])
        left, right = (unit(source.vectors[source.rows[side[both]]]) for side in (one, other))
        least[both] = np.minimum(least[both], (left * right).sum(axis=1))
    return least


def table(ids: Sequence[str], original: NDArray[np.int64], exact: NDArray[np.bool_]) -> pa.Table:
    """The copies: entity_id, original_id, and whether the copy is exact."""
    copies = np.flatnonzero(original != np.arange(len(original)))
    names = pa.array(ids, pa.string())
    return pa.table(
        {
            "entity_id": names.take(pa.array(copies)),
            "original_id": names.take(pa.array(original[copies])),
            "exact": pa.array(exact[copies]),
        }
    )
