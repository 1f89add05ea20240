"""How popular a thing is at a moment: by what happened ever, or of late, where what sells changes with the season."""

from __future__ import annotations

import torch

from data.schema import MICROS_PER_DAY
from graph.sampler import Integers, TemporalSampler


def log_popularity(
    sampler: TemporalSampler, kind: str, nodes: Integers, times: Integers, days: float | None = None
) -> torch.Tensor:
    """log1p of the events of `nodes` (B,) that became visible up to `times` (B,) [us], float32 (B,).

    `days`: only those of the last so many days; None: all. On the sampler's device.
    """
    count = sampler.degree(kind, nodes, times)
    if days is not None:
        count = count - sampler.degree(kind, nodes, times - round(days * MICROS_PER_DAY))
    return torch.log1p(count.to(torch.float64)).float()
