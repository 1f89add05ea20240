"""Segmented binary search in torch, step by step for all rows at once. The truth that the Triton kernel must equal."""

from __future__ import annotations

import torch
from torch import Tensor

SHORT_BITS = 6
"""Rows of fewer than 2^SHORT_BITS edges take no part in the first steps, which only long rows need."""


def visible_count(rowptr: Tensor, visible_from: Tensor, rows: Tensor, times: Tensor) -> Tensor:
    """See `kernels.visible_count.api`; time O(rows log(longest row)), memory O(rows)."""
    row, time = rows.reshape(-1), times.reshape(-1)
    last = len(rowptr) - 1
    start = rowptr.index_select(0, row.clamp(0, last))
    end = rowptr.index_select(0, (row + 1).clamp_(0, last))
    some = (end > start).nonzero()[:, 0]
    if 4 * len(some) >= 3 * len(row):
        return _search(visible_from, start, end, time).view(rows.shape)
    found = torch.zeros_like(start)
    start, end, time = (array.index_select(0, some) for array in (start, end, time))
    return found.index_copy_(0, some, _search(visible_from, start, end, time)).view(rows.shape)


def _search(visible_from: Tensor, start: Tensor, end: Tensor, time: Tensor) -> Tensor:
    """Visible edges of the rows [start, end), long rows first brought down to 2^SHORT_BITS candidates."""
    if not len(start):
        return torch.zeros_like(start)
    length, at, last = end - start, start - 1, end - 1
    bits = int(length.max()).bit_length()
    if bits > SHORT_BITS:
        long = (length >> SHORT_BITS).nonzero()[:, 0]
        if 4 * len(long) >= 3 * len(start):
            _climb(visible_from, at, last, time, range(SHORT_BITS, bits))
        else:
            part = at[long]
            _climb(visible_from, part, last[long], time[long], range(SHORT_BITS, bits))
            at.index_copy_(0, long, part)
    _climb(visible_from, at, last, time, range(min(bits, SHORT_BITS)))
    return at.sub_(start).add_(1)


def _climb(visible_from: Tensor, at: Tensor, last: Tensor, time: Tensor, bits: range) -> None:
    """Move `at`, the newest edge known to be visible, up by powers of two, in place.

    A step past the row's end looks at its last edge instead: when that is visible, so is the whole row.
    """
    reach, edge, probe = torch.empty_like(at), torch.empty_like(at), torch.empty_like(time)
    seen = torch.empty_like(at, dtype=torch.bool)
    for bit in reversed(bits):
        torch.add(at, 1 << bit, out=reach)
        torch.minimum(reach, last, out=reach)
        # An empty row at the very start has last = -1; it stays there, whatever edge 0 says.
        torch.clamp(reach, min=0, out=edge)
        torch.index_select(visible_from, 0, edge, out=probe)
        torch.le(probe, time, out=seen)
        torch.where(seen, reach, at, out=at)
