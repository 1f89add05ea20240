"""How well each level of primitives divides the catalogue: use, evenness, agreement with categories, duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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


class Tree(NamedTuple):
    """The category tree of n products: at each depth the category of each as a number from 0, int64 (n,), -1 where it
    is unknown. A path that ends early goes on as itself."""

    depths: list[NDArray[np.int64]]

    def matching(self, k: int) -> int:
        """The depth, from 0, whose number of categories is nearest to `k`."""
        sizes = np.array([numbers.max(initial=-1) + 1 for numbers in self.depths])
        return int(np.abs(sizes - k).argmin())


class Agreement(NamedTuple):
    """How two labellings agree: nmi = 2 I / (H + H'), homogeneity I / H' (each label of the first holds one of the
    second), completeness I / H (the reverse), with H and H' the entropies of the first and the second.

    NMI is their harmonic mean, the V-measure (Rosenberg & Hirschberg, 2007).
    """

    nmi: float
    homogeneity: float
    completeness: float


def level_quality(
    supergraph: ArtifactRef, tokens: ArtifactRef, features: ArtifactRef, asked: pa.Array | None = None
) -> list[dict[str, Any]]:
    """A row for each level: level, k, active_share, perplexity, perplexity_share, nmi_category, homogeneity,
    completeness, category_depth, nesting, duplicates.

    A product belongs to its strongest primitive by its newest tokens. active_share: primitives with a product;
    perplexity: exp of the entropy of the products' distribution, perplexity_share: the same over k; nmi_category:
    agreement with the category prefix at category_depth, the depth with the number of categories nearest to k, of the
    products `asked` about (ids; None: all), homogeneity and completeness its two halves; nesting: products whose
    primitive is a child of their primitive of the level above, None at the first level; duplicates: primitives whose
    nearest other has a cosine above DUPLICATE_COSINE. Memory grows with the products' bags.
    """
    known = features.table("entities_product.parquet", ["entity_id", "category"]).combine_chunks()
    names = known["entity_id"].combine_chunks()
    tree = category_tree(known["category"].to_pylist())
    parents = supergraph.table("primitives.parquet", ["primitive_id", "parent_id"]).combine_chunks()
    rows: list[dict[str, Any]] = []
    coarse = np.zeros(0, np.int64)
    above: Level | None = None
    for level in published(supergraph):
        ids, primitive = _strongest(tokens, level)
        place = index_in(ids, names)
        depth = tree.matching(len(level.ids))
        category = np.where(place >= 0, tree.depths[depth][place], -1)
        if asked is not None:
            category = np.where(index_in(ids, asked) >= 0, category, -1)
        of_parent = parents["parent_id"].take(pa.array(index_in(level.ids, parents["primitive_id"].combine_chunks())))
        row = use(primitive, len(level.ids)) | agreement_row(primitive, category, depth)
        row["nesting"] = None if above is None else nesting(primitive, coarse, index_in(of_parent, above.ids))
        row["duplicates"] = round(duplicate_share(level.vectors), 4)
        rows.append({"level": level.level, "k": len(level.ids), **row})
        coarse, above = primitive, level
    return rows


def category_tree(paths: Sequence[str | None]) -> Tree:
    """The tree of products with category `paths`, joined, None where unknown."""
    split = [category_ids((path or "").split(SEPARATOR)) for path in paths]
    found = []
    for depth in range(max(map(len, split), default=1) or 1):
        names = [ids[min(depth, len(ids) - 1)] if ids else None for ids in split]
        numbers = {name: number for number, name in enumerate(sorted({name for name in names if name}))}
        found.append(np.array([numbers.get(name or "", -1) for name in names], np.int64))
    return Tree(found)


def use(primitive: NDArray[np.int64], k: int) -> dict[str, Any]:
    """active_share, perplexity and perplexity_share of the products' primitives (n,) out of `k`."""
    counts = np.bincount(primitive, minlength=k)
    perplexity = float(np.exp(_entropy(counts)))
    shares = {"active_share": float((counts > 0).mean()), "perplexity_share": perplexity / k}
    return {name: round(share, 4) for name, share in shares.items()} | {"perplexity": round(perplexity, 2)}


def agreement_row(primitive: NDArray[np.int64], category: NDArray[np.int64], depth: int) -> dict[str, Any]:
    """nmi_category, homogeneity, completeness and category_depth (from 1) of primitives and categories (n,) at `depth`
    (from 0), of products whose category is not -1."""
    found = agreement(primitive[category >= 0], category[category >= 0])
    figures = zip(("nmi_category", "homogeneity", "completeness"), found, strict=True)
    return {name: round(figure, 4) for name, figure in figures} | {"category_depth": depth + 1}


def nesting(fine: NDArray[np.int64], coarse: NDArray[np.int64], parent: NDArray[np.int64]) -> float | None:
    """Share of products whose primitive `fine` (n,) has their primitive `coarse` (n,) of the level above as its parent;
    `parent` (k,) by primitive. None without products."""
    return round(float((parent[fine] == coarse).mean()), 4) if len(fine) else None


def agreement(first: NDArray[np.int64], second: NDArray[np.int64]) -> Agreement:
    """Agreement of two labellings (n,); 0 where an entropy is 0, for then there is nothing to say."""
    if not len(first):
        return Agreement(0.0, 0.0, 0.0)
    one, two = (np.unique(labels, return_inverse=True)[1].ravel() for labels in (first, second))
    joint = np.bincount(one * (int(two.max()) + 1) + two)
    own, other = _entropy(np.bincount(one)), _entropy(np.bincount(two))
    mutual = own + other - _entropy(joint)
    nmi = 2 * mutual / (own + other) if own + other > 0 else 0.0
    return Agreement(nmi, mutual / other if other > 0 else 0.0, mutual / own if own > 0 else 0.0)


def nmi(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Normalised mutual information of two labellings (n,): 2 I / (H + H'); 0 when either has one label only."""
    return agreement(first, second).nmi


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
