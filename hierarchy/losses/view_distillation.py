"""A closed-form view as teacher: its neighbourhoods, over the candidates of a step, are distilled into the student.

Ranking distillation in its soft form (Hinton et al., 2015, arXiv:1503.02531; Tang & Wang, 2018, for recommenders): the
teacher's softmax over products is what the student's should look like. A view such as spectral vectors knows who goes
with whom; the student learns to say it from content and tokens, for products that the view has never seen too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True)
class TeacherView:
    """Vectors of every product in two roles, float32 (N_products, D) each; D is the view's own.

    A user is the sum of `product_source` over their history, and scores a product by the dot product with its
    `product_target`. Row numbers are internal ids; rows of zeros are products that the view does not know.
    """

    name: str
    product_source: NDArray[np.float32]
    product_target: NDArray[np.float32]


def view_scores(
    source: torch.Tensor, target: torch.Tensor, history: torch.Tensor, mask: torch.Tensor, candidates: torch.Tensor
) -> torch.Tensor:
    """Teacher scores (B, C) of `candidates` (C,) for users with product `history` int64 (B, T) where `mask` (B, T).

    source, target (N, D): a TeacherView's arrays. Scores of a row have mean 0 and variance 1 over the candidates, so
    that one temperature fits any view. Memory O(B T D + B C).
    """
    read = torch.where(mask, history, 0)
    users = (source[read] * mask[..., None]).sum(dim=1)
    scores = users @ target[candidates].t()
    centred = scores - scores.mean(dim=1, keepdim=True)
    return centred / centred.square().mean(dim=1, keepdim=True).sqrt().clamp_min(1e-12)


def view_distillation(
    scores: torch.Tensor,
    logits: torch.Tensor,
    log_expected: torch.Tensor,
    temperatures: tuple[float, float],
    weights: torch.Tensor,
) -> torch.Tensor:
    """Weighted mean over rows of KL(softmax(scores / t) || softmax(logits / s)), `temperatures` (t, s); scalar, fp32.

    scores, logits (B, C): teacher's and student's. log_expected (C,) or (B, C): log of how often a candidate is drawn,
    subtracted from both, so that a frequent candidate does not count twice (infinite: it does not count). weights (B,)
    >= 0; rows of users without a history get 0.
    """
    teacher = torch.log_softmax((scores.float() / temperatures[0] - log_expected), dim=1).detach()
    student = torch.log_softmax((logits.float() / temperatures[1] - log_expected), dim=1)
    there = torch.isfinite(teacher)
    gap = torch.where(there, teacher, 0.0) - torch.where(there, student, 0.0)
    divergence = (teacher.exp() * gap).sum(dim=1)
    return (divergence * weights).sum() / weights.sum().clamp_min(1e-12)
