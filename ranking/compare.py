"""Two arms of one model, seed by seed: paired differences of NE, and an interval over users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.errors import BadDataError
from ranking.evaluate import Floats, entropy, log_losses, user_aucs

_DRAWS = 1000
_PIECE = 50


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
    differences = ne_differences(arm, control, labels, weights, users, seed)
    return [float(value) for value in np.nanquantile(differences, [0.025, 0.975])]


def ne_differences(
    arm: Sequence[Floats], control: Sequence[Floats], labels: NDArray, weights: Floats, users: NDArray, seed: int
) -> Floats:
    """(1000,) mean NE differences over seeds, each of users drawn with replacement; NaN where a draw has one class."""
    gap = np.mean([log_losses(logits, labels) for logits in arm], axis=0)
    gap = (gap - np.mean([log_losses(logits, labels) for logits in control], axis=0)) * weights
    _, user = np.unique(users, return_inverse=True)
    sums = np.stack([np.bincount(user, column).astype(np.float64) for column in (gap, weights, weights * labels)])
    gaps, mass, positive = _redrawn(sums, seed)
    base = np.array([entropy(rate) for rate in positive / mass])
    differences: Floats = gaps / mass / np.where(base > 0, base, np.nan)
    return differences


def gauc_differences(
    arm: Sequence[Floats], control: Sequence[Floats], labels: NDArray, weights: Floats, users: NDArray, seed: int
) -> Floats:
    """(1000,) mean GAUC differences over seeds, each of users drawn with replacement, as in `ne_differences`."""
    gap: Floats = np.zeros(len(np.unique(users)))
    for sign, runs in ((1.0, arm), (-1.0, control)):
        for logits in runs:
            _, aucs, shown = user_aucs(logits, labels, weights, users)
            gap = gap + sign * aucs / len(runs)
    ranked = ~np.isnan(gap)
    if not ranked.any():
        return np.full(_DRAWS, np.nan)
    gaps, mass = _redrawn(np.stack([gap[ranked] * shown[ranked], shown[ranked]]), seed)
    differences: Floats = gaps / mass
    return differences


def _redrawn(sums: Floats, seed: int) -> Floats:
    """(k, draws): sums (k, users) over users drawn with replacement. Draws come in pieces: each is as long as users."""
    rng, users = np.random.default_rng(seed), sums.shape[1]
    share = np.full(users, 1 / users)
    pieces = [sums @ rng.multinomial(users, share, size=_PIECE).T for _ in range(_DRAWS // _PIECE)]
    return np.concatenate(pieces, axis=1)
