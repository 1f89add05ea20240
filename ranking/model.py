"""The target-aware ranker: what is offered attends to who is looking, in two blocks, then two heads.

Letters: B rows, V visits, Q query tokens, M memory tokens, h heads, d width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ranking.batch import Buckets, JaggedBatch
from ranking.heads import Heads
from ranking.reader import Level
from ranking.tokenization import Tokenizer, Tokens
from ranking.wide import Wide


class TargetAttention(nn.Module):
    """Query tokens attend to the memory of their visit (cf. DIN, Zhou et al., KDD 2018), and to each other."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query_norm, self.memory_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.memory = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.peers = nn.Linear(width, 3 * width)
        self.out = nn.Linear(2 * width, width)

    def forward(self, query: Tensor, tokens: Tokens) -> Tensor:
        """(B, Q, d) -> (B, Q, d). Memory is projected once a visit and read once a group of rows."""
        normed = self.query_norm(query)
        key, value = self._split(self.memory(self.memory_norm(tokens.memory)), 2)
        if len(tokens.memory) == 1:
            both = [self._one_visit(self.query(normed), key, value, tokens.bias), self._in_pairs(self.peers(normed))]
        else:
            group = tokens.groups
            (asked,) = self._split(group.pack(self.query(normed)), 1)
            bias = tokens.bias[group.visit][:, None, None]
            seen = F.scaled_dot_product_attention(asked, key[group.visit], value[group.visit], attn_mask=bias)
            both = [group.unpack(_merge(seen)), self._among(self.peers(normed))]
        attended: Tensor = self.out(torch.cat(both, dim=-1))
        return attended

    def _one_visit(self, asked: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """(B, Q, d): a visit that has the batch to itself, as in serving, is read in place by all rows at once."""
        (query,) = self._split(asked.reshape(1, -1, asked.shape[-1]), 1)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=bias[:, None, None])
        return _merge(seen).view_as(asked)

    def _among(self, projected: Tensor, mask: Tensor | None = None) -> Tensor:
        """(n, T, 3 d) -> (n, T, d): the tokens of each row attend to each other."""
        own, key, value = self._split(projected, 3)
        return _merge(F.scaled_dot_product_attention(own, key, value, attn_mask=mask))

    def _in_pairs(self, projected: Tensor) -> Tensor:
        """The same two rows at a time, each blind to the other: so few tokens cost less together than apart."""
        rows, num_query, width = projected.shape
        even = projected if rows % 2 == 0 else torch.cat([projected, projected[-1:]])
        blind = projected.new_full((2, num_query, 2, num_query), -torch.inf)
        blind[0, :, 0] = blind[1, :, 1] = 0
        pairs = self._among(even.view(-1, 2 * num_query, width), blind.view(2 * num_query, -1))
        return pairs.reshape(len(even), num_query, -1)[:rows]

    def _split(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        """(n, T, parts d) -> parts of (n, h, T, d / h)."""
        heads = x.view(*x.shape[:2], parts, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        return heads.unbind(0)


def _merge(x: Tensor) -> Tensor:
    """(n, h, T, d / h) -> (n, T, d)."""
    return x.transpose(1, 2).flatten(2)


class PerTokenFFN(nn.Module):
    """A feed-forward layer with weights of its own for each query token (RankMixer, arXiv 2507.15551)."""

    def __init__(self, num_query: int, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Parameter(torch.randn(num_query, width, 2 * width) / width**0.5)
        self.up_bias = nn.Parameter(torch.zeros(num_query, 1, 2 * width))
        self.down = nn.Parameter(torch.randn(num_query, 2 * width, width) / (2 * width) ** 0.5)
        self.down_bias = nn.Parameter(torch.zeros(num_query, 1, width))

    def forward(self, query: Tensor) -> Tensor:
        """(B, Q, d) -> (B, Q, d)."""
        by_token = self.norm(query).transpose(0, 1)
        hidden = F.gelu(torch.baddbmm(self.up_bias, by_token, self.up))
        return torch.baddbmm(self.down_bias, hidden, self.down).transpose(0, 1)


class Block(nn.Module):
    """Target-aware attention, then the per-token layer, each added to its input."""

    def __init__(self, num_query: int, width: int, num_heads: int) -> None:
        super().__init__()
        self.attention = TargetAttention(width, num_heads)
        self.ffn = PerTokenFFN(num_query, width)

    def forward(self, query: Tensor, tokens: Tokens) -> Tensor:
        """(B, Q, d) -> (B, Q, d)."""
        query = query + self.attention(query, tokens)
        attended: Tensor = query + self.ffn(query)
        return attended


class Ranker(nn.Module):
    """Logits of `immediate` (bought on the visit) and `deep` (bought again, given bought), each (B,).

    `state_shape` (k, d) is that of a user's offline states.
    """

    def __init__(
        self,
        buckets: Buckets,
        levels: tuple[Level, ...],
        content_dim: int,
        state_shape: tuple[int, int],
        width: int = 32,
        num_blocks: int = 2,
        num_heads: int = 2,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.tokenizer = Tokenizer(width, buckets, levels, content_dim, state_shape)
        num_query = self.tokenizer.num_query
        self.blocks = nn.ModuleList(Block(num_query, width, num_heads) for _ in range(num_blocks))
        self.wide = Wide(buckets, content_dim, width // 2)
        self.heads = Heads(num_query * width + self.tokenizer.num_fields + self.wide.size, 2 * width, dropout)

    def forward(self, batch: JaggedBatch) -> tuple[Tensor, Tensor]:
        """(immediate, deep) logits on the sampled rows' scale."""
        tokens = self.tokenizer(batch)
        query = tokens.query
        for block in self.blocks:
            query = block(query, tokens)
        immediate, deep = self.heads(torch.cat([query.flatten(1), tokens.fields, self.wide(batch)], dim=1))
        return immediate, deep
