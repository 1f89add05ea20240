"""Two arms of one model, seed by seed: paired differences of NE, and an interval over users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.errors import BadDataError
from ranking.evaluate import Floats, entropy, log_losses

_DRAWS = 1000


def check_equal_parameters(parameters: Mapping[str, int]) -> None:
    """Raise BadDataError unless all arms (name -> parameter count) are equally large."""
    if len(set(parameters.values())) > 1:
        raise BadDataError(f"expected arms of equally many parameters, got {dict(parameters)}: they cannot be compared")


def mean_and_sd(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and sample standard deviation over seeds; None for the latter with a single seed."""
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "sd": sd}


def paired(arm: Mapping[int, float], control: Mapping[int, float]) -> dict[str, Any]:
    """NE (seed -> NE) of an arm against a control: per seed, the difference and the change relative to the control."""
    seeds = sorted(set(arm) & set(control))
    rows = [
        {
            "seed": seed,
            "ne": arm[seed],
            "control_ne": control[seed],
            "difference": arm[seed] - control[seed],
            "relative": arm[seed] / control[seed] - 1.0,
        }
        for seed in seeds
    ]
    return {
        "seeds": rows,
        "difference": mean_and_sd([row["difference"] for row in rows]),
        "relative": mean_and_sd([row["relative"] for row in rows]),
    }


def user_interval(
    arm: Sequence[Floats], control: Sequence[Floats], labels: NDArray, weights: Floats, users: NDArray, seed: int
) -> list[float]:
    """95 % interval of the mean NE difference over seeds, by drawing users with replacement (1,000 draws).

    `arm` and `control` hold logits (n,) by seed. Rows of a user depend on each other, so users are drawn, not rows.
    """
    gap = np.mean([log_losses(logits, labels) for logits in arm], axis=0)
    gap = (gap - np.mean([log_losses(logits, labels) for logits in control], axis=0)) * weights
    _, user = np.unique(users, return_inverse=True)
    sums = np.stack([np.bincount(user, column) for column in (gap, weights, weights * labels)])
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(sums.shape[1], np.full(sums.shape[1], 1 / sums.shape[1]), size=_DRAWS)
    gaps, mass, positive = sums @ drawn.T
    base = np.array([entropy(rate) for rate in positive / mass])
    differences = gaps / mass / np.where(base > 0, base, np.nan)
    return [float(value) for value in np.nanquantile(differences, [0.025, 0.975])]
