"""Multinomial likelihood of several positives of one row over all candidates (Liang et al., 2018, arXiv:1802.05814)."""

from __future__ import annotations

import torch


def several_positives(
    logits: torch.Tensor,
    absent: torch.Tensor,
    positives: torch.Tensor,
    there: torch.Tensor,
    given: torch.Tensor,
    known: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """Weighted mean over positives of -log softmax(logits), without what a row was made of; a scalar, fp32.

    logits (B, C) of all candidates; absent bool (C,): no candidates at all. positives int64 (B, P): columns to be
    found, where `there` bool (B, P). given int64 (B, T): columns of what a user is made of, where `known` bool (B, T):
    they are neither found nor wrong. weights (B,) >= 0: of each positive of a row.
    """
    outside = torch.full_like(logits, 0.0, dtype=torch.float32).masked_fill_(absent, -torch.inf)
    # Where nothing is given the write goes to a column that takes it away again: -inf is written for known ones only.
    outside.scatter_add_(1, given, torch.where(known, -torch.inf, 0.0))
    found = logits.float() + outside
    log_total = torch.logsumexp(found, dim=1, keepdim=True)
    chosen = log_total - logits.float().gather(1, positives)
    each = weights[:, None] * there
    return (chosen * each).sum() / each.sum().clamp_min(1e-12)
