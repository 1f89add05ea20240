"""Losses over a matrix of logits that never exists as a whole: a few rows at a time, and again when gradients are due.

A loss of one row over N products has a gradient that is as short to write as the loss itself (softmax, or a difference
of two), so only the logits go through autograd. Recomputing instead of storing is activation checkpointing (Chen et
al., 2016, arXiv:1604.06174), here with the row losses remembered; that a matrix of logits is best lost by pieces is the
idea of Wijmans et al. (2024, "Cut your losses", arXiv:2411.09009).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.autograd.function import once_differentiable

AT_ONCE = 1 << 25
"""Logits that exist at a time (128 MiB of them), and at most four matrices of that size with them."""
VOID = 1e4
"""Taken off the logit of what is no candidate: exp(-VOID) is 0 in fp32, and unlike infinity it leaves numbers."""


class RowLoss(Protocol):
    """One loss a row, of the row's logits alone."""

    def value(self, rows: slice, logits: torch.Tensor) -> torch.Tensor:
        """Losses (b,) of `rows` with logits (b, C), which are the same afterwards."""

    def gradient(self, rows: slice, logits: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """The derivatives (b, C) of those losses by their row's logits, as a new tensor."""


Score = Callable[..., torch.Tensor]
"""score(rows, users[rows], *shared) -> logits (b, C), differentiable; what it returns may be written over."""


def by_rows(
    score: Score, losses: Sequence[RowLoss], users: torch.Tensor, *shared: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Each of `losses` over all rows, (B,) each, differentiable in `users` (B, ...) and the `shared` tensors.

    shared[0] (C, ...): the candidates. Time: two passes of `score` forward and one backward; memory O(AT_ONCE).
    """
    values: tuple[torch.Tensor, ...] = _ByRows.apply(score, losses, users, *shared)  # type: ignore[no-untyped-call]
    return values


def _pieces(count: int, width: int) -> list[slice]:
    size = max(1, AT_ONCE // max(width, 1))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


class _ByRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, score: Score, losses: Sequence[RowLoss], users: torch.Tensor, *shared: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.score, ctx.losses = score, losses
        pieces = []
        for rows in _pieces(len(users), len(shared[0])):
            logits = score(rows, users[rows], *shared)
            pieces.append(torch.stack([loss.value(rows, logits) for loss in losses]))
        values = torch.cat(pieces, dim=1)
        ctx.save_for_backward(values, users, *shared)
        return tuple(values.clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        values, users, *shared = ctx.saved_tensors
        wanted = [tensor.detach().requires_grad_() for tensor in shared]
        totals, of_users = [torch.zeros_like(tensor) for tensor in shared], torch.empty_like(users)
        for rows in _pieces(len(users), len(shared[0])):
            own = users[rows].detach().requires_grad_()
            with torch.enable_grad():
                logits = ctx.score(rows, own, *wanted)
            slope = _slope(ctx.losses, rows, logits.detach(), values[:, rows], [each[rows] for each in upstream])
            of_users[rows], *parts = torch.autograd.grad(logits, [own, *wanted], slope)
            for total, part in zip(totals, parts, strict=True):
                total += part
        return None, None, of_users, *totals


def _slope(
    losses: Sequence[RowLoss],
    rows: slice,
    logits: torch.Tensor,
    values: torch.Tensor,
    upstream: Sequence[torch.Tensor],
) -> torch.Tensor:
    """What a change of each logit (b, C) does to the sum of all losses, weighted by `upstream` (b,) each."""
    total = losses[0].gradient(rows, logits, values[0]).mul_(upstream[0][:, None])
    for loss, value, weight in zip(losses[1:], values[1:], upstream[1:], strict=True):
        total.addcmul_(loss.gradient(rows, logits, value), weight[:, None])
    return total
