"""The interest map of the report: every primitive with its place in the tree, on the plane and among its neighbours.

The plane is t-SNE (van der Maaten and Hinton 2008) of all primitives, every level in one picture because they share
one space. Hues follow the angle of the coarse interests on that plane, so that near interests have near colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from data.artifacts import ArtifactRef

Interest = dict[str, Any]
"""One primitive as the page needs it; `parent`, `coarse`, `near`, `flows` (met together) and `next`
(turned to afterwards) are positions in the list of interests."""

_SMALLEST_TSNE = 12
_LISTS = {"co": "flows", "then": "next"}  # where the links of a kind of relation are listed


def load_interests(supergraph: ArtifactRef, per_level: int, neighbours: int) -> list[Interest]:
    """The `per_level` heaviest primitives of each level, coarse levels first, heavy ones first within a level.

    Time grows with the square of the interests of one level (cosines) and n log n over all (t-SNE).
    """
    rows = supergraph.table("primitives.parquet").to_pylist()
    rows.sort(key=lambda row: (row["level"], -row["mass"], row["primitive_id"]))
    taken: dict[int, int] = {}
    kept = []
    for row in rows:
        taken[row["level"]] = taken.get(row["level"], 0) + 1
        if taken[row["level"]] <= per_level:
            kept.append(row)
    vectors = np.array([row["vector"] for row in kept], dtype=np.float64).reshape(len(kept), -1)
    place = {row["primitive_id"]: index for index, row in enumerate(kept)}
    interests = [_interest(row, place) for row in kept]
    _add_roots_and_shares(interests, rows)
    _add_neighbours(interests, vectors, neighbours)
    _add_flows(interests, supergraph, place, neighbours)
    _add_plane(interests, plane(vectors))
    return interests


def _interest(row: Mapping[str, Any], place: Mapping[str, int]) -> Interest:
    return {
        "id": row["primitive_id"],
        "level": row["level"],
        "parent": place.get(row["parent_id"] or "", -1),
        "label": row["label"],
        "mass": row["mass"],
        "terms": list(row["top_terms"]),
        "products": list(row["top_products"]),
        "flows": [],
        "next": [],
    }


def _add_roots_and_shares(interests: list[Interest], rows: Sequence[Mapping[str, Any]]) -> None:
    total: dict[int, float] = {}
    for row in rows:
        total[row["level"]] = total.get(row["level"], 0.0) + row["mass"]
    for index, interest in enumerate(interests):
        interest["share"] = round(interest.pop("mass") / (total[interest["level"]] or 1.0), 6)
        parent = interest["parent"]
        # Parents precede their children, so their own root is known by now.
        interest["coarse"] = index if parent < 0 else interests[parent]["coarse"]


def _add_neighbours(interests: list[Interest], vectors: NDArray[np.float64], count: int) -> None:
    levels = np.array([interest["level"] for interest in interests])
    for level in np.unique(levels):
        members = np.flatnonzero(levels == level)
        cosines = np.round(vectors[members] @ vectors[members].T, 4)
        np.fill_diagonal(cosines, -np.inf)
        nearest = np.argsort(-cosines, axis=1, kind="stable")[:, : min(count, len(members) - 1)]
        for row, member in enumerate(members):
            interests[member]["near"] = [[int(members[n]), round(float(cosines[row, n]), 2)] for n in nearest[row]]


def _add_flows(interests: list[Interest], supergraph: ArtifactRef, place: Mapping[str, int], count: int) -> None:
    edges = supergraph.table("primitive_edges.parquet").to_pylist()
    edges.sort(key=lambda edge: (-edge["weight"], edge["source"], edge["target"]))
    for edge in edges:
        source, target = place.get(edge["source"]), place.get(edge["target"])
        name = _LISTS.get(edge["relation"].partition("_")[0])
        if name is None or source is None or target is None or source == target:
            continue
        flows = interests[source][name]
        if len(flows) < count and target not in flows:
            flows.append(target)


def plane(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Coordinates in [0, 1] of unit vectors (n, d) -> (n, 2); equal for equal input on any thread count.

    t-SNE starts from the principal components, so nothing in it is random (Kobak and Berens
    2019). Below a dozen vectors it has no neighbourhoods to keep: the components themselves are shown.
    """
    if len(vectors) < 3 or vectors.shape[1] < 2:
        return np.linspace((0.3, 0.5), (0.7, 0.5), len(vectors))
    with threadpool_limits(1):
        flat = PCA(2, svd_solver="full").fit_transform(vectors)
        if len(vectors) >= _SMALLEST_TSNE:
            start = flat / (flat[:, 0].std() or 1.0) * 1e-4
            near = min(30.0, (len(vectors) - 1) / 3)
            tsne = TSNE(2, perplexity=near, init=start, max_iter=500, n_jobs=1)
            flat = tsne.fit_transform(vectors)
    low, span = flat.min(axis=0), np.ptp(flat, axis=0)
    return np.asarray((flat - low) / np.where(span > 0, span, 1.0))


def _add_plane(interests: list[Interest], positions: NDArray[np.float64]) -> None:
    for interest, (x, y) in zip(interests, positions, strict=True):
        interest["x"], interest["y"] = round(float(x), 4), round(float(y), 4)
    roots = sorted({interest["coarse"] for interest in interests})
    angles = np.arctan2(positions[roots, 1] - 0.5, positions[roots, 0] - 0.5)
    hues = {
        roots[place]: round(360 * rank / len(roots)) for rank, place in enumerate(np.argsort(angles, kind="stable"))
    }
    for interest in interests:
        interest["hue"] = hues[interest["coarse"]]


def product_dots(
    interests: Sequence[Interest], bags: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, list[float]]:
    """Where products lie on the plane: `product_id -> [x, y, coarse interest]`, the weighted mean of its finest tokens.

    `bags` maps a product to its token rows; a product whose finest interests are not on the map is left out.
    """
    place = {interest["id"]: index for index, interest in enumerate(interests)}
    dots = {}
    for product, rows in bags.items():
        finest = max(row["level"] for row in rows)
        fine = [row for row in rows if row["level"] == finest and row["primitive_id"] in place]
        known = [(interests[place[row["primitive_id"]]], row["weight"]) for row in fine]
        weight = sum(w for _, w in known)
        if weight > 0:
            x, y = (sum(interest[axis] * w for interest, w in known) / weight for axis in "xy")
            dots[product] = [round(x, 4), round(y, 4), max(known, key=lambda pair: pair[1])[0]["coarse"]]
    return dots
