"""How long conversions take to become known, from those known so far: the product-limit law of right-truncated delays.

At the cut a conversion of a row of age e is known only if its delay is at most e, so a plain histogram of known delays
is too short. Reading time backwards repairs that: among conversions with delay at most d, in rows at least d old,
the share whose delay falls in the last bucket before d is not biased by the cut (Lynden-Bell, MNRAS 1971; Keiding and
Gill, Annals of Statistics 1990). F is the product of what these reverse hazards leave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DelayLaw:
    """`share` (groups, edges) = F(edge | group): part of the final conversions known `edges` [us] (ascending, from 0)
    after their row; 1 at the last edge."""

    edges: Floats
    share: Floats

    def known_by(self, elapsed: NDArray, group: Ints) -> Floats:
        """F(elapsed [us] | group), each (n,), linear between edges; 0 before delay 0. Groups past the last are it."""
        group = np.minimum(group, len(self.share) - 1)
        if len(self.edges) == 1:
            return np.where(elapsed >= self.edges[0], self.share[group, 0], 0.0)
        right = np.clip(np.searchsorted(self.edges, elapsed, side="right"), 1, len(self.edges) - 1)
        low, high = self.edges[right - 1], self.edges[right]
        part = np.clip((elapsed - low) / (high - low), 0.0, 1.0)
        found: Floats = self.share[group, right - 1] * (1.0 - part) + self.share[group, right] * part
        return np.where(elapsed < 0, 0.0, found)


def estimate_law(
    delay: Ints,
    elapsed: Ints,
    group: Ints,
    num_groups: int,
    num_buckets: int = 64,
    prior: float = 10.0,
    half_life: float = np.inf,
) -> DelayLaw:
    """The law of conversions known at the cut: `delay` <= `elapsed` [us] and `group` in [0, num_groups), each (n,).

        h(b | g) = (conversions of g in bucket b + prior h(b)) / (those of g with delay up to b's end + prior),
        F(edge k | g) = product over buckets b beyond edge k of (1 - h(b | g)),

    both counted in rows at least as old as b's end, h(b) being the hazard of all groups together. Buckets hold about
    equally many known delays each; one more holds delay 0. In bucket b a row counts 2^(-(elapsed - b's end) /
    half_life) [us], so that where delays change over time each hazard is that of the youngest rows that show it.
    What takes longer than the longest delay seen is not known and not counted: rows must reach back a whole window.
    Without conversions F is 1 from 0 on. Time n log n in conversions; `prior` > 0 is in conversions [count].
    """
    levels = np.linspace(0.0, 1.0, num_buckets + 1)[1:]
    marks = np.quantile(delay.astype(np.float64), levels, method="higher") if len(delay) else np.zeros(0)
    edges = np.unique(np.append(marks, 0.0))
    events, at_risk = _counts(delay, elapsed, group, (num_groups, len(edges) + 1), edges, half_life)
    pooled = events.sum(0) / np.maximum(at_risk.sum(0), 1e-12)
    hazard = (events + prior * pooled) / (at_risk + prior)
    kept = np.cumprod(1.0 - np.minimum(hazard[:, :0:-1], 1.0), axis=1)[:, ::-1]
    return DelayLaw(edges, np.concatenate([kept, np.ones((num_groups, 1))], axis=1))


def _counts(
    delay: Ints, elapsed: Ints, group: Ints, shape: tuple[int, int], edges: Floats, half_life: float
) -> tuple[Floats, Floats]:
    """(groups, edges) weight of the conversions in each bucket, and of those up to its end, in rows that old."""
    first, after = np.searchsorted(edges, delay), np.searchsorted(edges, elapsed, side="right")
    seen = first < after
    weight, lately = np.exp2(-elapsed[seen] / half_life), np.exp2(edges / half_life)
    cells = (np.ravel_multi_index((group[seen], bucket[seen]), shape) for bucket in (first, after))
    sums = [np.bincount(cell, weight, shape[0] * shape[1]).astype(np.float64).reshape(shape) for cell in cells]
    events, left = (counted[:, :-1] for counted in sums)
    at_risk = np.maximum(np.cumsum(events - left, axis=1), 0.0)  # rounding may leave less than nothing
    return events * lately, at_risk * lately
