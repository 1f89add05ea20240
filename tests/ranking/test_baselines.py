from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data.artifacts import ArtifactRef
from data.schema import to_micros
from ranking.arms import bags_of
from ranking.baselines.base_rate import fit_base_rate
from ranking.baselines.logistic_regression import design, fit_logistic_regression
from ranking.baselines.popularity_by_surface import fit_popularity
from ranking.evaluate import normalized_entropy, sigmoid
from ranking.fitting import Sample
from ranking.reader import TRAIN, VALIDATION, Examples
from tests.ranking.shops import DAY, T0, event, make_examples, shop_of


@pytest.fixture(scope="module")
def examples(examples_ref: ArtifactRef) -> Examples:
    return Examples.open(examples_ref)


def _ne(examples: Examples, logits: np.ndarray, rows: np.ndarray) -> float:
    weights = 1.0 / examples.columns["sample_prob"][rows].astype(np.float64)
    return normalized_entropy(logits, examples.columns["label"][rows], weights)


def test_the_base_rate_is_that_of_the_log_before_sampling(examples: Examples) -> None:
    rows = examples.rows(TRAIN)
    weights = 1.0 / examples.columns["sample_prob"][rows].astype(np.float64)
    expected = np.average(examples.columns["label"][rows], weights=weights)
    for limit in (10**6, int(examples.columns["label"][rows].sum()) + 100):
        logits, deep = fit_base_rate(examples, Sample.draw(examples, limit)).logits(rows)
        assert sigmoid(logits)[0] == pytest.approx(expected, rel=1e-6)
        assert deep is None
    assert _ne(examples, fit_base_rate(examples, Sample.draw(examples, 10**6)).logits(rows)[0], rows) == pytest.approx(
        1
    )


def _surface_log(store: Path) -> Examples:
    """p-0 sells on display only, p-1 in the mailer only; p-2 is first seen in the test."""
    events, start = [], to_micros(T0)
    for number in range(600):
        ts = start + number * 49 * DAY // 600
        for product, surface in (("p-0", "display:1"), ("p-0", "mailer:A"), ("p-1", "display:1"), ("p-1", "mailer:A")):
            request = f"{number}-{surface}"
            events.append(
                event(
                    "impression", "u-0", product, ts, request, surface=surface, event_id=f"i{number}{product}{surface}"
                )
            )
            if (product == "p-0") == (surface == "display:1") and number % 4 == 0:
                events.append(event("purchase", "u-0", product, ts, request, event_id=f"p{number}{product}{surface}"))
    events.append(event("impression", "u-0", "p-2", start + 60 * DAY, "r", surface="display:1"))
    events.append(event("impression", "u-0", "p-2", start + 61 * DAY, "r", surface=None))
    return Examples.open(make_examples(shop_of(events, []), store))


def test_popularity_knows_the_product_on_the_surface(tmp_path: Path) -> None:
    examples = _surface_log(tmp_path)
    sample = Sample.draw(examples, 10**6)
    model = fit_popularity(examples, sample, (1.0, 1e6))
    assert model.strength == 1.0
    rows = examples.rows(VALIDATION)
    rate = sigmoid(model.logits(rows)[0])
    product, surface = examples.columns["product"][rows], examples.columns["surface"][rows]
    assert rate[(product == 0) & (surface == 0)] == pytest.approx(0.25, abs=0.02)
    assert rate[(product == 1) & (surface == 0)].max() < 0.01
    unseen = sigmoid(model.logits(np.arange(len(examples))[-2:])[0])
    assert unseen == pytest.approx([0.125, 0.125], abs=0.02), "a new product has its surface's rate, or the overall one"


def test_popularity_counts_thinned_negatives_in_full(examples: Examples) -> None:
    positives = int(examples.columns["label"][examples.rows(TRAIN)].sum())
    rates = [
        sigmoid(fit_popularity(examples, Sample.draw(examples, limit), (1e9,)).logits(examples.rows(TRAIN))[0]).mean()
        for limit in (10**6, positives + 300)
    ]
    assert rates[0] == pytest.approx(rates[1], rel=0.1)


def test_logistic_regression_beats_the_base_rate_and_says_its_penalty(examples: Examples) -> None:
    model = fit_logistic_regression(examples, Sample.draw(examples, 10**6), (1e-6, 0.1), buckets=1 << 12)
    assert model.strength == 0.1
    rows = examples.rows(VALIDATION)
    assert _ne(examples, model.logits(rows)[0], rows) < 0.97
    assert set(model.tensors()) == {"coefficients", "intercept"}


def test_logistic_regression_reads_interest_tokens_where_given(examples: Examples) -> None:
    rows = examples.rows(TRAIN)
    plain = design(examples, rows, 1 << 14)
    learned, hashed = (design(examples, rows, 1 << 14, bags_of(examples, arm)) for arm in ("tokens", "no_tokens"))
    added = 5 * len(examples.levels)
    assert learned.sum() == hashed.sum() == plain.sum() + added * len(rows)
    assert (learned - plain).min() >= 0, "what was there stays where it was"
    assert (learned != hashed).nnz > len(rows)
    model = fit_logistic_regression(
        examples, Sample.draw(examples, 10**6), (0.1,), 1 << 12, bags_of(examples, "tokens")
    )
    assert _ne(examples, model.logits(examples.rows(VALIDATION))[0], examples.rows(VALIDATION)) < 0.97


def test_a_row_has_one_bucket_for_each_cross(examples: Examples) -> None:
    rows = examples.rows(TRAIN)[:9]
    matrix = design(examples, rows, 1 << 12)
    assert (np.asarray(matrix.sum(axis=1)).ravel() == matrix.sum(axis=1).max()).all()
    assert (design(examples, rows[4:5], 1 << 12) != matrix[4]).nnz == 0
