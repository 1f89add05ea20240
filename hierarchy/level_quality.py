"""How well each level of primitives divides the catalogue: use, evenness, agreement with categories, duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.categories import SEPARATOR, category_ids
from data.timegrid import TOKENS
from graph.store import index_in
from hierarchy.bags import Vectors, cosines
from hierarchy.levels import Level, published

DUPLICATE_COSINE = 0.95
"""Two primitives of one level closer than this say the same thing."""


def level_quality(supergraph: ArtifactRef, tokens: ArtifactRef, features: ArtifactRef) -> list[dict[str, Any]]:
    """A row for each level: level, k, active_share, perplexity, nmi_category, category_depth, duplicates.

    A product belongs to its strongest primitive by its newest tokens. active_share: primitives with a product;
    perplexity: exp of the entropy of the products' distribution; nmi_category: agreement with the category prefix at
    category_depth, the depth with the number of categories nearest to k; duplicates: primitives whose nearest other has
    a cosine above DUPLICATE_COSINE. Memory grows with the products' bags.
    """
    known = features.table("entities_product.parquet", ["entity_id", "category"]).combine_chunks()
    prefixes = _prefixes(known["category"].to_pylist())
    sizes = np.array([numbers.max(initial=-1) + 1 for numbers in prefixes])
    rows = []
    for level in published(supergraph):
        ids, primitive = _strongest(tokens, level)
        place = index_in(ids, known["entity_id"].combine_chunks())
        depth = int(np.abs(sizes - len(level.ids)).argmin())
        category = np.where(place >= 0, prefixes[depth][place], -1)
        counts = np.bincount(primitive, minlength=len(level.ids))
        rows.append(
            {
                "level": level.level,
                "k": len(level.ids),
                "active_share": round(float((counts > 0).mean()), 4),
                "perplexity": round(float(np.exp(_entropy(counts))), 2),
                "nmi_category": round(nmi(primitive[category >= 0], category[category >= 0]), 4),
                "category_depth": depth + 1,
                "duplicates": round(duplicate_share(level.vectors), 4),
            }
        )
    return rows


def nmi(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Normalised mutual information of two labellings (n,): 2 I / (H + H'); 0 when either has one label only."""
    if not len(first):
        return 0.0
    one, two = (np.unique(labels, return_inverse=True)[1].ravel() for labels in (first, second))
    joint = np.bincount(one * (int(two.max()) + 1) + two)
    spread = _entropy(np.bincount(one)) + _entropy(np.bincount(two))
    return 2 * (spread - _entropy(joint)) / spread if spread > 0 else 0.0


def duplicate_share(vectors: Vectors) -> float:
    """Share of unit vectors (k, d) whose nearest other is closer than DUPLICATE_COSINE."""
    cosine = cosines(vectors, vectors)
    np.fill_diagonal(cosine, -1.0)
    return float((cosine.max(axis=1) > DUPLICATE_COSINE).mean())


def _entropy(counts: NDArray[np.int64]) -> float:
    share = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(share * np.log(share)).sum())


def _strongest(tokens: ArtifactRef, level: Level) -> tuple[pa.Array, NDArray[np.int64]]:
    """Products with tokens and the row of their strongest primitive of `level`, by their newest bag."""
    columns = ["entity_type", "entity_id", "level", "rank", "primitive_id"]
    ids, primitives = [pa.array([], pa.string())], [pa.array([], pa.string())]
    for batch in tokens.batches(TOKENS, columns):
        first = pc.and_(pc.equal(batch["rank"], 0), pc.equal(batch["level"], level.level))
        own = batch.filter(pc.and_(first, pc.equal(batch["entity_type"], "product")))
        ids.append(own["entity_id"])
        primitives.append(own["primitive_id"])
    entity, primitive = pa.concat_arrays(ids), pa.concat_arrays(primitives)
    codes = entity.dictionary_encode().indices.to_numpy()
    # Dates lie one after the other, so the last row of an entity is its newest bag.
    last = pa.array(len(codes) - 1 - np.unique(codes[::-1], return_index=True)[1])
    return entity.take(last), index_in(primitive.take(last), level.ids)


def _prefixes(paths: Sequence[str | None]) -> list[NDArray[np.int64]]:
    """For each depth of the category tree the category of every product as a number from 0, -1 where unknown."""
    split = [category_ids((path or "").split(SEPARATOR)) for path in paths]
    found = []
    for depth in range(max(map(len, split), default=1) or 1):
        names = [ids[min(depth, len(ids) - 1)] if ids else None for ids in split]
        numbers = {name: number for number, name in enumerate(sorted({name for name in names if name}))}
        found.append(np.array([numbers.get(name or "", -1) for name in names], np.int64))
    return found
