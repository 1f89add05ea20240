"""The two heads of the ranker and their joint loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Heads(nn.Module):
    """A shared layer and one logit per task; the biases start at the tasks' base rates."""

    def __init__(self, inputs: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.shared = nn.Sequential(nn.LayerNorm(inputs), nn.Linear(inputs, hidden), nn.GELU(), nn.Dropout(dropout))
        self.immediate = nn.Linear(hidden, 1)
        self.deep = nn.Linear(hidden, 1)

    def start_at(self, immediate_rate: float, deep_rate: float) -> None:
        """Set the biases so that an untrained head predicts the rate of its task, clipped to [1e-4, 1 - 1e-4]."""
        for head, rate in ((self.immediate, immediate_rate), (self.deep, deep_rate)):
            nn.init.constant_(head.bias, float(torch.logit(torch.tensor(rate, dtype=torch.float64), eps=1e-4)))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(B, inputs) -> immediate (B,), deep (B,)."""
        hidden = self.shared(features)
        return self.immediate(hidden).squeeze(-1), self.deep(hidden).squeeze(-1)


def joint_loss(
    immediate: Tensor, deep: Tensor, label: Tensor, deep_label: Tensor, deep_known: Tensor, deep_weight: float
) -> Tensor:
    """Mean log loss of `immediate` plus `deep_weight` times that of `deep` over rows whose delayed label is known.

    All (B,); the second term is over all B rows, so that a batch with few known labels moves the model little.
    """
    first = F.binary_cross_entropy_with_logits(immediate, label)
    second = F.binary_cross_entropy_with_logits(deep, deep_label, weight=deep_known, reduction="sum")
    return first + deep_weight * second / len(label)
