"""The weekly `as_of` grid on which the frozen learner emits embeddings and tokens (DESIGN section 1)."""

from __future__ import annotations

from datetime import datetime

from data.schema import MICROS_PER_DAY, to_micros


def as_of_grid(t0: datetime, end: int, every_days: int = 7) -> list[int]:
    """Dates [us] t0, t0 + every_days, ... not after `end` [us]; always holds t0 itself."""
    start, step = to_micros(t0), every_days * MICROS_PER_DAY
    return list(range(start, max(end, start) + 1, step))
