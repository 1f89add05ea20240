"""Seeded logs of clicks with planted conversion probabilities and planted delay laws.

Campaigns start all along and run for weeks, so that some that are on after the cut have no click before it whose whole
window has passed: what waiting cannot see. Delays are drawn from their law given that they lie within the window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from data.context import derive_seed
from data.schema import MICROS_PER_DAY
from ranking.delayed import NEVER, Clicks
from ranking.evaluate import Floats, sigmoid

WINDOW_DAYS, DAYS, TEST_DAYS, RUN_DAYS = 30, 90, 7, 60
CATEGORIES, CAMPAIGNS, PLACES = 8, 160, 12
CUT = DAYS * MICROS_PER_DAY
BASE = -3.0
"""Log odds of an average click."""

Parts = list[tuple[float, Any]]
"""Probability and distribution [days] of each component of a law."""


def exponential(category: NDArray, day: Floats) -> Parts:
    """Mean 6 days."""
    return [(1.0, stats.expon(scale=6.0))]


def lognormal(category: NDArray, day: Floats) -> Parts:
    """Median 3 days, sigma 1.3: half of the conversions soon, and a long tail."""
    return [(1.0, stats.lognorm(1.3, scale=3.0))]


def mixture(category: NDArray, day: Floats) -> Parts:
    """A part at once (mean an hour), the rest with the mean of its category, from 1 to 15 days."""
    means = np.geomspace(1.0, 15.0, CATEGORIES)
    return [(0.3, stats.expon(scale=1 / 24)), (0.7, stats.expon(scale=means[category]))]


def lengthening(category: NDArray, day: Floats) -> Parts:
    """Exponential with a mean that grows from 3 days at the start to 9 at the cut: no stationary law is right."""
    return [(1.0, stats.expon(scale=3.0 + 6.0 * day / DAYS))]


LAWS: dict[str, Callable[[NDArray, Floats], Parts]] = {
    law.__name__: law for law in (exponential, lognormal, mixture, lengthening)
}


@dataclass(frozen=True)
class Log:
    """Clicks with what is known of them at the time: `codes` (n, k), each column below its one of `sizes`, and
    `numbers` (n, m); and with what is not: when they convert (`clicks`), and `known_share` (n,), the part of their
    conversions that is planted to be known at `cut` [us] (None: nothing is planted)."""

    codes: NDArray
    sizes: tuple[int, ...]
    numbers: Floats
    clicks: Clicks
    cut: int
    known_share: Floats | None

    @property
    def delay(self) -> Floats:
        """(n,) days from click to conversion, inf where there is none."""
        wait = (self.clicks.reported - self.clicks.ts) / MICROS_PER_DAY
        return np.where(self.clicks.reported < NEVER, wait, np.inf)


class World:
    """One seed's campaigns and planted effects under one delay law."""

    def __init__(self, law: str, seed: int) -> None:
        rng = np.random.default_rng(derive_seed(seed, "world"))
        self.law, self.seed = LAWS[law], seed
        self.start = rng.uniform(-RUN_DAYS, DAYS - 5, CAMPAIGNS)
        self.rate = rng.lognormal(0.0, 0.5, CAMPAIGNS)
        self.category_of = rng.integers(0, CATEGORIES, CAMPAIGNS)
        self.of_campaign, self.of_category = rng.normal(0, 0.5, CAMPAIGNS), rng.normal(0, 0.3, CATEGORIES)
        self.of_place, self.of_numbers = rng.normal(0, 0.4, PLACES), np.array([0.5, -0.3])
        self.of_cross = rng.normal(0, 0.2, (CATEGORIES, PLACES))  # in no model: every real one is wrong somewhere

    def train(self, count: int) -> Log:
        """Clicks of the `DAYS` days before the cut."""
        return self._draw(count, 0.0, DAYS, "train")

    def test(self, count: int) -> Log:
        """Clicks of the `TEST_DAYS` days after the cut."""
        return self._draw(count, DAYS, DAYS + TEST_DAYS, "test")

    def _draw(self, count: int, low: float, high: float, name: str) -> Log:
        rng = np.random.default_rng(derive_seed(self.seed, name))
        first, last = np.maximum(self.start, low), np.minimum(self.start + RUN_DAYS, high)
        shown = self.rate * np.maximum(last - first, 0.0)
        campaign = rng.choice(CAMPAIGNS, count, p=shown / shown.sum())
        day = rng.uniform(first[campaign], last[campaign])
        category, place = self.category_of[campaign], rng.integers(0, PLACES, count)
        numbers = rng.normal(size=(count, 2))
        effects = self.of_campaign[campaign] + self.of_category[category] + self.of_place[place]
        logits = BASE + effects + self.of_cross[category, place] + numbers @ self.of_numbers
        converts = rng.random(count) < sigmoid(logits)
        parts = self.law(category, day)
        ts, wait = ((days * MICROS_PER_DAY).astype(np.int64) for days in (day, _delays(parts, rng.random((2, count)))))
        clicks = Clicks(ts, np.where(converts, ts + wait, NEVER), category, WINDOW_DAYS * MICROS_PER_DAY)
        codes = np.stack([category, campaign, place], axis=1)
        return Log(codes, (CATEGORIES, CAMPAIGNS, PLACES), numbers, clicks, CUT, _known(parts, DAYS - day))


def _delays(parts: Parts, uniform: Floats) -> Floats:
    """(n,) delays [days] within the window from uniform (2, n): one chooses the component, one the place in it."""
    within = np.stack([np.broadcast_to(prob * law.cdf(WINDOW_DAYS), uniform.shape[1]) for prob, law in parts])
    chosen = (uniform[0] * within.sum(0) >= np.cumsum(within, axis=0)[:-1]).sum(0) if len(parts) > 1 else 0
    drawn = np.stack(
        [np.broadcast_to(law.ppf(uniform[1] * law.cdf(WINDOW_DAYS)), uniform.shape[1]) for _, law in parts]
    )
    return np.take_along_axis(drawn, np.broadcast_to(chosen, (1, uniform.shape[1])), axis=0)[0]


def _known(parts: Parts, age: Floats) -> Floats:
    """(n,) part of the window's conversions that come within `age` [days]."""
    reached = sum(prob * law.cdf(np.clip(age, 0.0, WINDOW_DAYS)) for prob, law in parts)
    return np.asarray(reached / sum(prob * law.cdf(WINDOW_DAYS) for prob, law in parts), np.float64)
