"""The logs that judge delayed labels carry the laws they are said to carry, and the figures mean what they say."""

from __future__ import annotations

import numpy as np
import pytest

from data.errors import UsageError
from ranking.delayed import NEVER, naive, oracle
from tests.benchmarks import delayed
from tests.benchmarks.delayed_feedback.log import DAYS, LAWS, TEST_DAYS, WINDOW_DAYS, World
from tests.benchmarks.delayed_feedback.model import design, fit


@pytest.mark.parametrize("law", sorted(LAWS))
def test_delays_follow_the_planted_law(law):
    log = World(law, 7).train(60_000)
    final = log.clicks.reported < NEVER
    assert (log.delay[final] <= WINDOW_DAYS).all()
    assert log.clicks.ts.max() < log.cut
    known = log.clicks.observed(log.cut)
    for low, high in ((0, 5), (5, 15), (15, 30), (30, DAYS)):
        age = (log.cut - log.clicks.ts) / 86_400e6
        rows = final & (age >= low) & (age < high)
        error = 4 * np.sqrt(0.25 / rows.sum())
        assert known[rows].mean() == pytest.approx(log.known_share[rows].mean(), abs=error)


def test_a_seed_gives_one_log_and_all_laws_the_same_clicks():
    one, same, other = (World(law, 3).train(500) for law in ("exponential", "exponential", "lognormal"))
    np.testing.assert_array_equal(one.clicks.reported, same.clicks.reported)
    np.testing.assert_array_equal(one.clicks.reported < NEVER, other.clicks.reported < NEVER)
    assert not np.array_equal(one.clicks.reported, other.clicks.reported)


def test_the_test_week_follows_the_cut():
    world = World("mixture", 3)
    before, after = world.train(2_000), world.test(2_000)
    days = after.clicks.ts / 86_400e6
    assert days.min() >= DAYS
    assert days.max() < DAYS + TEST_DAYS
    assert (before.codes.max(axis=0) < before.sizes).all()


def test_the_fit_finds_the_rate_and_less_where_late_ones_are_missing():
    log = World("exponential", 2).train(20_000)
    inputs = design(log)
    assert inputs.shape == (20_000, 1 + sum(log.sizes) + 2)
    rates = [1 / (1 + np.exp(-(inputs @ fit(inputs, rows(log.clicks, log.cut))))) for rows in (oracle, naive)]
    assert rates[0].mean() == pytest.approx((log.clicks.reported < NEVER).mean(), rel=1e-3)
    assert rates[1].mean() == pytest.approx(log.clicks.observed(log.cut).mean(), rel=1e-3)


def test_figures_of_a_small_log_and_their_rows():
    found = delayed.measure(*delayed.logs("exponential", 1, 20_000))
    assert found["naive"]["gap closed"] == 0
    assert found["oracle"]["gap closed"] == found["oracle"]["calibration over oracle"] == 1
    assert found["likelihood"]["ne"] < found["naive"]["ne"]
    rows = list(delayed.table("exponential", [found, found]))
    assert {"what", "peer", "metric", "unit", "p20", "p50", "p80"} == set(rows[0])
    assert not any("," in row["peer"] and "," in row["metric"] for row in rows)


def test_an_unknown_law_is_named():
    with pytest.raises(UsageError, match="exponential"):
        delayed.logs("exponentiel", 0, 10)
