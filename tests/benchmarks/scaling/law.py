"""A saturating power law of loss against compute: L(C) = E + A * C ** -alpha (Hoffmann et al., 2022, arXiv:2203.15556).

E is what no compute removes, A and alpha how fast the rest goes. For a given alpha the law is linear in (E, A), so the
fit is a search over alpha alone, each with non-negative least squares: no start values, no local minima of a descent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar, nnls

from data.errors import UsageError

_ALPHAS = np.geomspace(0.01, 2.0, 60)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Law:
    """floor E, scale A and exponent alpha; A is at compute `centre`, the geometric mean of those it was fitted on."""

    floor: float
    scale: float
    alpha: float
    centre: float

    def at(self, compute: float) -> float:
        """Loss at a compute, in the unit of the fit."""
        return float(self.floor + self.scale * (compute / self.centre) ** -self.alpha)


def fit(compute: Floats, losses: Floats) -> Law:
    """The law of least squared error for losses (n,) at computes (n,) > 0, its three numbers not negative.

    Several losses may share a compute (seeds). Raises UsageError for fewer than three different computes: three numbers
    go through any two points.
    """
    if len(np.unique(compute)) < 3:
        raise UsageError(f"expected losses at three or more computes to fit a law, got {len(np.unique(compute))}")
    centre = float(np.exp(np.mean(np.log(compute))))
    error = [_solved(compute / centre, losses, alpha)[0] for alpha in _ALPHAS]
    place = int(np.argmin(error))
    between = _ALPHAS[max(0, place - 1)], _ALPHAS[min(len(_ALPHAS) - 1, place + 1)]
    found = minimize_scalar(lambda alpha: _solved(compute / centre, losses, alpha)[0], bounds=between, method="bounded")
    alpha = float(found.x)
    _, floor, scale = _solved(compute / centre, losses, alpha)
    return Law(floor, scale, alpha, centre)


def spread(compute: Floats, losses: Floats, at: float, draws: int = 200, seed: int = 0) -> tuple[float, float]:
    """The middle 95 % of predictions at a compute when the losses of each other compute are drawn with replacement."""
    rng, places = np.random.default_rng(seed), [np.flatnonzero(compute == each) for each in np.unique(compute)]
    found = []
    for _ in range(draws):
        rows = np.concatenate([rng.choice(place, len(place)) for place in places])
        found.append(fit(compute[rows], losses[rows]).at(at))
    low, high = np.quantile(found, (0.025, 0.975))
    return float(low), float(high)


def _solved(compute: Floats, losses: Floats, alpha: float) -> tuple[float, float, float]:
    """(residual norm, E, A)."""
    (floor, scale), residual = nnls(np.stack([np.ones_like(compute), compute**-alpha], axis=1), losses)
    return float(residual), float(floor), float(scale)
