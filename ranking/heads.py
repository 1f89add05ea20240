"""The two heads of a ranker over explicit feature crosses and a deep layer, and their joint loss.

The crosses are those of DCN-V2 (Wang et al., WWW 2021) in its parallel, low-rank form.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CrossLayer(nn.Module):
    """x0 * (U V x + b) + x: one order of feature interaction more than x has, through `rank` components."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width)

    def forward(self, first: Tensor, x: Tensor) -> Tensor:
        """(B, n), (B, n) -> (B, n)."""
        crossed: Tensor = first * self.up(self.down(x)) + x
        return crossed


class Heads(nn.Module):
    """Logits of both tasks from features (B, inputs): cross layers of rank `hidden` beside a layer of that width."""

    def __init__(self, inputs: int, hidden: int, dropout: float, num_crosses: int = 2) -> None:
        super().__init__()
        self.inputs, self.hidden = inputs, hidden
        self.norm = nn.LayerNorm(inputs)
        self.crosses = nn.ModuleList(CrossLayer(inputs, hidden) for _ in range(num_crosses))
        self.deep = nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Dropout(dropout))
        self.tasks = nn.Linear(inputs + hidden, 2)

    def start_at(self, immediate_rate: float, deep_rate: float) -> None:
        """Set the biases so that untrained heads predict the rates of their tasks, clipped to [1e-4, 1 - 1e-4]."""
        rates = torch.tensor([immediate_rate, deep_rate], dtype=torch.float64)
        with torch.no_grad():
            self.tasks.bias.copy_(torch.logit(rates, eps=1e-4))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(B, inputs) -> immediate (B,), deep (B,)."""
        first = self.norm(features)
        x = first
        for layer in self.crosses:
            x = layer(first, x)
        immediate, deep = self.tasks(torch.cat([x, self.deep(first)], dim=1)).unbind(1)
        return immediate, deep


def joint_loss(
    immediate: Tensor,
    deep: Tensor,
    label: Tensor,
    deep_label: Tensor,
    deep_row_weight: Tensor,
    deep_weight: float,
    deep_share: Tensor | None = None,
) -> Tensor:
    """Mean log loss of `immediate` plus `deep_weight` times the `delayed_loss` of `deep`; all (B,)."""
    second = delayed_loss(deep, deep_label, deep_row_weight, deep_share)
    return F.binary_cross_entropy_with_logits(immediate, label) + deep_weight * second


def delayed_loss(logit: Tensor, label: Tensor, weight: Tensor, share: Tensor | None = None) -> Tensor:
    """Weighted sum over B, divided by B, of a loss of label y and share F, all (B,), as `ranking.delayed` makes them:

        softplus(logit) - y logit - (1 - y) softplus(logit + log(1 - F)).

    For F = 1, the default, it is the log loss, linear in y, which may exceed 1. For F < 1 it is -log p of a label 1
    and -log(1 - p F) of a label 0: what does not show yet may still come. Divided by all B rows, so that a batch of
    little weight moves the model little.
    """
    loss = F.softplus(logit) - label * logit
    if share is not None:
        # F = 1 would be -inf, whose gradient is NaN in some kernels; exp(-80) is nothing beside any p.
        loss = loss - (1.0 - label) * F.softplus(logit + torch.log1p(-share).clamp_min(-80.0))
    return (weight * loss).sum() / len(label)
