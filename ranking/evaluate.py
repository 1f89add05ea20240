"""Judging probabilities on a log whose negatives were sampled: normalized entropy, AUC and calibration.

Every row counts 1 / sample_prob times, so that all figures are those of the log before sampling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranking.asof import AsOf
from ranking.reader import TRAIN, Examples

Floats = NDArray[np.float64]
MIN_POSITIVES = 500
"""A bucket with fewer positives carries no claim."""

_COUNT_BUCKETS = ((0, 0, "new (0)"), (1, 20, "rare (1-20)"), (21, 200, "21-200"), (201, None, "over 200"))

_COLD = ((0, 0, "0"), (1, 5, "1-5"), (6, 20, "6-20"), (21, None, "21+"))
_SIZES = (
    (0, 0, "0"),
    (1, 100, "1-100"),
    (101, 1_000, "101-1000"),
    (1_001, 10_000, "1001-10000"),
    (10_001, None, "10001+"),
)


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


def user_aucs(scores: Floats, labels: NDArray, weights: Floats, users: NDArray) -> tuple[NDArray, Floats, Floats]:
    """Distinct users (u,), AUC of each over its own rows, NaN where it has one class only, and its weight, each (u,).

    Ties count half. One sort for all users; O(n log n).
    """
    found, user = np.unique(users, return_inverse=True)
    order = np.lexsort((scores, user))
    mine, score = user[order], scores[order]
    new = np.ones(len(order), bool)
    new[1:] = (mine[1:] != mine[:-1]) | (score[1:] != score[:-1])
    tie = np.cumsum(new) - 1
    positive = np.bincount(tie, (weights * (labels > 0))[order])
    negative = np.bincount(tie, (weights * (labels <= 0))[order])
    owner = mine[new]
    totals = [np.bincount(owner, part, minlength=len(found)) for part in (positive, negative)]
    running = np.cumsum(negative) - negative
    first = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))[owner]
    below = running - running[first]
    won = np.bincount(owner, positive * (below + negative / 2), minlength=len(found))
    pairs = totals[0] * totals[1]
    aucs = np.where(pairs > 0, won / np.where(pairs > 0, pairs, 1.0), np.nan)
    shown: Floats = np.bincount(user, weights, minlength=len(found)).astype(np.float64)
    return found, aucs, shown


def gauc(scores: Floats, labels: NDArray, weights: Floats, users: NDArray) -> float:
    """AUC within each user, averaged by the user's impressions (Zhu et al., KDD 2017).

    Users with one class only say nothing about order and are left out; NaN where no user has both.
    """
    _, aucs, shown = user_aucs(scores, labels, weights, users)
    ranked = ~np.isnan(aucs)
    return float(np.average(aucs[ranked], weights=shown[ranked])) if shown[ranked].sum() > 0 else float("nan")


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


Parts = Mapping[str, Mapping[str, NDArray[np.bool_]]]
"""Rows (n,) of each bucket of each dimension."""


def slices(
    examples: Examples, rows: NDArray[np.int64], logits: Floats, parts: Parts | None = None
) -> list[dict[str, Any]]:
    """Figures of the buckets of `parts`; unless given: by surface kind, history of the user, events of the product.

    NE is taken against the base rate of the slice. `claim` is False below MIN_POSITIVES positives.
    """
    columns = {name: np.asarray(examples.columns[name][rows]) for name in ("label", "sample_prob", "product_events")}
    weights = 1.0 / columns["sample_prob"].astype(np.float64)
    found = []
    for dimension, buckets in (parts or _buckets(examples, rows, columns["product_events"])).items():
        for name, mine in buckets.items():
            measured = figures(logits[mine], columns["label"][mine], weights[mine])
            claim = measured["positives"] >= MIN_POSITIVES
            found.append({"slice": dimension, "bucket": name, **measured, "claim": claim})
    return found


def _buckets(examples: Examples, rows: NDArray[np.int64], popularity: NDArray) -> Parts:
    kinds = np.array([*examples.surface_kinds(), "none"])[examples.columns["surface"][rows]]
    history = np.asarray(examples.columns["history_end"][rows]) - examples.columns["history_start"][rows]
    return {
        "surface": {str(kind): kinds == kind for kind in np.unique(kinds)},
        "user_history": _by_count(history),
        "product_popularity": _by_count(popularity),
    }


def coldness(examples: Examples, rows: NDArray[np.int64]) -> Parts:
    """Rows by what was known at the impression: events of its product, of its advertiser, of its user; and by the
    impressions its advertiser had in the training window, which is its size.
    """
    history = np.asarray(examples.columns["history_end"][rows]) - examples.columns["history_start"][rows]
    return {
        "product events known": _by_count(np.asarray(examples.columns["product_events"][rows]), _COLD),
        "advertiser events known": _by_count(advertiser_events(examples, rows), _COLD),
        "user events known": _by_count(history, _COLD),
        "advertiser impressions": _by_count(_advertiser_impressions(examples, rows), _SIZES),
    }


def advertiser_events(examples: Examples, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64 (n,): engagements with the row's advertiser, or a product of it, that were visible at the row's time.

    0 without an advertiser. Reads the whole history once: 16 bytes an event.
    """
    product, named = (examples.ref.array(f"history/{name}.npy") for name in ("product", "advertiser"))
    owner = np.where(product >= 0, examples.owner[product], -1) if len(examples.owner) else np.full(len(product), -1)
    of = np.where(named >= 0, named, owner).astype(np.int64)
    known = of >= 0
    index, _ = AsOf.build(of[known], np.asarray(examples.ref.array("history/visible_from.npy"))[known])
    asked = np.asarray(examples.columns["advertiser"][rows]).astype(np.int64)
    start, end = index.spans(asked, np.asarray(examples.columns["ts"][rows]))
    return np.where(asked >= 0, end - start, 0)


def _advertiser_impressions(examples: Examples, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64 (n,): impressions of the row's advertiser in the training window, before sampling."""
    train, advertiser = examples.rows(TRAIN), np.asarray(examples.columns["advertiser"])
    # Row 0 holds what has no advertiser, and is emptied.
    shown = np.bincount(advertiser[train] + 1, 1.0 / examples.columns["sample_prob"][train], int(advertiser.max()) + 2)
    shown[0] = 0
    impressions: NDArray[np.int64] = np.rint(shown[advertiser[rows] + 1]).astype(np.int64)
    return impressions


def _by_count(
    counts: NDArray, buckets: Sequence[tuple[int, int | None, str]] = _COUNT_BUCKETS
) -> dict[str, NDArray[np.bool_]]:
    return {
        name: (counts >= low) & (counts <= (np.iinfo(np.int64).max if high is None else high))
        for low, high, name in buckets
    }
