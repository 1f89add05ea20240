"""Logistic regression on hashed categories and their crosses: the classic ad ranker (McMahan et al., KDD 2013)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from ranking.batch import Bags
from ranking.evaluate import Floats, normalized_entropy
from ranking.fitting import Sample
from ranking.hashing import mix64
from ranking.numbers import steps
from ranking.reader import CATEGORY_DEPTH, Examples
from ranking.tokenization import OVERLAP_SCALE, half_octaves, overlap

_CROSSES = (
    ("user",),
    ("product",),
    ("advertiser",),
    ("surface",),
    ("hour",),
    ("weekday",),
    ("history",),
    ("popularity",),
    ("pair",),
    ("pair_age",),
    ("visit_age",),
    ("pair", "pair_age"),
    ("pair", "popularity"),
    ("pair", "history"),
    ("user", "pair"),
    ("product", "surface"),
    ("user", "advertiser"),
    *((f"category_{depth}",) for depth in range(CATEGORY_DEPTH)),
    *(("user", f"category_{depth}") for depth in range(CATEGORY_DEPTH)),
    ("category_1", "surface"),
    ("category_2", "pair"),
)
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Logistic:
    """A fitted model; `strength` is the inverse L2 penalty it was fitted with."""

    examples: Examples
    coefficients: NDArray[np.float64]
    intercept: float
    strength: float
    bags: Bags | None = None

    def logits(self, rows: NDArray[np.int64]) -> tuple[Floats, None]:
        """(n,) logits corrected for negative sampling, and no deep logits."""
        inputs = design(self.examples, rows, len(self.coefficients), self.bags)
        return inputs @ self.coefficients + self.intercept, None

    def tensors(self) -> dict[str, torch.Tensor]:
        """Coefficients by bucket, and the intercept."""
        intercept = torch.tensor([self.intercept], dtype=torch.float64)
        return {"coefficients": torch.from_numpy(self.coefficients), "intercept": intercept}


def fit_logistic_regression(
    examples: Examples,
    sample: Sample,
    strengths: Sequence[float] = (0.03, 0.1, 0.3),
    buckets: int = 1 << 18,
    bags: Bags | None = None,
) -> Logistic:
    """Fit with each inverse L2 strength and keep the one with the least NE on validation.

    `bags` adds interest tokens: the heaviest primitives of user and product, crossed, and the overlap of all.
    Time grows with training rows x strengths (L-BFGS, at most 200 steps each).
    """
    inputs, labels = design(examples, sample.train, buckets, bags), examples.columns["label"]
    weights = 1.0 / examples.columns["sample_prob"][sample.validation].astype(np.float64)
    models = []
    for strength in strengths:
        fitted = LogisticRegression(C=strength, max_iter=200).fit(inputs, labels[sample.train])
        model = Logistic(examples, fitted.coef_[0], float(fitted.intercept_[0]) + sample.shift, strength, bags)
        loss = normalized_entropy(model.logits(sample.validation)[0], labels[sample.validation], weights)
        models.append((loss, model))
    return min(models, key=lambda scored: scored[0])[1]


def design(examples: Examples, rows: NDArray[np.int64], buckets: int, bags: Bags | None = None) -> csr_matrix:
    """(rows, buckets) with a one for each hashed feature or cross of a row."""
    features, crosses = _features(examples, rows), list(_CROSSES)
    if bags is not None:
        features |= _interests(examples, rows, bags)
        for level in (level.level for level in examples.levels):
            crosses += [(f"user_{level}",), (f"product_{level}",), (f"user_{level}", f"product_{level}")]
            crosses += [(f"overlap_{level}",), (f"overlap_{level}", "pair")]
    columns = np.empty((len(rows), len(crosses)), np.int64)
    for number, names in enumerate(crosses):
        key = np.full(len(rows), number, np.uint64)
        for name in names:
            key = mix64(key ^ features[name])
        columns[:, number] = key % np.uint64(buckets)
    starts = np.arange(len(rows) + 1) * len(crosses)
    return csr_matrix((np.ones(columns.size, np.float32), columns.reshape(-1), starts), shape=(len(rows), buckets))


def _features(examples: Examples, rows: NDArray[np.int64]) -> dict[str, Hashes]:
    row = {name: np.asarray(column[rows]) for name, column in examples.columns.items()}
    hashes = {name: examples.hashes[name][row[name]] for name in ("user", "product", "advertiser", "surface")}
    path = examples.hashes["category"][row["product"]]
    levels = {f"category_{depth}": path[:, depth] for depth in range(CATEGORY_DEPTH)}
    numbers = {name: value.astype(np.uint64) for name, value in steps(row).items()}
    return hashes | levels | numbers | {name: row[name].astype(np.uint64) for name in ("hour", "weekday")}


def _interests(examples: Examples, rows: NDArray[np.int64], bags: Bags) -> dict[str, Hashes]:
    """By level: heaviest primitive of user and of product (0 = none), and the stepped overlap of their bags."""
    bag = {}
    for kind in ("user", "product"):
        pointer = np.asarray(examples.columns[bags.column[kind]][rows])
        there = (pointer >= 0)[:, None]
        slots, weight = np.where(there, bags.slots[kind][pointer], -1) + 1, bags.weight[kind][pointer] * there
        bag[kind] = torch.from_numpy(slots.astype(np.int64)), torch.from_numpy(weight.astype(np.float32))
    shared = half_octaves(OVERLAP_SCALE * overlap(*bag["user"], *bag["product"], examples.levels)).numpy()
    found: dict[str, Hashes] = {}
    for place, level in enumerate(examples.levels):
        found[f"overlap_{level.level}"] = shared[:, place].astype(np.uint64)
        for kind, (primitive, _) in bag.items():
            found[f"{kind}_{level.level}"] = primitive[:, level.start].numpy().astype(np.uint64)
    return found
