from __future__ import annotations

import numpy as np
import pytest

from data.errors import BadDataError
from ranking.compare import check_equal_parameters, gauc_differences, mean_and_sd, ne_differences, paired, user_interval
from ranking.evaluate import gauc, normalized_entropy


def test_arms_of_unequal_size_are_refused() -> None:
    check_equal_parameters({"tokens": 7, "no_tokens": 7})
    with pytest.raises(BadDataError, match="equally many"):
        check_equal_parameters({"tokens": 7, "no_tokens": 8})


def test_differences_are_paired_by_seed() -> None:
    found = paired({0: 0.7, 1: 0.6, 5: 0.1}, {1: 0.8, 0: 0.7})
    assert [row["seed"] for row in found["seeds"]] == [0, 1]
    assert found["difference"]["mean"] == pytest.approx(-0.1)
    assert found["seeds"][1]["relative"] == pytest.approx(-0.25)
    assert found["difference"]["sd"] == pytest.approx(np.std([0.0, -0.2], ddof=1))


def test_one_seed_has_no_deviation() -> None:
    assert mean_and_sd([0.5]) == {"mean": 0.5, "sd": None}


def _world(users: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(users), 30)
    truth = rng.normal(size=len(owner)) - 1
    labels = (rng.random(len(owner)) < 1 / (1 + np.exp(-truth))).astype(np.uint8)
    return owner, truth, labels, np.where(labels > 0, 1.0, 5.0)


def test_the_interval_holds_the_difference_and_tells_a_better_arm() -> None:
    owner, truth, labels, weights = _world(100)
    noisy = truth + np.random.default_rng(1).normal(size=len(truth))
    difference = normalized_entropy(truth, labels, weights) - normalized_entropy(noisy, labels, weights)
    low, high = user_interval([truth], [noisy], labels, weights, owner, seed=0)
    assert low < difference < high < 0


def test_equal_arms_differ_by_nothing() -> None:
    owner, truth, labels, weights = _world(50)
    assert user_interval([truth], [truth], labels, weights, owner, seed=0) == [0.0, 0.0]


def test_rows_of_a_user_count_as_one_draw() -> None:
    owner, truth, labels, weights = _world(40)
    noisy = truth + 2 * np.random.default_rng(1).normal(size=40)[owner]
    rows = user_interval([truth], [noisy], labels, weights, np.arange(len(owner)), seed=0)
    users = user_interval([truth], [noisy], labels, weights, owner, seed=0)
    assert users[1] - users[0] > 1.5 * (rows[1] - rows[0])


def test_draws_of_gauc_surround_the_difference_and_weigh_users_by_impressions() -> None:
    owner, truth, labels, weights = _world(60)
    noisy = truth + np.random.default_rng(1).normal(size=len(truth))
    difference = gauc(truth, labels, weights, owner) - gauc(noisy, labels, weights, owner)
    draws = gauc_differences([truth, truth], [noisy], labels, weights, owner, seed=0)
    assert draws.shape == (1000,)
    assert draws.mean() == pytest.approx(difference, abs=4 * draws.std() / 1000**0.5)
    assert 0 < np.quantile(draws, 0.025) < difference < np.quantile(draws, 0.975)
    assert np.isnan(gauc_differences([truth], [noisy], labels * 0, weights, owner, seed=0)).all()


def test_draws_of_ne_are_those_of_the_interval() -> None:
    owner, truth, labels, weights = _world(20)
    draws = ne_differences([truth], [truth * 0.5], labels, weights, owner, seed=4)
    low, high = user_interval([truth], [truth * 0.5], labels, weights, owner, seed=4)
    assert np.quantile(draws, [0.025, 0.975]).tolist() == [low, high]
