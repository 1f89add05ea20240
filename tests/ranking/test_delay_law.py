from __future__ import annotations

import numpy as np
import pytest

from ranking.delay_law import DelayLaw, estimate_law

_WINDOW = 30.0


def _truncated(rng: np.random.Generator, count: int, mean: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Delays [0.001 d] of exponential law within the window, of rows of any age, as far as they are known."""
    limit = 1 - np.exp(-_WINDOW / mean)
    delay = -np.log1p(-rng.random(count) * limit) * mean
    age = rng.uniform(0, 2 * _WINDOW, count)
    return (1000 * delay).astype(np.int64), (1000 * age).astype(np.int64)


def _exponential(at: np.ndarray, mean: float) -> np.ndarray:
    return (1 - np.exp(-at / mean)) / (1 - np.exp(-_WINDOW / mean))


@pytest.mark.parametrize("half_life", [np.inf, 15_000.0])
def test_the_law_is_that_of_all_conversions_though_only_early_ones_are_known(half_life: float) -> None:
    delay, age = _truncated(np.random.default_rng(0), 40_000, 8.0)
    known = delay <= age
    group = np.zeros(known.sum(), np.int64)
    law = estimate_law(delay[known], age[known], group, 1, half_life=half_life)
    at = np.array([0.5, 2.0, 5.0, 10.0, 20.0, 29.0])
    found = law.known_by(1000 * at, np.zeros(6, np.int64))
    assert found == pytest.approx(_exponential(at, 8.0), abs=0.02)
    histogram = np.array([np.mean(delay[known] <= 1000 * day) for day in at])
    assert np.abs(histogram - _exponential(at, 8.0)).max() > 0.04, "the test needs a cut that hides something"


def test_groups_have_laws_of_their_own_and_one_without_conversions_that_of_all() -> None:
    rng = np.random.default_rng(1)
    group = rng.integers(0, 2, 60_000)
    delay, age = _truncated(rng, len(group), np.array([2.0, 12.0])[group])
    known = delay <= age
    law = estimate_law(delay[known], age[known], group[known], 3)
    for mine, mean in enumerate((2.0, 12.0)):
        at = np.array([1.0, 4.0, 10.0, 20.0])
        assert law.known_by(1000 * at, np.full(4, mine)) == pytest.approx(_exponential(at, mean), abs=0.025)
    pooled = estimate_law(delay[known], age[known], np.zeros(known.sum(), np.int64), 1)
    assert law.share[2] == pytest.approx(pooled.share[0])


def test_a_law_by_hand() -> None:
    """Four old rows with delays 1, 1, 2, 4, and a young one (age 2) with delay 1; no prior to speak of.

    Of those with delay <= 4 in rows of age >= 4, one of four comes after 2. Of those with delay <= 2 in rows of
    age >= 2, now with the young one, one of four comes after 1.
    """
    law = estimate_law(
        np.array([1, 1, 2, 4, 1]), np.array([9, 9, 9, 9, 2]), np.zeros(5, np.int64), 1, num_buckets=16, prior=1e-9
    )
    assert law.edges.tolist() == [0, 1, 2, 4]
    assert law.share[0] == pytest.approx([0, 0.75 * 0.75, 0.75, 1])
    assert law.known_by(np.array([-1, 0, 1, 3, 4, 99]), np.zeros(6, np.int64)) == pytest.approx(
        [0, 0, 0.5625, 0.875, 1, 1]
    )


def test_conversions_at_once_and_none_at_all_are_all_known() -> None:
    zero = np.zeros(10, np.int64)
    for delay in (zero, zero[:0]):
        law = estimate_law(delay, delay + 5, delay, 2)
        assert law.known_by(np.array([-1, 0, 7]), np.array([0, 1, 1])).tolist() == [0, 1, 1]


def test_a_law_never_falls_and_ends_at_one() -> None:
    rng = np.random.default_rng(2)
    age = rng.integers(0, 100, 50)
    delay = rng.integers(0, age + 1)
    law = estimate_law(delay, age, rng.integers(0, 7, 50), 7, half_life=20.0)
    assert isinstance(law, DelayLaw)
    assert (np.diff(law.share, axis=1) >= 0).all()
    assert (law.share >= 0).all()
    assert (law.share[:, -1] == 1).all()
