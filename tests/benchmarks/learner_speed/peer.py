"""The same model size in plain PyTorch Geometric: `TransformerConv` from a seed's sampled tokens to the seed.

It gets the very token sets of our step, as a bipartite graph of seeds and tokens: the same content and id look-ups, the
same number of layers, heads and components, an embedding of the same five buckets as edge attribute, a feed-forward
block as wide, the same loss and optimizer. It has no primitives and distils nothing.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import embedding, normalize
from torch_geometric.nn import TransformerConv

from hierarchy.batches import StepInput
from hierarchy.bias import BIAS_ROWS
from hierarchy.candidates import Candidates
from hierarchy.losses.link import sampled_softmax
from hierarchy.model import LinkHead
from hierarchy.seeds import Seeds
from hierarchy.transformer import EncoderShape

_EDGE_DIM = 16


class PlainEncoder(nn.Module):
    """Seeds -> unit vectors by message passing over the edges token -> seed."""

    def __init__(self, shape: EncoderShape, content_columns: int) -> None:
        super().__init__()
        dim = shape.dim
        self.content = nn.Linear(content_columns, dim, bias=False)
        self.ids = nn.Parameter(torch.zeros(shape.id_rows + 1, dim))
        self.buckets = nn.Parameter(torch.randn(BIAS_ROWS, _EDGE_DIM) * 0.1)
        self.convolutions = nn.ModuleList(
            TransformerConv((dim, dim), dim // shape.heads, shape.heads, edge_dim=_EDGE_DIM)
            for _ in range(shape.layers)
        )
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
            for _ in range(shape.layers)
        )

    def forward(self, seeds: Seeds) -> torch.Tensor:
        """Unit vectors (B, d)."""
        tokens = seeds.mask.shape[1]
        state = self._embedded(seeds.content, seeds.id_row)
        seed, place = seeds.mask.nonzero(as_tuple=True)
        around = self._embedded(seeds.token_content, seeds.token_id_row).flatten(0, 1)
        edges = torch.stack([seed * tokens + place, seed])
        about = nn.functional.embedding_bag(seeds.bias[seeds.mask], self.buckets, mode="sum")
        for convolution, block in zip(self.convolutions, self.blocks, strict=True):
            state = state + convolution((around, state), edges, about)
            state = state + block(state)
        return normalize(state, dim=1)

    def _embedded(self, content: torch.Tensor, id_row: torch.Tensor) -> torch.Tensor:
        # A residual that is lent in ours is one that is left out here.
        own = torch.where(id_row < len(self.ids), id_row, 0)
        found: torch.Tensor = self.content(content) + embedding(own, self.ids, padding_idx=0)
        return found


class PlainLearner(nn.Module):
    """Encoder and link head, with the two link losses of ours."""

    def __init__(self, shape: EncoderShape, content_columns: int) -> None:
        super().__init__()
        self.encoder, self.link = PlainEncoder(shape, content_columns), LinkHead(0.1)

    def loss(self, given: StepInput) -> torch.Tensor:
        """User-product and user-advertiser sampled softmax, weighted as ours."""
        users = self.encoder(given.users)[:, None]
        loss = self._link(users, given.products, given.weight)
        if given.advertisers is not None:
            loss = loss + 0.3 * self._link(users, given.advertisers, given.weight * given.owned)
        return loss

    def _link(self, users: torch.Tensor, candidates: Candidates, weights: torch.Tensor) -> torch.Tensor:
        logits = self.link(users, self.encoder(candidates.seeds), candidates.log_degree)
        positive = logits.gather(1, candidates.targets[:, None])[:, 0]
        return sampled_softmax(positive, logits, candidates.log_expected, candidates.accidental, weights)
