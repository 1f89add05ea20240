"""The scaling law is found again where it was planted, and says no where nothing can be said."""

import numpy as np
import pytest

from data.errors import UsageError
from tests.benchmarks.scaling.law import fit, spread

COMPUTE = np.geomspace(1e9, 1e13, 6)


@pytest.mark.parametrize(("floor", "alpha"), [(0.7, 0.3), (0.0, 0.1), (0.5, 1.0)])
def test_a_planted_law_is_found_and_carried_beyond_what_was_seen(floor, alpha):
    losses = floor + 0.4 * (COMPUTE / 1e9) ** -alpha
    law = fit(COMPUTE[:-1], losses[:-1])
    assert law.at(COMPUTE[-1]) == pytest.approx(losses[-1], abs=2e-4)
    assert law.floor == pytest.approx(floor, abs=0.02)


def test_noise_widens_what_is_said_of_the_next_point():
    rng = np.random.default_rng(0)
    compute = np.repeat(COMPUTE[:-1], 3)
    clean = 0.7 + 0.4 * (compute / 1e9) ** -0.3
    intervals = [spread(compute, clean + rng.normal(0, sd, len(clean)), COMPUTE[-1], draws=40) for sd in (1e-4, 1e-2)]
    quiet, loud = (high - low for low, high in intervals)
    assert 0 < quiet < loud / 5
    assert np.mean(intervals[0]) == pytest.approx(0.7 + 0.4 * 1e4**-0.3, abs=1e-3)


def test_losses_that_rise_with_compute_are_a_floor():
    law = fit(COMPUTE, np.linspace(0.5, 0.6, 6))
    assert law.at(1e15) == pytest.approx(law.floor + law.scale * (1e15 / law.centre) ** -law.alpha)
    assert law.at(1e15) <= law.at(1e9)


def test_two_computes_say_nothing():
    with pytest.raises(UsageError, match="three or more computes"):
        fit(np.array([1.0, 2.0, 2.0]), np.array([3.0, 2.0, 2.1]))
