"""The segmented binary search as one kernel: a lane a row, all steps in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256


def visible_count(rowptr: Tensor, visible_from: Tensor, rows: Tensor, times: Tensor) -> Tensor:
    """See `kernels.visible_count.api`."""
    row, time = rows.contiguous(), times.contiguous()
    found = torch.empty_like(row)
    if row.numel():
        grid = (triton.cdiv(row.numel(), BLOCK),)
        _kernel[grid](rowptr, visible_from, row, time, found, row.numel(), len(rowptr) - 1, BLOCK)
    return found


@triton.jit
def _kernel(rowptr, visible_from, rows, times, found, count, last, BLOCK: tl.constexpr):
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = lane < count
    row = tl.load(rows + lane, mask=real, other=-1)
    time = tl.load(times + lane, mask=real, other=0)
    inside = (row >= 0) & (row < last)
    start = tl.load(rowptr + row, mask=inside, other=0)
    end = tl.load(rowptr + row + 1, mask=inside, other=0)
    low, high = start, end
    # Halves [low, high) until the first edge that is not visible is found; lanes that are done read nothing.
    while tl.max(high - low, 0) > 0:
        active = low < high
        middle = (low + high) // 2
        seen = tl.load(visible_from + middle, mask=active, other=0) <= time
        low = tl.where(active & seen, middle + 1, low)
        high = tl.where(active & ~seen, middle, high)
    tl.store(found + lane, low - start, mask=real)
