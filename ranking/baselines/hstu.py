"""HSTU as a single-stage ranker (Zhai et al., ICML 2024, arXiv:2402.17152): history and candidate as one sequence.

The candidate comes last; it sees the whole history and itself, and no event sees it. Candidates of one visit therefore
share one pass over its history (the paper's M-FALCON), which changes no score. Attention is pointwise,
silu(q k + bias) / N, not a softmax, so that how much of the history matches is kept; N is the greatest length.

Differences from the paper: time bias comes from the octaves of both ages, the only form in which the batch has time,
and the flat fields join at the heads, which are the ranker's.

Letters: B rows, V visits, T history length, h heads, d width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ranking.baselines.fields import Fields
from ranking.batch import NUM_GAPS, Buckets, JaggedBatch
from ranking.heads import Heads
from ranking.reader import Level
from ranking.tokenization import Groups, table

_NOW = NUM_GAPS
"""Row of the candidate in the table of time biases, behind those of the ages."""


@dataclass(frozen=True)
class Context:
    """What all layers share: `gap` (V, T) age octaves, `seen` (V, T) true at events, `groups` of the candidates."""

    gap: Tensor
    seen: Tensor
    groups: Groups


class RelativeBias(nn.Module):
    """A number a head for each distance in the sequence and each pair of age octaves."""

    def __init__(self, max_len: int, num_heads: int) -> None:
        super().__init__()
        self.max_len = max_len
        self.distance = table(max_len + 1, num_heads)
        self.time = table((NUM_GAPS + 1) ** 2, num_heads)

    def history(self, gap: Tensor) -> Tensor:
        """(V, h, T, T) of each event (third) towards each earlier one (fourth)."""
        place = torch.arange(gap.shape[1], device=gap.device)
        distance = self.distance((place[:, None] - place).clamp(0, self.max_len))
        time = self.time(gap[:, :, None] * (NUM_GAPS + 1) + gap[:, None])
        bias: Tensor = (distance + time).permute(0, 3, 1, 2)
        return bias

    def candidate(self, context: Context) -> tuple[Tensor, Tensor]:
        """(V, h, T) of the candidate towards each event, and (h,) towards itself."""
        length = context.seen.sum(1, keepdim=True)
        place = torch.arange(context.seen.shape[1], device=length.device)
        distance = self.distance((length - place).clamp(0, self.max_len))
        time = self.time(_NOW * (NUM_GAPS + 1) + context.gap)
        own = self.distance.weight[0] + self.time.weight[_NOW * (NUM_GAPS + 1) + _NOW]
        return (distance + time).transpose(1, 2), own


class Layer(nn.Module):
    """Projection, spatial aggregation, pointwise transformation (section 3.2), added to the input."""

    def __init__(self, width: int, num_heads: int, max_len: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.length = num_heads, max_len + 1
        self.norm, self.attended_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project = nn.Linear(width, 4 * width)
        self.bias = RelativeBias(max_len, num_heads)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, width)

    def forward(self, past: Tensor, candidate: Tensor, context: Context, last: bool = False) -> tuple[Tensor, Tensor]:
        """past (V, T, d) and candidates (B, d), each one layer on; the past stays as it is where nobody reads on."""
        gate, value, query, key = self._project(past)
        own_gate, own_value, own_query, own_key = (part[:, :, 0] for part in self._project(candidate.unsqueeze(1)))
        groups = context.groups
        toward, itself = self.bias.candidate(context)
        packed = groups.pack(own_query.flatten(1).unsqueeze(1))
        asked = packed.view(*packed.shape[:2], self.num_heads, -1).transpose(1, 2)
        scores = asked @ key[groups.visit].transpose(2, 3) + toward[groups.visit].unsqueeze(2)
        weight = F.silu(scores) * context.seen[groups.visit][:, None, None]
        read = groups.unpack((weight @ value[groups.visit]).transpose(1, 2).flatten(2)).squeeze(1)
        alone = F.silu((own_query * own_key).sum(-1) + itself).unsqueeze(-1) * own_value
        candidate = candidate + self._transform(read + alone.flatten(1), own_gate.flatten(1))
        if last:
            return past, candidate
        heard = self._causal(query, key, value, context)
        return past + self._transform(heard, gate.transpose(1, 2).flatten(2)), candidate

    def _project(self, x: Tensor) -> tuple[Tensor, ...]:
        """(n, T, d) -> U, V, Q, K, each (n, h, T, d / h)."""
        parts = F.silu(self.project(self.norm(x))).view(*x.shape[:2], 4, self.num_heads, -1)
        found: tuple[Tensor, ...] = parts.permute(2, 0, 3, 1, 4).unbind(0)
        return found

    def _causal(self, query: Tensor, key: Tensor, value: Tensor, context: Context) -> Tensor:
        """(V, T, d): each event over itself and the earlier ones."""
        scores = query @ key.transpose(2, 3) + self.bias.history(context.gap)
        weight = (F.silu(scores) * context.seen[:, None, None]).tril()
        return (weight @ value).transpose(1, 2).flatten(2)

    def _transform(self, attended: Tensor, gate: Tensor) -> Tensor:
        transformed: Tensor = self.out(self.dropout(self.attended_norm(attended / self.length) * gate))
        return transformed


class HSTU(nn.Module):
    """Logits of both tasks from the candidate's last state, the candidate, and flat fields."""

    def __init__(
        self,
        buckets: Buckets,
        content_dim: int,
        max_len: int,
        width: int = 32,
        num_blocks: int = 2,
        num_heads: int = 2,
        dropout: float = 0.1,
        levels: tuple[Level, ...] = (),
    ) -> None:
        super().__init__()
        self.fields = Fields(buckets, content_dim, width, levels)
        self.layers = nn.ModuleList(Layer(width, num_heads, max_len, dropout) for _ in range(num_blocks))
        self.last = nn.LayerNorm(width)
        self.heads = Heads(self.fields.size + 2 * width, 2 * width, dropout)

    def forward(self, batch: JaggedBatch) -> tuple[Tensor, Tensor]:
        """(immediate, deep) logits, each (B,)."""
        items = self.fields.items(batch)
        history = batch.history
        past = history.with_values(self.fields.events(batch, items)).to_padded()
        gap = history.with_values(batch.history_gap).to_padded().long()
        context = Context(gap, history.mask(), Groups.of(batch.visit))
        offered = state = items[batch.candidate]
        for number, layer in enumerate(self.layers, start=1):
            past, state = layer(past, state, context, last=number == len(self.layers))
        immediate, deep = self.heads(torch.cat([self.last(state), offered, self.fields.flat(batch)], dim=1))
        return immediate, deep
