"""Rows of the result file: means, buckets by degree and by length of history, paired bootstrap against a reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierarchy.recall import Found
from tests.benchmarks import rows
from tests.benchmarks.retrieval_quality.protocols import Exam, Protocol

BUCKETS = ((0, 0), (1, 5), (6, 20), (21, None))
CLAIM = 500  # with fewer targets a bucket carries no claim and gets no row
_RESAMPLES = 1_000


def means(protocol: Protocol, what: str, method: str, repeats: Sequence[Found]) -> Iterator[dict[str, Any]]:
    """Recall and NDCG at every k of the protocol, spread over the repeats."""
    for k in protocol.ks:
        recall = [float(np.nanmean(found.recall(k, protocol.over))) for found in repeats]
        ndcg = [float(np.nanmean(found.ndcg(k))) for found in repeats]
        for metric, values in ((f"recall@{k}", recall), (f"ndcg@{k}", ndcg)):
            yield {"what": what, "peer": method, "metric": metric, "unit": "ratio", **rows.spread(values)}


def buckets(protocol: Protocol, exam: Exam, what: str, method: str, found: Found) -> Iterator[dict[str, Any]]:
    """Recall@k over targets of one degree in what the method was fitted on, and over users of one length of history."""
    recall = f"recall@{protocol.k}"
    degree = np.bincount(exam.known.history.product, minlength=exam.known.history.num_products)
    told = exam.grown or exam.known.history
    length = np.bincount(told.user, minlength=told.num_users)[exam.users]
    whole = found.recall(protocol.k, protocol.over)
    for name, of, values in (("target degree", degree, None), ("history length", length, whole)):
        for low, high in BUCKETS:
            within = (of >= low) & (of <= (np.inf if high is None else high))
            part = found.only(within) if values is None else None
            count = len(part.row) if part else int(found.targets()[within].sum())
            if count < CLAIM:
                continue
            figures = part.recall(protocol.k, protocol.over) if part else whole[within]
            label = f"{recall}, {name} {low}{'+' if high is None else '' if high == low else f'-{high}'}"
            value = rows.spread([float(np.nanmean(figures))])
            yield {"what": what, "peer": method, "metric": label, "unit": "ratio", **value}


def differences(
    protocol: Protocol, what: str, reference: str, found: Mapping[str, Found], seed: int
) -> Iterator[dict[str, Any]]:
    """Recall@k of every method minus that of `reference`, resampled over users: p20, p50, p80, then 2.5 and 97.5 %."""
    base = found[reference].recall(protocol.k, protocol.over)
    for method, own in found.items():
        if method == reference:
            continue
        gap = resampled(own.recall(protocol.k, protocol.over) - base, seed)
        row = {"what": what, "peer": f"{method} - {reference}", "unit": "ratio"}
        metric = f"recall@{protocol.k} difference"
        yield {**row, "metric": metric, **rows.spread(list(gap))}
        for share in (2.5, 97.5):
            yield {**row, "metric": f"{metric}, {share} %", **rows.spread([float(np.percentile(gap, share))])}


def resampled(values: NDArray[np.float64], seed: int, times: int = _RESAMPLES) -> NDArray[np.float64]:
    """Means (times,) of users drawn with replacement (Efron, 1979); users without targets (NaN) are left out."""
    values = values[~np.isnan(values)]
    rng = np.random.default_rng(seed)
    return np.array([values[rng.integers(len(values), size=len(values))].mean() for _ in range(times)])
