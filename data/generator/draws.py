"""Vectorised random draws: Zipf ranks without tables, and random numbers by counter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.context import derive_seed

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """A generator that depends on `seed` and `names` only (SFC64: the fastest of numpy's)."""
    return np.random.Generator(np.random.SFC64(derive_seed(seed, *names)))


def mix(*parts: int | NDArray[Any]) -> NDArray[np.uint64]:
    """SplitMix64 (Steele et al., 2014) folded over integers and integer arrays that broadcast together."""
    state: NDArray[np.uint64] = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            state = (state ^ np.asarray(part).astype(np.uint64)) + _GOLDEN
            state = (state ^ (state >> np.uint64(30))) * _MIX_1
            state = (state ^ (state >> np.uint64(27))) * _MIX_2
            state = state ^ (state >> np.uint64(31))
    return state


class Zipf:
    """Ranks 0 … count - 1 with chance about (1 + rank)^-skew, by inversion of the continuous law: one power a draw.

    `counts` int64 (g,) holds the number of ranks of each group, at least 1.
    """

    def __init__(self, counts: NDArray[np.int64], skew: float) -> None:
        self.counts, self.power = counts.astype(np.int32), 1.0 - skew
        ends = counts.astype(np.float64) + 1
        self.scale = (np.log(ends) if abs(self.power) < 1e-6 else ends**self.power - 1).astype(np.float32)

    def ranks(self, groups: NDArray[Any] | int, uniform: NDArray[np.float32]) -> NDArray[np.int32]:
        """A rank in each of `groups` (n,) for `uniform` (n,) in [0, 1)."""
        reach = self.scale[groups] * uniform
        found = np.exp(reach) if abs(self.power) < 1e-6 else (reach + 1) ** np.float32(1 / self.power)
        ranks: NDArray[np.int32] = np.minimum(found.astype(np.int32) - 1, self.counts[groups] - 1)
        return ranks
