"""Spread of primitives: the KoLeo entropy estimator (Sablayrolles et al., 2019, arXiv:1806.03198; used in DINOv2)."""

from __future__ import annotations

import torch


def spread_loss(prototypes: torch.Tensor) -> torch.Tensor:
    """-mean log distance of each of the unit vectors (K, d) to its nearest other one; a scalar, 0 for fewer than two.

    Falls as the nearest pairs part, so minimising it works against duplicates. The neighbour is chosen without
    gradient, and distances are floored so that exact duplicates give a finite push.
    """
    if len(prototypes) < 2:
        return prototypes.new_zeros(())
    with torch.no_grad():
        similarity = prototypes @ prototypes.t()
        similarity.fill_diagonal_(-2.0)
        nearest = similarity.argmax(dim=1)
    distance = (prototypes - prototypes[nearest] + 1e-8).norm(dim=1)
    return -torch.log(distance.clamp_min(1e-4)).mean()
