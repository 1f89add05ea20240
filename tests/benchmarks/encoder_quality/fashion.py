"""Real photos and titles of fashion-images: do neighbours and clusters share sub-category and type?

Titles alone are read as text (the stage's own text would hold the category's name, which is the label). Half of the
products choose the weight of pictures beside titles (1.0), the other half is asked about, once; all are neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoders.base import Vectors
from encoders.content import Source, fit_fusion, parts_of, whitened
from encoders.fuse import Fusion
from tests.benchmarks.encoder_quality.measures import knn_accuracy, nmi, row

WEIGHTS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
MISSING = (0.0, 0.25, 0.5, 0.75, 1.0)
DIM, POWER, REGULARISATION = 64, 0.5, 0.1


@dataclass(frozen=True)
class Products:
    """Raw vectors of n products, and their labels by name, each int64 (n,)."""

    text: Vectors
    image: Vectors
    labels: dict[str, NDArray[np.int64]]


def measure(products: Products) -> list[dict[str, Any]]:
    """Rows of accuracy and NMI: one modality, both, and both with a share of titles or photos missing."""
    count = len(products.text)
    rng = np.random.default_rng(0)
    chooses = rng.random(count) < 0.5
    drawn = rng.random(count)
    fusion = _fitted(products)
    everything = np.ones(count, bool)
    weight = max(WEIGHTS, key=lambda w: _accuracy(products, _fused(products, fusion, w), chooses))
    shape = f"{count:,} products, asked about {int((~chooses).sum()):,}"
    rows = [row("fashion", "picture's weight, title 1", "chosen on the other half", weight, f"{count:,} products")]
    nothing = ~everything
    kinds = {
        "title only": (everything, nothing),
        "photo only": (nothing, everything),
        "fused": (everything, everything),
    }
    for share in MISSING[1:]:
        there = drawn >= share
        kinds[f"fused, {share:.0%} of titles missing"] = (there, everything)
        kinds[f"fused, {share:.0%} of photos missing"] = (everything, there)
    for name, (titles, photos) in kinds.items():
        vectors = _fused(products, fusion, weight, titles, photos)
        for label, values in products.labels.items():
            rows.append(
                row(f"fashion, {label}", name, "10-NN accuracy", knn_accuracy(vectors, values, ~chooses), shape)
            )
            rows.append(row(f"fashion, {label}", name, "k-means NMI", nmi(vectors, values), shape))
    return rows


def _accuracy(products: Products, vectors: Vectors, these: NDArray[np.bool_]) -> float:
    return float(np.mean([knn_accuracy(vectors, values, these) for values in products.labels.values()]))


def _sources(products: Products, titles: NDArray[np.bool_], photos: NDArray[np.bool_]) -> dict[str, Source]:
    rows = np.arange(len(titles), dtype=np.int32)
    given: Sequence[tuple[str, Vectors, NDArray[np.bool_]]] = (
        ("text", products.text, titles),
        ("image", products.image, photos),
    )
    return {name: Source(vectors, np.where(there, rows, -1).astype(np.int32)) for name, vectors, there in given}


def _fitted(products: Products) -> Fusion:
    everything = np.ones(len(products.text), bool)
    none = Source(np.zeros((0, 1), np.float32), np.zeros(0, np.int32))
    sources = _sources(products, everything, everything)
    how = (DIM, POWER, REGULARISATION, {"text": 1.0, "image": 1.0})
    return fit_fusion(sources, everything, none, np.zeros(0, bool), *how)


def _fused(
    products: Products,
    fusion: Fusion,
    weight: float,
    titles: NDArray[np.bool_] | None = None,
    photos: NDArray[np.bool_] | None = None,
) -> Vectors:
    everything = np.ones(len(products.text), bool)
    sources = _sources(products, everything if titles is None else titles, everything if photos is None else photos)
    weighed = Fusion(fusion.whitenings, {**fusion.weights, "image": weight})
    white = whitened([sources], weighed)
    return weighed.fuse(*parts_of(sources, white, weighed.modalities, len(products.text)))
