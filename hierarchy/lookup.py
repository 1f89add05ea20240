"""Rows of a table by index, with gradients for a GPU: added where they belong instead of sorted first.

What torch offers sorts all indices for the gradient, which is repeatable and on a CPU free. On an H200 it was a quarter
of a training step, since most tokens of short histories are padding and most of a bias index is one of few rows. Here a
GPU adds with atomics: sums may differ in their last bits from run to run, as those of its matrix products' do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import embedding, embedding_bag

_SPREAD = 4096
"""Rows that take what padding would add, so that not all of it meets at one address."""


def rows_of(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Rows (..., d) of `table` (n, d) at `index` int64 (...); row 0 is padding and gets no gradient."""
    if index.device.type == "cpu":
        return embedding(index, table, padding_idx=0)
    found: torch.Tensor = _Rows.apply(table, index)  # type: ignore[no-untyped-call]
    return found


def sums_of(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Sums (b, d) of the rows of `table` (n, d) at `index` int64 (b, f)."""
    if index.device.type == "cpu":
        return embedding_bag(index, table, mode="sum")
    found: torch.Tensor = _Sums.apply(table, index)  # type: ignore[no-untyped-call]
    return found


class _Rows(torch.autograd.Function):
    """`rows_of` on any device."""

    @staticmethod
    def forward(ctx: Any, table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return embedding(index, table)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (index,), (grad,) = ctx.saved_tensors, grads
        index, grad = index.reshape(-1), grad.reshape(-1, grad.shape[-1])
        aside = ctx.rows + torch.arange(len(index), device=index.device) % _SPREAD
        total = grad.new_zeros((ctx.rows + _SPREAD, grad.shape[1]))
        total.index_add_(0, torch.where(index == 0, aside, index), grad)
        return total[: ctx.rows], None


class _Sums(torch.autograd.Function):
    """`sums_of` on any device."""

    @staticmethod
    def forward(ctx: Any, table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return embedding_bag(index, table, mode="sum")

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (index,), (grad,) = ctx.saved_tensors, grads
        # Copies of the table, since few of its rows take all there is.
        copies = min(_SPREAD // 8, max(1, len(index) // 64))
        place = (torch.arange(len(index), device=index.device) % copies)[:, None] * ctx.rows + index
        total = grad.new_zeros((copies * ctx.rows, grad.shape[1]))
        for column in place.unbind(1):
            total.index_add_(0, column, grad)
        return total.view(copies, ctx.rows, -1).sum(dim=0), None
