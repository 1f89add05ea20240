"""Explicit negatives: a product that a user said they do not want is made unlikely for that user.

Unlikelihood (Welleck et al., 2020, "Neural text generation with unlikelihood training", arXiv:1908.04319) in the
sampled softmax: -log(1 - p) with p = exp(x) / (exp(x) + S), which is softplus(x - log S).
"""

from __future__ import annotations

import torch
from torch.nn.functional import softplus


def dislike_loss(disliked: torch.Tensor, log_partition: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted mean of -log(1 - p) of the disliked products; a scalar, fp32.

    disliked (R,): their logits. log_partition (R,): log S, the log-sum-exp of the other candidates' corrected logits of
    the same users; it takes no gradient, so that nothing else is pulled up. weights (R,) >= 0.
    """
    losses = softplus(disliked.float() - log_partition.float().detach())
    return (losses * weights).sum() / weights.sum().clamp_min(1e-12)
