"""Link prediction: sampled softmax with logQ correction.

Bengio & Senecal (2008) and Yi et al. (2019, "Sampling-bias-corrected neural modeling", RecSys): each sampled negative
stands for 1 / (its expected number of draws) candidates, so log(expected draws) is SUBTRACTED from its logit. The
positive is certain to be present and needs none. The estimate of the partition sum is then unbiased. Where every
candidate is scored, each is expected once and the same formula is the full softmax.
"""

from __future__ import annotations

import torch


def corrected_logits(negatives: torch.Tensor, log_expected: torch.Tensor, absent: torch.Tensor) -> torch.Tensor:
    """Logits (B, C) whose exponentials sum to an unbiased estimate of the partition sum without the positive, fp32.

    log_expected (C,) or (B, C): log of how often each candidate is drawn on average, given the row's positive. absent
    (B, C) bool: no negative of the row (its positive itself, or another product that it engages with).
    """
    return (negatives.float() - log_expected).masked_fill(absent, -torch.inf)


def sampled_softmax(
    positive: torch.Tensor,
    negatives: torch.Tensor,
    log_expected: torch.Tensor,
    accidental: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """Weighted mean of -positive + log(exp(positive) + sum_j exp(negative_j) / expected_j).

    positive (B,): logits of the true pairs. negatives (B, C): logits of the shared candidates. log_expected (C,) or (B,
    C): log of how often each candidate is drawn on average. accidental (B, C) bool: the candidate IS the row's
    positive, so it is left out. weights (B,) >= 0: importance of each row, e.g. its place in the funnel. Returns a
    scalar, fp32.
    """
    corrected = corrected_logits(negatives, log_expected, accidental)
    everything = torch.cat([positive.float()[:, None], corrected], dim=1)
    losses = torch.logsumexp(everything, dim=1) - positive.float()
    return (losses * weights).sum() / weights.sum().clamp_min(1e-12)
