"""Distillation from the learner before: what it said of an entity by its own primitives should still be said.

Learning without forgetting (Li & Hoiem, 2016, arXiv:1606.09282), over the memberships that tokens are made of.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hierarchy.losses.distillation import distillation_loss


def anchor_loss(
    student: torch.Tensor, before: torch.Tensor, primitives: Sequence[torch.Tensor], temperature: float
) -> torch.Tensor:
    """Mean over levels and rows of KL(softmax(before / t) || softmax(student / t)); scalar, fp32, 0 for equal vectors.

    student, before (B, d): unit vectors of the same entities by the learner of today and the one before, which takes no
    gradient. primitives: one (K, d) a level, those of before. Softmaxes are over cosines with them.
    """
    losses = []
    for level in primitives:
        logits = (before.detach() @ level.t()).float()
        target = torch.softmax(logits / temperature, dim=1)
        crossed = distillation_loss(student @ level.t(), target, temperature)
        losses.append(crossed - distillation_loss(logits, target, temperature))
    return torch.stack(losses).mean()
