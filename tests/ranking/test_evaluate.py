from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from data.artifacts import ArtifactRef
from ranking.evaluate import (
    MIN_POSITIVES,
    advertiser_events,
    auc,
    calibration,
    coldness,
    deciles,
    entropy,
    figures,
    gauc,
    normalized_entropy,
    sampling_shift,
    sigmoid,
    slices,
    user_aucs,
)
from ranking.reader import TEST, TRAIN, Examples


def _random(rows: int = 500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = np.round(rng.normal(size=rows), 1)
    labels = (rng.random(rows) < sigmoid(logits - 1)).astype(np.uint8)
    return logits, labels, np.where(labels > 0, 1.0, rng.choice([1.0, 20.0], rows))


def test_normalized_entropy_has_its_closed_form() -> None:
    labels, weights = np.array([1, 0, 0, 1]), np.array([1.0, 3.0, 2.0, 1.0])
    rate, p = 2 / 7, np.array([0.5, 0.1, 0.2, 0.9])
    loss = -(np.log(0.5) + 3 * np.log(0.9) + 2 * np.log(0.8) + np.log(0.9)) / 7
    base = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    logits = np.log(p / (1 - p))
    assert normalized_entropy(logits, labels, weights) == pytest.approx(loss / base, rel=1e-12)


def test_normalized_entropy_matches_the_log_loss_of_sklearn() -> None:
    logits, labels, weights = _random()
    expected = log_loss(labels, sigmoid(logits), sample_weight=weights) / entropy(np.average(labels, weights=weights))
    assert normalized_entropy(logits, labels, weights) == pytest.approx(expected, rel=1e-9)


def test_predicting_the_base_rate_scores_one() -> None:
    _, labels, weights = _random()
    rate = np.average(labels, weights=weights)
    flat = np.full(len(labels), np.log(rate / (1 - rate)))
    assert normalized_entropy(flat, labels, weights) == pytest.approx(1.0, rel=1e-12)
    assert calibration(flat, labels, weights) == pytest.approx(1.0, rel=1e-12)
    assert auc(flat, labels, weights) == 0.5


def test_extreme_logits_lose_no_precision() -> None:
    assert normalized_entropy(np.array([-800.0, 800.0]), np.array([1, 0]), np.ones(2)) == pytest.approx(800 / np.log(2))


def test_auc_matches_sklearn_with_ties_and_weights() -> None:
    logits, labels, weights = _random()
    assert len(np.unique(logits)) < len(logits) / 5
    assert auc(logits, labels, weights) == pytest.approx(roc_auc_score(labels, logits, sample_weight=weights), rel=1e-9)


def test_one_class_alone_has_no_figures() -> None:
    measured = figures(np.zeros(3), np.zeros(3), np.ones(3))
    assert measured == {"ne": None, "auc": None, "calibration": None, "rows": 3, "positives": 0}
    assert figures(np.zeros(0), np.zeros(0), np.zeros(0))["ne"] is None


def test_the_sampling_shift_recovers_the_base_rate() -> None:
    rng = np.random.default_rng(0)
    labels = (rng.random(400_000) < 0.02).astype(np.uint8)
    kept = (labels > 0) | (rng.random(len(labels)) < 0.05)
    sampled, prob = labels[kept], np.where(labels[kept] > 0, 1.0, 0.05).astype(np.float32)
    shift = sampling_shift(sampled, prob)
    assert shift == pytest.approx(np.log(0.05), rel=1e-6)
    naive = np.log(sampled.mean() / (1 - sampled.mean()))
    assert sigmoid(np.array([naive + shift]))[0] == pytest.approx(labels.mean(), rel=0.02)
    assert sigmoid(np.array([naive]))[0] > 10 * labels.mean()


def test_without_sampling_there_is_nothing_to_shift() -> None:
    assert sampling_shift(np.array([0, 1, 0]), np.ones(3)) == 0.0
    assert sampling_shift(np.array([0, 0]), np.full(2, 0.1)) == 0.0


def test_a_model_of_sampled_negatives_is_calibrated_in_every_decile_once_shifted() -> None:
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(400_000, 2))
    labels = (rng.random(len(inputs)) < sigmoid(inputs @ np.array([1.0, -0.5]) - 4)).astype(np.uint8)
    kept = (labels > 0) | (rng.random(len(labels)) < 0.04)
    prob = np.where(labels[kept] > 0, 1.0, 0.04).astype(np.float32)
    model = LogisticRegression(C=1e6).fit(inputs[kept], labels[kept])
    logits, ones = model.decision_function(inputs), np.ones(len(inputs))
    shifted = logits + sampling_shift(labels[kept], prob)
    assert calibration(shifted, labels, ones) == pytest.approx(1.0, abs=0.02)
    assert calibration(logits, labels, ones) > 8
    for part in deciles(shifted, labels, ones)[2:]:
        assert part["predicted"] == pytest.approx(part["observed"], rel=0.12), part
    # The sampled rows weighted back say the same as the whole log.
    weights = 1.0 / prob.astype(np.float64)
    assert calibration(shifted[kept], labels[kept], weights) == pytest.approx(1.0, abs=0.02)


def test_deciles_hold_equal_weight_and_all_of_it() -> None:
    logits, labels, weights = _random(2000)
    parts = deciles(logits, labels, weights)
    assert len(parts) == 10
    assert sum(part["observed"] for part in parts) == pytest.approx((weights * labels).sum())
    assert sum(part["predicted"] for part in parts) == pytest.approx((weights * sigmoid(logits)).sum())
    assert parts[0]["observed"] < parts[9]["observed"]


def test_slices_split_the_test_and_small_ones_carry_no_claim(examples_ref: ArtifactRef) -> None:
    examples = Examples.open(examples_ref)
    rows = examples.rows(TEST)
    found = slices(examples, rows, np.zeros(len(rows)))
    for dimension in ("surface", "user_history", "product_popularity"):
        mine = [part for part in found if part["slice"] == dimension]
        assert sum(part["rows"] for part in mine) == len(rows)
        assert all(part["claim"] == (part["positives"] >= MIN_POSITIVES) for part in mine)
    assert not any(part["claim"] for part in found)
    assert {part["bucket"] for part in found if part["slice"] == "product_popularity"} >= {"new (0)", "rare (1-20)"}
    popularity = np.asarray(examples.columns["product_events"][rows])
    new = next(part for part in found if part["bucket"] == "new (0)" and part["slice"] == "product_popularity")
    assert new["rows"] == (popularity == 0).sum() > 0


def test_slices_reach_a_claim_with_enough_positives(examples_ref: ArtifactRef) -> None:
    examples = Examples.open(examples_ref)
    rows = np.tile(examples.rows(TEST), 40)
    assert any(part["claim"] for part in slices(examples, rows, np.zeros(len(rows))))


def _auc_by_pairs(scores: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
    """Every pair of a positive and a negative, one by one."""
    won = total = 0.0
    for i in np.flatnonzero(labels):
        for j in np.flatnonzero(labels == 0):
            total += weights[i] * weights[j]
            won += weights[i] * weights[j] * (1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0)
    return won / total if total else float("nan")


def test_gauc_is_the_auc_of_each_user_weighted_by_impressions() -> None:
    logits, labels, weights = _random(400)
    users = np.random.default_rng(1).choice([3, 5, 8, 13, 21, 34, 55, 89, 144], 400, p=[0.3, 0.2, *7 * [0.5 / 7]])
    labels[users == 8] = 0
    labels[users == 13] = 1
    found, aucs, shown = user_aucs(logits, labels, weights, users)
    total = mass = 0.0
    for user, value, weight in zip(found, aucs, shown, strict=True):
        mine = users == user
        expected = _auc_by_pairs(logits[mine], labels[mine], weights[mine])
        assert value == pytest.approx(expected, rel=1e-12, nan_ok=True)
        assert weight == pytest.approx(weights[mine].sum(), rel=1e-12)
        if not np.isnan(expected):
            total, mass = total + weight * expected, mass + weight
    assert np.isnan(aucs).sum() == 2, "users of one class say nothing about order"
    assert gauc(logits, labels, weights, users) == pytest.approx(total / mass, rel=1e-12)


def test_gauc_does_not_see_what_differs_between_users() -> None:
    logits, labels, weights = _random(300)
    users = np.arange(300) % 7
    assert gauc(logits + 9.0 * users, labels, weights, users) == pytest.approx(gauc(logits, labels, weights, users))
    assert auc(logits + 9.0 * users, labels, weights) < auc(logits, labels, weights)
    assert gauc(logits, labels, weights, np.zeros(300)) == pytest.approx(auc(logits, labels, weights), rel=1e-12)


def test_gauc_is_undefined_without_a_user_of_both_classes() -> None:
    assert np.isnan(gauc(np.zeros(4), np.array([1, 0, 1, 0]), np.ones(4), np.arange(4)))
    assert np.isnan(gauc(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0)))


def test_events_of_an_advertiser_are_those_visible_at_the_row(examples_ref: ArtifactRef) -> None:
    examples = Examples.open(examples_ref)
    rows = np.concatenate([examples.rows(TRAIN)[::40], examples.rows(TEST)[::40]])
    product, named, visible = (
        examples_ref.array(f"history/{name}.npy") for name in ("product", "advertiser", "visible_from")
    )
    expected = []
    for row in rows:
        advertiser, ts = examples.columns["advertiser"][row], examples.columns["ts"][row]
        of = [examples.owner[p] if a < 0 <= p else a for p, a in zip(product, named, strict=True)]
        expected.append(sum(o == advertiser and v <= ts for o, v in zip(of, visible, strict=True)))
    assert advertiser_events(examples, rows).tolist() == expected
    assert len(set(expected)) > 5


def test_coldness_puts_each_row_into_one_bucket_of_each_dimension(examples_ref: ArtifactRef) -> None:
    examples = Examples.open(examples_ref)
    rows = examples.rows(TEST)
    parts = coldness(examples, rows)
    for buckets in parts.values():
        assert (np.sum(list(buckets.values()), axis=0) == 1).all()
    known = np.asarray(examples.columns["product_events"][rows])
    assert (parts["product events known"]["0"] == (known == 0)).all()
    assert (parts["product events known"]["6-20"] == ((known >= 6) & (known <= 20))).all()
    train = examples.rows(TRAIN)
    size = {
        a: (1 / examples.columns["sample_prob"][train][examples.columns["advertiser"][train] == a]).sum()
        for a in range(4)
    }
    of = np.array([size[a] for a in examples.columns["advertiser"][rows]])
    assert (parts["advertiser impressions"]["101-1000"] == ((of > 100.5) & (of < 1000.5))).all()
    found = slices(examples, rows, np.zeros(len(rows)), parts)
    assert {part["slice"] for part in found} == set(parts)
