"""Coarse-fine consistency: a vector's fine interests must add up to its coarse ones.

The two-way, stop-gradient form of deep mutual learning (Zhang et al., 2018, arXiv:1706.00384), between two levels of
one hierarchy instead of two networks.
"""

from __future__ import annotations

import torch


def consistency_loss(coarse: torch.Tensor, fine: torch.Tensor, parents: torch.Tensor) -> torch.Tensor:
    """KL(coarse* || marginal) + KL(marginal* || coarse), where * takes no gradient; mean over rows.

    coarse (B, K1) and fine (B, K2): log-probabilities of one vector over two neighbouring levels. parents (K2, K1):
    soft parent weights of each fine primitive, rows sum to 1; marginal = fine @ parents. Returns a scalar, fp32.
    """
    marginal = torch.log((fine.float().exp() @ parents.float()).clamp_min(1e-12))
    return _divergence(coarse.float().detach(), marginal) + _divergence(marginal.detach(), coarse.float())


def _divergence(target: torch.Tensor, guess: torch.Tensor) -> torch.Tensor:
    return (target.exp() * (target - guess)).sum(dim=1).mean()
