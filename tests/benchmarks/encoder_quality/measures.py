"""Measures of vectors against labels and of rankings against purchases."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

NEIGHBOURS = 10

Floats = NDArray[np.float32]


def knn_accuracy(vectors: Floats, labels: NDArray[np.int64], these: NDArray[np.bool_] | None = None) -> float:
    """Leave-one-out: share of rows whose label most of their NEIGHBOURS nearest others have (sum of cosines breaks
    ties). vectors (n, D) unit or zero, labels (n,); `these` (n,) are the rows that are asked about."""
    similar = vectors @ vectors.T
    np.fill_diagonal(similar, -np.inf)
    asked = np.arange(len(labels)) if these is None else np.flatnonzero(these)
    near = np.argpartition(-similar[asked], NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    votes = np.zeros((len(asked), int(labels.max()) + 1))
    rows = np.repeat(np.arange(len(asked)), NEIGHBOURS)
    np.add.at(votes, (rows, labels[near].ravel()), 1 + 1e-3 * similar[asked[:, None], near].ravel())
    return float((votes.argmax(axis=1) == labels[asked]).mean())


def nmi(vectors: Floats, labels: NDArray[np.int64], seed: int = 0) -> float:
    """Normalized mutual information of k-means with as many clusters as labels, best of four starts."""
    clusters = KMeans(int(labels.max()) + 1, n_init=4, random_state=seed).fit_predict(vectors)
    return float(normalized_mutual_info_score(labels, clusters))


def recall(
    users: Floats, items: Floats, candidates: NDArray[np.int64], positives: list[NDArray[np.int64]], k: int
) -> NDArray[np.float64]:
    """Recall@k of each user (q,) over `candidates` (c,), places in `items` (n, D): hits / min(k, positives)."""
    found = np.zeros(len(users))
    place = np.full(len(items), -1)
    place[candidates] = np.arange(len(candidates))
    for start in range(0, len(users), 512):
        scores = users[start : start + 512] @ items[candidates].T
        top = np.argpartition(-scores, min(k, scores.shape[1] - 1), axis=1)[:, :k]
        for row, best in enumerate(top):
            wanted = place[positives[start + row]]
            found[start + row] = len(np.intersect1d(best, wanted)) / min(k, len(wanted))
    return found


def row(what: str, peer: str, metric: str, value: Any, shape: str, dtype: str = "float32") -> dict[str, Any]:
    """A row of the result file."""
    return {
        "what": what, "peer": peer, "metric": metric, "unit": "ratio", "shape": shape, "dtype": dtype,
        "p20": "", "p50": round(float(value), 4), "p80": "",
    }  # fmt: skip
