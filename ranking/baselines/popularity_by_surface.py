"""Smoothed purchase rate of each product on each kind of surface: what a ranker must beat to know anyone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ranking.evaluate import Floats, normalized_entropy
from ranking.fitting import Sample
from ranking.reader import Examples


@dataclass(frozen=True)
class Popularity:
    """`rate` (products + 1, kinds): row -1 serves products without an id."""

    examples: Examples
    rate: Floats
    kind: NDArray[np.int64]
    strength: float

    def logits(self, rows: NDArray[np.int64]) -> tuple[Floats, None]:
        """(n,) log odds of the smoothed rate, and no deep logits."""
        rate = self.rate[_cells(self.examples, rows, self.kind)]
        return np.log(rate) - np.log1p(-rate), None

    def tensors(self) -> dict[str, torch.Tensor]:
        """The table of rates, by product row of products.parquet and kind of surface in order of name."""
        return {"rate": torch.from_numpy(self.rate)}


def fit_popularity(
    examples: Examples, sample: Sample, strengths: Sequence[float] = (100.0, 1e3, 1e4, 1e5)
) -> Popularity:
    """Rates of the training rows, each pulled to its surface's rate as by `strength` further exposures.

    The strength with the least NE on validation is kept.
    """
    labels, weights = _labels(examples, sample.validation)
    models = []
    for strength in strengths:
        model = _smoothed(examples, sample, strength)
        models.append((normalized_entropy(model.logits(sample.validation)[0], labels, weights), model))
    return min(models, key=lambda scored: scored[0])[1]


def _smoothed(examples: Examples, sample: Sample, strength: float) -> Popularity:
    names = sorted(set(examples.surface_kinds()) | {"none"})
    kind = np.array([names.index(name) for name in (*examples.surface_kinds(), "none")], np.int64)
    labels, weights = _labels(examples, sample.train)
    # Thinned negatives stand for more exposures; the shift says for how many more than a positive does.
    weights = np.where(labels > 0, weights, np.exp(-sample.shift))
    shape = (len(examples.owner) + 1, len(names))
    cell = np.ravel_multi_index(_cells(examples, sample.train, kind, wrap=True), shape)
    shown = np.bincount(cell, weights, minlength=shape[0] * shape[1]).reshape(shape)
    bought = np.bincount(cell, weights * labels, minlength=shape[0] * shape[1]).reshape(shape)
    overall = max(bought.sum(), 0.5) / max(shown.sum(), 1.0)
    prior = (bought.sum(0) + overall * strength) / (shown.sum(0) + strength)
    return Popularity(examples, (bought + prior * strength) / (shown + strength), kind, strength)


def _cells(
    examples: Examples, rows: NDArray[np.int64], kind: NDArray[np.int64], wrap: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    product = np.asarray(examples.columns["product"][rows]).astype(np.int64)
    surface = np.asarray(examples.columns["surface"][rows])
    return np.where(product < 0, len(examples.owner), product) if wrap else product, kind[surface]


def _labels(examples: Examples, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint8], Floats]:
    weights = 1.0 / examples.columns["sample_prob"][rows].astype(np.float64)
    return np.asarray(examples.columns["label"][rows]), weights
