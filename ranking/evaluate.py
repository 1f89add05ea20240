"""Judging probabilities on a log whose negatives were sampled: normalized entropy, AUC and calibration.

Every row counts 1 / sample_prob times, so that all figures are those of the log before sampling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranking.reader import Examples

Floats = NDArray[np.float64]
MIN_POSITIVES = 500
"""A bucket with fewer positives carries no claim."""

_COUNT_BUCKETS = ((0, 0, "new (0)"), (1, 20, "rare (1-20)"), (21, 200, "21-200"), (201, None, "over 200"))


def sigmoid(logits: Floats) -> Floats:
    """Elementwise logistic function, without overflow."""
    probabilities: Floats = 0.5 * (1.0 + np.tanh(0.5 * logits))
    return probabilities


def sampling_shift(labels: NDArray, sample_prob: NDArray) -> float:
    """What to add to a logit learned on sampled rows so that it holds for the log before sampling.

    Odds among sampled rows are true odds times (share of positives kept / share of negatives kept); exact when
    each class was kept at one rate, as case-control sampling does (King and Zeng, 2001). 0 without both classes.
    """
    kept = []
    for label in (0, 1):
        mine = labels == label
        if not mine.any():
            return 0.0
        kept.append(mine.sum() / (1.0 / sample_prob[mine].astype(np.float64)).sum())
    return float(np.log(kept[0]) - np.log(kept[1]))


def log_losses(logits: Floats, labels: NDArray) -> Floats:
    """-log p of each row's label [nats], from logits, exact for very small p."""
    losses: Floats = np.logaddexp(0.0, np.where(labels > 0, -logits, logits))
    return losses


def entropy(rate: float) -> float:
    """Entropy [nats] of a coin that shows 1 with probability `rate`; 0 at 0 and 1."""
    if rate <= 0.0 or rate >= 1.0:
        return 0.0
    return float(-rate * np.log(rate) - (1 - rate) * np.log1p(-rate))


def normalized_entropy(logits: Floats, labels: NDArray, weights: Floats) -> float:
    """Log loss over the entropy of the base rate (He et al., ADKDD 2014): 1 = knows the base rate only.

    NaN when one class is absent.
    """
    rate = float(np.average(labels, weights=weights)) if len(labels) else 0.0
    base = entropy(rate)
    return float(np.average(log_losses(logits, labels), weights=weights) / base) if base > 0 else float("nan")


def auc(scores: Floats, labels: NDArray, weights: Floats) -> float:
    """Weighted probability that a positive scores above a negative, ties counting half; NaN when a class is absent."""
    order = np.argsort(scores, kind="stable")
    _, group = np.unique(scores[order], return_inverse=True)
    positive = np.bincount(group, weights=(weights * (labels > 0))[order])
    negative = np.bincount(group, weights=(weights * (labels <= 0))[order])
    pairs = positive.sum() * negative.sum()
    below = np.cumsum(negative) - negative
    return float((positive * (below + negative / 2)).sum() / pairs) if pairs > 0 else float("nan")


def calibration(logits: Floats, labels: NDArray, weights: Floats) -> float:
    """Expected over observed positives: sum(p) / sum(y), weighted; NaN without positives."""
    observed = float((weights * labels).sum())
    return float((weights * sigmoid(logits)).sum() / observed) if observed > 0 else float("nan")


_JUDGES = {"ne": normalized_entropy, "auc": auc, "calibration": calibration}


def deciles(logits: Floats, labels: NDArray, weights: Floats) -> list[dict[str, Any]]:
    """Calibration in ten buckets of equal weight, from the lowest scores to the highest."""
    order = np.argsort(logits, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    bucket = np.minimum((10 * before / max(weights.sum(), 1e-12)).astype(np.int64), 9)
    parts = [order[bucket == number] for number in range(10)]
    return [
        {
            "decile": number + 1,
            "predicted": float((weights[part] * sigmoid(logits[part])).sum()),
            "observed": float((weights[part] * labels[part]).sum()),
        }
        for number, part in enumerate(parts)
    ]


def figures(logits: Floats, labels: NDArray, weights: Floats) -> dict[str, Any]:
    """NE, AUC, calibration (None where undefined), rows and positives of one set of rows."""
    measured = {name: judge(logits, labels, weights) for name, judge in _JUDGES.items()}
    return {
        **{name: None if np.isnan(value) else value for name, value in measured.items()},
        "rows": len(labels),
        "positives": int((labels > 0).sum()),
    }


def slices(examples: Examples, rows: NDArray[np.int64], logits: Floats) -> list[dict[str, Any]]:
    """Figures by surface kind, length of the user's history, and earlier events of the product.

    NE is taken against the base rate of the slice. `claim` is False below MIN_POSITIVES positives.
    """
    columns = {name: np.asarray(examples.columns[name][rows]) for name in ("label", "sample_prob", "product_events")}
    weights = 1.0 / columns["sample_prob"].astype(np.float64)
    found = []
    for dimension, buckets in _buckets(examples, rows, columns["product_events"]).items():
        for name, mine in buckets.items():
            measured = figures(logits[mine], columns["label"][mine], weights[mine])
            claim = measured["positives"] >= MIN_POSITIVES
            found.append({"slice": dimension, "bucket": name, **measured, "claim": claim})
    return found


def _buckets(
    examples: Examples, rows: NDArray[np.int64], popularity: NDArray
) -> Mapping[str, Mapping[str, NDArray[np.bool_]]]:
    kinds = np.array([*examples.surface_kinds(), "none"])[examples.columns["surface"][rows]]
    history = np.asarray(examples.columns["history_end"][rows]) - examples.columns["history_start"][rows]
    return {
        "surface": {str(kind): kinds == kind for kind in np.unique(kinds)},
        "user_history": _by_count(history),
        "product_popularity": _by_count(popularity),
    }


def _by_count(counts: NDArray) -> dict[str, NDArray[np.bool_]]:
    return {
        name: (counts >= low) & (counts <= (np.iinfo(np.int64).max if high is None else high))
        for low, high, name in _COUNT_BUCKETS
    }
