"""Rows of the result file: figures over seeds, calibration by decile, slices, paired bootstrap against a reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranking.compare import gauc_differences, ne_differences
from ranking.evaluate import Floats, Parts, auc, calibration, coldness, deciles, gauc, normalized_entropy
from ranking.reader import TEST, Examples
from tests.benchmarks import rows

_JUDGES = {"NE": normalized_entropy, "AUC": auc, "calibration": calibration}
Row = dict[str, Any]


@dataclass(frozen=True)
class Exam:
    """The test rows: labels, weights and users (n,), and the slices with at least `claim` positives."""

    what: str
    labels: NDArray[np.uint8]
    weights: Floats
    users: NDArray[np.int32]
    parts: Parts

    @classmethod
    def of(cls, examples: Examples, what: str, claim: int) -> Exam:
        """Slices with fewer positives than `claim` get no rows."""
        asked = examples.rows(TEST)
        labels, users = (np.asarray(examples.columns[name][asked]) for name in ("label", "user"))
        parts = {
            dimension: {name: mine for name, mine in buckets.items() if labels[mine].sum() >= max(claim, 1)}
            for dimension, buckets in coldness(examples, asked).items()
        }
        weights = 1.0 / examples.columns["sample_prob"][asked].astype(np.float64)
        return cls(what, labels, weights, users, parts)

    def sliced(self) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Name and rows (n,) of each slice."""
        for dimension, buckets in self.parts.items():
            for name, mine in buckets.items():
                yield f"{dimension} {name}", mine


def counts(exam: Exam) -> Iterator[Row]:
    """Positives of the test and of each slice: how much the figures rest on."""
    row = {"what": exam.what, "peer": "", "unit": "rows"}
    yield {**row, "metric": "positives", **rows.spread([float(exam.labels.sum())])}
    for name, mine in exam.sliced():
        yield {**row, "metric": f"positives, {name}", **rows.spread([float(exam.labels[mine].sum())])}


def judged(exam: Exam, method: str, runs: Sequence[Floats]) -> Iterator[Row]:
    """NE, AUC, GAUC and calibration of one method, whole, by decile of its score, and by slice; spread over `runs`."""
    labels, weights = exam.labels, exam.weights
    found = {name: [judge(run, labels, weights) for run in runs] for name, judge in _JUDGES.items()}
    found["GAUC"] = [gauc(run, labels, weights, exam.users) for run in runs]
    for buckets in zip(*(deciles(run, labels, weights) for run in runs), strict=True):
        found[f"calibration, decile {buckets[0]['decile']}"] = [
            bucket["predicted"] / bucket["observed"] if bucket["observed"] > 0 else np.nan for bucket in buckets
        ]
    for part, mine in exam.sliced():
        for name, judge in _JUDGES.items():
            found[f"{name}, {part}"] = [judge(run[mine], labels[mine], weights[mine]) for run in runs]
    for metric, values in found.items():
        if defined := [value for value in values if np.isfinite(value)]:
            yield {"what": exam.what, "peer": method, "metric": metric, "unit": "ratio", **rows.spread(defined)}


def differences(exam: Exam, reference: str, found: Mapping[str, Sequence[Floats]], seed: int) -> Iterator[Row]:
    """NE and GAUC of every method minus those of `reference`, users drawn with replacement: p20 to p80, then 95 %."""
    everything = np.ones(len(exam.labels), bool)
    for method, runs in found.items():
        if method == reference:
            continue
        for part, mine in [("", everything), *exam.sliced()]:
            own, base = ([run[mine] for run in some] for some in (runs, found[reference]))
            rest = exam.labels[mine], exam.weights[mine], exam.users[mine], seed
            row = {"what": exam.what, "peer": f"{method} - {reference}", "unit": "ratio"}
            yield from _interval(row, f"NE difference{part and f', {part}'}", ne_differences(own, base, *rest))
            if not part:
                yield from _interval(row, "GAUC difference", gauc_differences(own, base, *rest))


def _interval(row: Row, metric: str, draws: Floats) -> Iterator[Row]:
    draws = draws[np.isfinite(draws)]
    if not len(draws):
        return
    yield {**row, "metric": metric, **rows.spread(list(draws))}
    for share in (2.5, 97.5):
        yield {**row, "metric": f"{metric}, {share} %", **rows.spread([float(np.percentile(draws, share))])}
