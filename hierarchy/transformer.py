"""The encoder: an anchored graph transformer from seeds and their token sets to unit vectors of one space.

It starts as the content-only baseline: content goes through an identity map, while node types and every residual branch
start at zero, and id residuals at zero or where closed-form views put them (hierarchy.structure). What it learns is
therefore a correction of content, which keeps cold entities sensible. An id residual has two roles, as in factored item
similarity models (Kabbur et al., 2013): one as a token, a thing that was there, and one as a seed, a thing to be found.
Primitives join as hub tokens, so two layers reach entities at any graph distance through a primitive.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import dropout, normalize

from encoders.fuse import GatedFusion
from graph.store import NODE_TYPES
from hierarchy.attention import LatentAttention
from hierarchy.bias import BiasTables, HubBias
from hierarchy.lookup import rows_of
from hierarchy.prototypes import Hubs, Prototypes
from hierarchy.seeds import Seeds


@dataclass(frozen=True)
class EncoderShape:
    """Sizes that fix the encoder's parameters; stored beside the weights.

    content_dim D, dim d, layers, heads, id_rows (rows of the id residual table, without the empty row 0), user_heads
    (vectors per user), num_levels (of primitives), gate (name and untrained weight of each modality whose parts are
    fused here; empty: content comes fused), bias_off (attention biases that stay zero), dropout (chance that a
    component of a token or of a layer's answer is left out of a training step).
    """

    content_dim: int
    dim: int
    layers: int
    heads: int
    id_rows: int
    user_heads: int
    num_levels: int
    gate: tuple[tuple[str, float], ...] = ()
    bias_off: tuple[str, ...] = ()
    dropout: float = 0.0


class InterestEncoder(nn.Module):
    """Seeds -> unit vectors; each row depends on its own seed and tokens only."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.shape = shape
        self.content = nn.Parameter(torch.eye(shape.content_dim, shape.dim))
        self.gate = GatedFusion(shape.content_dim, [weight for _, weight in shape.gate]) if shape.gate else None
        self.types = nn.Parameter(torch.zeros(len(NODE_TYPES), shape.dim))
        self.source_ids = nn.Parameter(torch.zeros(shape.id_rows + 1, shape.dim))
        self.target_ids = nn.Parameter(torch.zeros(shape.id_rows + 1, shape.dim))
        self.bias = BiasTables(1 + shape.layers * shape.heads, shape.bias_off)
        self.latents = nn.Parameter(torch.randn(shape.user_heads, shape.dim) * 0.1)
        self.nowhere = nn.Parameter(torch.full((shape.dim,), shape.dim**-0.5))
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))

    def forward(
        self,
        seeds: Seeds,
        prototypes: Prototypes | None = None,
        latents: int = 1,
        loans: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Unit vectors (B, `latents`, d). `latents` <= user_heads: 1 for everything but users with several heads.

        `loans`: more rows of the source and of the target residuals, which rows past the tables' own stand for.
        """
        sources: torch.Tensor = self.source_ids
        targets: torch.Tensor = self.target_ids
        if loans is not None:
            sources, targets = torch.cat([sources, loans[0]]), torch.cat([targets, loans[1]])
        tokens = _rounded(self.embed(seeds.token_content, seeds.token_id_row, sources))
        tokens = dropout(tokens, self.shape.dropout, self.training)
        for_history, *for_layers = self.bias(seeds.bias).split([1] + [self.shape.heads] * self.shape.layers, dim=1)
        own = self.embed(seeds.content, seeds.id_row, targets)
        state = self._query(seeds, own, tokens, for_history)[:, None, :].expand(-1, latents, -1)
        for layer, bias in zip(self.layers, for_layers, strict=True):
            hubs = prototypes.hubs(normalize(state.detach().mean(dim=1), dim=1)) if prototypes else None
            state = layer(state, self.latents[:latents], tokens, bias, seeds.mask, hubs)
        return self._unit(state)

    def embed(self, content: torch.Tensor, id_row: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Vectors (..., d) of content with type columns (..., Dx) and rows (...) of the residuals `ids` of a role."""
        if self.gate is not None:
            content = self._fused(self.gate, content)
        return content @ torch.cat([self.content, self.types]) + rows_of(ids, id_row)

    def _fused(self, gate: GatedFusion, content: torch.Tensor) -> torch.Tensor:
        """Content with type columns (..., D + 5) of parts, presence and type columns."""
        modalities, dim = len(self.shape.gate), self.shape.content_dim
        widths = [modalities * dim, modalities, len(NODE_TYPES)]
        parts, present, types = torch.split(content, widths, dim=-1)
        return torch.cat([gate(parts.reshape(*present.shape, dim), present), types], dim=-1)

    def _query(self, seeds: Seeds, own: torch.Tensor, tokens: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """What a seed is before attention (B, d), unit: its history's weighted mean, or itself when it has none."""
        # On a GPU the answer to whether anybody has a history would have to be waited for.
        if tokens.shape[1] == 0 or (seeds.history.device.type == "cpu" and not seeds.history.any()):
            return self._unit(own)
        known = seeds.history.any(dim=1, keepdim=True)
        logits = bias[:, 0].masked_fill(~seeds.history, -torch.inf).masked_fill(~known, 0.0)
        mean = torch.bmm(torch.softmax(logits, dim=1)[:, None, :], tokens)[:, 0]
        return self._unit(torch.where(known, mean, own))

    def _unit(self, state: torch.Tensor) -> torch.Tensor:
        """Norm 1; a state of zeros, of an entity nothing is known about, becomes the learned direction `nowhere`."""
        norm = state.norm(dim=-1, keepdim=True)
        known = norm > 1e-6
        return torch.where(known, state / torch.where(known, norm, 1.0), normalize(self.nowhere, dim=0))


def _rounded(tokens: torch.Tensor) -> torch.Tensor:
    """Tokens in the precision that products will round them to under autocast: once, and not at each of their uses."""
    kind = tokens.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return tokens.to(torch.get_autocast_dtype(kind)) if on else tokens


class Layer(nn.Module):
    """Attention to tokens and hubs, then a feed-forward block; both add zero at the start (pre-norm residuals)."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.dropout = shape.dropout
        self.hub_bias = HubBias(shape.num_levels, shape.heads, shape.bias_off)
        self.attention = LatentAttention(shape.dim, shape.heads)
        self.before_attention, self.before_mlp = nn.LayerNorm(shape.dim), nn.LayerNorm(shape.dim)
        self.widen = nn.Linear(shape.dim, 2 * shape.dim)
        self.narrow = nn.Linear(2 * shape.dim, shape.dim)
        nn.init.zeros_(self.narrow.weight)
        nn.init.zeros_(self.narrow.bias)

    def forward(
        self,
        state: torch.Tensor,
        latents: torch.Tensor,
        tokens: torch.Tensor,
        bias: torch.Tensor,
        mask: torch.Tensor,
        hubs: Hubs | None,
    ) -> torch.Tensor:
        """New state (B, Q, d) from state (B, Q, d), latents (Q, d), tokens (B, T, d) and hub tokens."""
        hub_bias = None if hubs is None else self.hub_bias(hubs.level, hubs.log_mass)
        query = self.before_attention(state) + latents
        attended = self.attention(query, tokens, bias, mask, hubs, hub_bias)
        state = state + dropout(attended, self.dropout, self.training)
        widened: torch.Tensor = self.narrow(nn.functional.gelu(self.widen(self.before_mlp(state))))
        return state + dropout(widened, self.dropout, self.training)
