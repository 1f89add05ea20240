"""Degree-gated blend: an entity of few events leans on its content, one of many on the graph.

vector = unit(g * graph + (1 - g) * content) with g = n / (n + kappa) at the as-of degree n: the posterior mean of a
prior worth kappa events (empirical Bayes: Efron & Morris, 1973), and what cold-start work calls a warm-up gate.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize


def gate(degree: Tensor, kappa: float) -> Tensor:
    """g float32 in [0, 1], shaped as `degree` (as-of events); 1 where nothing is blended (kappa 0)."""
    seen = degree.to(torch.float32)
    return torch.where(seen + kappa > 0, seen / (seen + kappa).clamp(min=1e-12), 1.0)


def blended(graph: Tensor, content: Tensor, degree: Tensor, kappa: float) -> Tensor:
    """Unit vectors (B, Q, d) between those of the graph and of content alone, both (B, Q, d) and unit; degree (B,).

    Where the two are opposite and cancel, the graph's stays.
    """
    share = gate(degree, kappa)[:, None, None]
    mixed = share * graph + (1 - share) * content
    norm = mixed.norm(dim=-1, keepdim=True)
    return torch.where(norm > 1e-6, normalize(mixed, dim=-1), graph)
