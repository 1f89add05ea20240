from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data.schema import to_micros
from ranking.delayed import (
    MIN_SHARE,
    NEVER,
    STRATEGIES,
    Clicks,
    Delayed,
    censored,
    corrected,
    delayed_labels,
    law_at,
    oracle,
)
from ranking.heads import delayed_loss
from ranking.reader import Examples
from tests.ranking.shops import DAY, T0, event, make_examples, random_shop, shop_of

_CUT, _WINDOW = 100 * DAY, 30 * DAY
_EVERY = {**STRATEGIES, "oracle": oracle}


def _clicks(rng: np.random.Generator, count: int = 4_000, mean: float = 8.0) -> Clicks:
    """Clicks up to 20 days beyond the cut, a third of which convert, sooner in group 0 than in group 1."""
    ts = np.sort(rng.integers(0, 120 * DAY, count))
    group = rng.integers(0, 2, count)
    delay = (rng.exponential(mean / 4 + mean * group) * DAY).astype(np.int64)
    converts = (rng.random(count) < 0.35) & (delay <= _WINDOW)
    return Clicks(ts, np.where(converts, ts + delay, NEVER), group, _WINDOW)


def test_labels_and_weights_by_hand() -> None:
    """Rows: old and converted, old and late, old and never; young and converted, young and late; after the cut."""
    ts = _CUT - np.array([50, 40, 40, 10, 10, -1]) * DAY
    reported = np.array([_CUT - 45 * DAY, _CUT + DAY, NEVER, _CUT - 5 * DAY, _CUT + DAY, _CUT + 2 * DAY])
    clicks = Clicks(ts, reported, np.zeros(6, np.int64), _WINDOW)
    made = {name: strategy(clicks, _CUT) for name, strategy in _EVERY.items()}
    assert made["naive"].label.tolist() == [1, 0, 0, 1, 0, 0]
    assert made["naive"].weight.tolist() == [1, 1, 1, 1, 1, 0]
    assert made["waiting"].label.tolist() == [1, 0, 0, 0, 0, 0]
    assert made["waiting"].weight.tolist() == [1, 1, 1, 0, 0, 0]
    assert made["oracle"].label.tolist() == [1, 1, 0, 1, 1, 0]
    assert made["oracle"].weight.tolist() == [1, 1, 1, 1, 1, 0]
    weighted = corrected(clicks, _CUT, np.array([1, 1, 1, 0.5, 0.5, 0.0]))
    assert weighted.label.tolist() == [1, 0, 0, 2, 0, 0]
    assert weighted.weight.tolist() == [1, 1, 1, 0.5, 0.5, 0]
    assert all((rows.share == 1).all() for rows in (*made.values(), weighted) if rows is not made["likelihood"])
    hidden = censored(clicks, _CUT, np.array([1, 1, 1, 0.5, 0.5, 0.0]))
    assert hidden.label.tolist() == [1, 0, 0, 1, 0, 0]
    assert hidden.weight.tolist() == [1, 1, 1, 1, 1, 0]
    assert hidden.share.tolist() == [1, 1, 1, 0.5, 0.5, 1]


def test_the_corrected_loss_has_the_mean_of_the_oracle_loss_and_the_naive_one_has_not() -> None:
    """2,000 draws of one log in fp64: same rows, logits and probabilities; conversions and delays drawn anew."""
    rng = np.random.default_rng(0)
    ts = rng.integers(0, _CUT, 400)
    chance, logit = rng.uniform(0.05, 0.6, 400), torch.from_numpy(rng.normal(size=400))
    age = (_CUT - ts) / DAY
    limit = 1 - np.exp(-30.0 / 8.0)
    share = np.minimum((1 - np.exp(-age / 8.0)) / limit, 1.0)
    gaps = []
    for _ in range(2_000):
        delay = (-8.0 * np.log1p(-rng.random(400) * limit) * DAY).astype(np.int64)
        reported = np.where(rng.random(400) < chance, ts + delay, NEVER)
        clicks = Clicks(ts, reported, np.zeros(400, np.int64), _WINDOW)
        weighted, final = corrected(clicks, _CUT, share), oracle(clicks, _CUT)
        truth = _loss(logit, Delayed.of(final.label, weighted.weight))
        naive = _loss(logit, Delayed.of(STRATEGIES["naive"](clicks, _CUT).label, weighted.weight))
        gaps.append((_loss(logit, weighted) - truth, naive - truth))
    mean, error = np.mean(gaps, axis=0), np.std(gaps, axis=0) / np.sqrt(len(gaps))
    assert abs(mean[0]) < 3.5 * error[0]
    assert abs(mean[1]) > 15 * error[1]
    assert error[0] < 0.002


def _loss(logit: torch.Tensor, rows: Delayed) -> float:
    return float(delayed_loss(logit, *_tensors(rows)))


def _tensors(rows: Delayed) -> list[torch.Tensor]:
    return [torch.from_numpy(column).double() for column in (rows.label, rows.weight, rows.share)]


def test_the_censored_loss_is_stationary_at_the_true_probabilities() -> None:
    """Its mean gradient over 2,000 draws vanishes there in four kinds of rows; that of naive labels does not."""
    rng = np.random.default_rng(8)
    chance, share = np.array([0.1, 0.1, 0.7, 0.7]), np.array([0.2, 0.9, 0.2, 1.0])
    ts, gradients = np.zeros(4, np.int64), []
    for _ in range(2_000):
        reported = np.where(rng.random(4) < chance * share, 1, NEVER)
        clicks = Clicks(ts, reported, ts, _WINDOW)
        gradients.append(
            [_gradient(rows, chance) for rows in (censored(clicks, 2, share), STRATEGIES["naive"](clicks, 2))]
        )
    mean, error = np.mean(gradients, axis=0), np.std(gradients, axis=0) / np.sqrt(len(gradients))
    assert (np.abs(mean[0]) < 4 * error[0]).all()
    assert (np.abs(mean[1, :3]) > 4 * error[1, :3]).sum() >= 2
    assert np.abs(gradients).max() <= 1


def _gradient(rows: Delayed, chance: np.ndarray) -> np.ndarray:
    logit = torch.logit(torch.from_numpy(chance)).requires_grad_()
    (delayed_loss(logit, *_tensors(rows)) * len(chance)).backward()
    return logit.grad.numpy()


def test_with_the_law_it_estimates_likelihood_finds_the_final_rate() -> None:
    clicks = _clicks(np.random.default_rng(9), 100_000)
    rows, truth = STRATEGIES["likelihood"](clicks, _CUT), oracle(clicks, _CUT)
    logit = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([logit], max_iter=30)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = delayed_loss(logit.expand(len(rows.label)), *_tensors(rows))
        value.backward()
        return value

    optimizer.step(loss)
    assert torch.sigmoid(logit).item() == pytest.approx(np.average(truth.label, weights=truth.weight), rel=0.015)


def test_the_censored_loss_is_the_log_of_what_was_observed_and_has_no_nan() -> None:
    logit = torch.tensor([-12.0, -1, 0, 2, 12], dtype=torch.float64, requires_grad=True)
    p, ones = torch.sigmoid(logit.detach()), torch.ones(5, dtype=torch.float64)
    for share in (0.0, 0.3, 1.0):
        for label in (0.0, 1.0):
            loss = delayed_loss(logit, label * ones, ones, share * ones)
            expected = -torch.log(p if label else 1 - p * share).mean()
            assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
            loss.backward()
            assert torch.isfinite(logit.grad).all()


def test_with_the_law_it_estimates_importance_finds_the_final_rate() -> None:
    clicks = _clicks(np.random.default_rng(1), 200_000)
    rate = {name: np.average(rows.label, weights=rows.weight) for name, rows in _made(clicks).items()}
    assert rate["importance"] == pytest.approx(rate["oracle"], rel=0.015)
    assert rate["naive"] < 0.96 * rate["oracle"]


def _made(clicks: Clicks) -> dict[str, Delayed]:
    return {name: strategy(clicks, _CUT) for name, strategy in _EVERY.items()}


def test_weights_and_labels_are_finite_and_clipped_and_gradients_at_most_one() -> None:
    clicks = _clicks(np.random.default_rng(2))
    share = np.random.default_rng(3).choice([0.0, 1e-9, MIN_SHARE, 0.5, 1.0], len(clicks.ts))
    for rows in (corrected(clicks, _CUT, share), *_made(clicks).values()):
        assert rows.label.dtype == rows.weight.dtype == np.float32
        assert ((rows.weight >= 0) & (rows.weight <= 1)).all()
        assert ((rows.label >= 0) & (rows.label <= 1 / MIN_SHARE + 1e-3)).all()
        assert not rows.label[~rows.known].any()
        assert (rows.weight * rows.label <= 1 + 1e-6).all()
    assert not corrected(clicks, _CUT, share).known[share < MIN_SHARE].any()


def test_without_delays_all_strategies_say_what_the_oracle_says() -> None:
    clicks = _clicks(np.random.default_rng(4))
    made = _made(replace(clicks, reported=np.where(clicks.reported < NEVER, clicks.ts, NEVER)))
    for name in ("naive", "importance", "likelihood"):
        for field in ("label", "weight", "share"):
            np.testing.assert_array_equal(getattr(made[name], field), getattr(made["oracle"], field))
    old = made["waiting"].known
    np.testing.assert_array_equal(made["waiting"].label[old], made["oracle"].label[old])


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_what_comes_after_the_cut_changes_no_label_and_no_weight(name: str) -> None:
    rng = np.random.default_rng(5)
    clicks, strategy = _clicks(rng), STRATEGIES[name]
    before, late = clicks.ts < _CUT, clicks.reported > _CUT
    whole = strategy(clicks, _CUT)
    shuffled = np.where(late & (rng.random(len(late)) < 0.5), NEVER, clicks.reported)
    shuffled[rng.permutation(np.flatnonzero(late))[:50]] = _CUT + 1
    group = np.where(before, clicks.group, rng.integers(0, 9, len(late)))
    forgotten = strategy(Clicks(*(column[before] for column in (clicks.ts, shuffled, group)), _WINDOW), _CUT)
    changed = strategy(replace(clicks, reported=shuffled, group=group), _CUT)
    for field in ("label", "weight", "share"):
        np.testing.assert_array_equal(getattr(whole, field)[before], getattr(forgotten, field))
        np.testing.assert_array_equal(getattr(whole, field), getattr(changed, field))
    assert not whole.known[~before].any()
    assert not np.array_equal(oracle(clicks, _CUT).label, oracle(replace(clicks, reported=shuffled), _CUT).label)


def test_a_log_younger_than_the_window_has_no_law_and_waits() -> None:
    clicks = _clicks(np.random.default_rng(6))
    for name in ("importance", "likelihood"):
        assert not STRATEGIES[name](replace(clicks, window=101 * DAY), _CUT).known.any()


def test_the_law_depends_on_the_group() -> None:
    law = law_at(_clicks(np.random.default_rng(7), 40_000), _CUT)
    soon, late, new, newer = law.known_by(np.full(4, 3.0 * DAY), np.array([0, 1, 2, 9]))
    assert soon - 0.1 > new > late + 0.1
    assert new == newer


def test_gradient_is_that_of_the_log_loss_for_hard_labels_and_stays_bounded_for_soft_ones() -> None:
    logit = torch.linspace(-4, 4, 9, dtype=torch.float64, requires_grad=True)
    label, weight = torch.tensor([0.0, 1, 0, 1, 50, 0, 1, 2, 0]), torch.tensor([1.0, 1, 1, 1, 0.02, 0.02, 0.5, 0.5, 0])
    delayed_loss(logit, label, weight).backward()
    expected = weight * (torch.sigmoid(logit.detach()) - label) / 9
    assert logit.grad == pytest.approx(expected)


def test_examples_of_the_young_teach_those_who_need_not_wait(tmp_path: Path) -> None:
    """p-0 came back after 3 days, p-1 did not; the same again 5 days before the cut, when 3 days are known to do."""
    start = to_micros(T0)
    events = []
    for number, day in enumerate((0, 0, 27)):
        product = f"p-{number}"
        events += [event(kind, "u-0", product, start + day * DAY, f"r-{number}") for kind in ("impression", "purchase")]
        if number != 1:
            events.append(event("purchase", "u-0", product, start + (day + 3) * DAY))
    examples = Examples.open(make_examples(shop_of(events, []), tmp_path))
    cut = start + 32 * DAY
    assert delayed_labels(examples, cut).weight.tolist() == [1, 1, 0]
    weighted = delayed_labels(examples, cut, "importance")
    assert weighted.weight.tolist() == [1, 1, 1]
    assert weighted.label.tolist() == [1, 0, 1]
    assert delayed_labels(examples, cut, "naive").label.tolist() == [1, 0, 1]


def test_deleting_the_future_of_a_shop_changes_no_delayed_label_before_it(tmp_path: Path) -> None:
    shop, cut = random_shop(), to_micros(T0) + 40 * DAY
    whole, past = (
        Examples.open(make_examples(made, tmp_path / name))
        for name, made in (("whole", shop), ("past", shop.before(cut + 1)))
    )
    assert len(past) < len(whole)
    for name in STRATEGIES:
        all_rows, early = (delayed_labels(examples, cut, name) for examples in (whole, past))
        assert early.known.any()
        np.testing.assert_array_equal(all_rows.label[: len(past)], early.label)
        np.testing.assert_array_equal(all_rows.weight[: len(past)], early.weight)
        np.testing.assert_array_equal(all_rows.share[: len(past)], early.share)
        assert not all_rows.known[len(past) :].any()
