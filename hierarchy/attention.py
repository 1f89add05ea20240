"""Attention of a few latent queries per seed over its typed tokens and hub tokens.

Perceiver-style cross-attention (Jaegle et al., 2021, arXiv:2103.03206) with additive biases. Keys and values are
never formed for the tokens: W_k is folded into the query and W_v applied after the weighted sum, so the cost is
O(B Q H d (d + T)) and not O(B T d^2). The softmax has one extra, silent outcome (Miller, 2023, "Attention is off by
one"), so a seed without tokens attends to nothing and gets zeros instead of NaN.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from hierarchy.prototypes import Hubs


class LatentAttention(nn.Module):
    """Multi-head attention whose output map starts at zero: at step 0 the layer adds nothing to its query."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"expected dim divisible by heads, got dim {dim} and {heads} heads")
        self.heads, self.head_dim = heads, dim // heads
        bound = 1 / math.sqrt(dim)
        shape = (heads, self.head_dim, dim)
        self.query = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.key = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.value = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.output = nn.Parameter(torch.zeros(dim, dim))

    def forward(
        self,
        query: torch.Tensor,
        tokens: torch.Tensor,
        bias: torch.Tensor,
        mask: torch.Tensor,
        hubs: Hubs | None = None,
        hub_bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """New content for `query` (B, Q, d) from `tokens` (B, T, d), biased by `bias` (B, H, T), where `mask` (B, T).

        `hubs` with `hub_bias` (B, H, P) join the tokens in one softmax. Returns (B, Q, d); masked tokens have no
        influence as long as they are finite.
        """
        batch, latents, dim = query.shape
        heads = torch.einsum("bqd,hed->bqhe", query, self.query * self.head_dim**-0.5)
        folded = torch.einsum("bqhe,hed->bqhd", heads, self.key).reshape(batch, latents * self.heads, dim)
        sources = [tokens] if hubs is None else [tokens, hubs.coarse, hubs.children]
        logits = torch.cat([folded @ source.mT for source in sources], dim=2).float()
        if hubs is not None and hub_bias is not None:
            bias, mask = torch.cat([bias, hub_bias], dim=2), torch.cat([mask, hubs.mask], dim=1)
        biased = logits.view(batch, latents, self.heads, -1) + bias[:, None]
        weights = softmax_with_silence(biased.masked_fill(~mask[:, None, None, :], -torch.inf)).to(tokens.dtype)
        weights = weights.view(batch, latents * self.heads, -1)
        mixed, first = torch.zeros_like(folded), 0
        for source in sources:
            last = first + source.shape[-2]
            mixed, first = mixed + weights[:, :, first:last] @ source, last
        values = torch.einsum("bqhd,hed->bqhe", mixed.view(batch, latents, self.heads, dim), self.value)
        return values.reshape(batch, latents, dim) @ self.output


def softmax_with_silence(logits: torch.Tensor) -> torch.Tensor:
    """exp(x_i) / (1 + sum_j exp(x_j)) over the last axis, stable; all -inf or no column at all gives zeros."""
    silence = logits.new_zeros((*logits.shape[:-1], 1))
    return torch.softmax(torch.cat([logits, silence], dim=-1), dim=-1)[..., :-1]
