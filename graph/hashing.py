"""The counter-based hash over numpy arrays, which orders edges that became visible together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def counter_hash(*parts: int | NDArray[Any]) -> NDArray[np.uint64]:
    """Hash of integers and integer arrays, which broadcast together: SplitMix64 (Steele et al., 2014) folded over them.

    The same bits as `graph.draws.counter_hash`, for those who have no need of torch.
    """
    state: NDArray[np.uint64] = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            wide = np.asarray(part % (1 << 64), np.uint64) if isinstance(part, int) else part.astype(np.uint64)
            state = (state ^ wide) + _GOLDEN
            state = (state ^ (state >> np.uint64(30))) * _MIX_1
            state = (state ^ (state >> np.uint64(27))) * _MIX_2
            state = state ^ (state >> np.uint64(31))
    return state
