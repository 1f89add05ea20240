"""The offline user model: a deep causal transformer over a long event history, pooled by seeds into a few states.

Blocks are pre-norm with rotary positions (Su et al., 2021); pooling is that of the Set Transformer (Lee et al., ICML
2019). It reads what a user did and nothing of an ad or its context, so its states can be made ahead and kept.

Letters: U users, N events end to end, P pools, T longest history, h heads, k seeds, d width, V primitives, C items.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from data.context import StageConfig
from ranking.batch import NUM_EVENT_TYPES, NUM_GAPS
from ranking.tokenization import table
from ranking.user_attention import causal_attention, rotary_angles, rotate
from ranking.user_events import NUM_USER_GAPS, EventBatch, Items

_STEEPEST = 2.0
"""Nats that a seed's attention loses at most with each doubling of an event's age, before training."""


class UserArchitecture(StageConfig):
    """Size of the user model."""

    width: int = Field(default=32, ge=2, multiple_of=2, description="width of an event and of a state [components]")
    layers: int = Field(default=2, ge=1, description="causal blocks")
    heads: int = Field(default=2, ge=1, description="attention heads; width must be an even multiple of them")
    seeds: int = Field(default=4, ge=1, description="states a user has (k)")
    max_events: int = Field(default=512, ge=2, description="newest events of a user that are read [count]")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="dropout of what a block adds, in training [share]")
    product_buckets: int = Field(default=32_768, ge=2, description="rows of the hashed product table")
    advertiser_buckets: int = Field(default=8_192, ge=2, description="rows of the hashed advertiser table")


@dataclass(frozen=True)
class Pools:
    """Whom to pool and when: the user `row` (P,), and the first events of that user that `there` bool (P, T) marks.

    `age` int64 (P, T) is the bucket of the time from each event to the pool's date.
    """

    row: Tensor
    age: Tensor
    there: Tensor


class CausalBlock(nn.Module):
    """x + attention(norm x), then x + feed-forward(norm x): an event reads itself and what came before it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.mixed = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.ffn = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, offsets: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """(N, d) -> (N, d); `angles` are those of the events' places in their rows, which `offsets` (U + 1,) part."""
        query, key, value = self.mixed(self.norm(x)).view(len(x), 3, self.heads, -1).unbind(1)
        seen = causal_attention(rotate(query, angles), rotate(key, angles), value, offsets)
        x = x + self.dropout(self.out(seen.flatten(1)))
        added: Tensor = x + self.dropout(self.ffn(x))
        return added


class SeedPooling(nn.Module):
    """k learned seeds attend over a user's causal states (PMA); the age of an event at the pool's date adds a bias.

    Biases start as slopes over the octaves of age, from none for the first seed, which reads all events alike, to
    _STEEPEST for the last, which reads the newest (as the slopes of ALiBi part the heads; Press et al., ICLR 2022).
    """

    def __init__(self, width: int, heads: int, seeds: int) -> None:
        super().__init__()
        self.heads = heads
        self.seeds = nn.Parameter(torch.randn(seeds, width) / width**0.5)
        self.norm = nn.LayerNorm(width)
        self.query, self.memory = nn.Linear(width, width), nn.Linear(width, 2 * width)
        slopes = torch.linspace(0.0, _STEEPEST, seeds)
        self.age = nn.Parameter(-torch.arange(NUM_GAPS)[:, None, None] * slopes[:, None].expand(seeds, heads))
        self.out = nn.Linear(width, width)
        self.ffn = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.last = nn.LayerNorm(width)

    def forward(self, x: Tensor, offsets: Tensor, pools: Pools) -> Tensor:
        """(N, d) -> (P, k, d); every pool reads one event at least."""
        place = offsets[pools.row, None] + torch.arange(pools.there.shape[1], device=x.device)
        key, value = self.memory(self.norm(x)).view(len(x), 2, self.heads, -1).unbind(1)
        place = torch.where(pools.there, place, offsets[pools.row, None])
        query = self.query(self.seeds).view(1, len(self.seeds), self.heads, -1).transpose(1, 2)
        bias = self.age[pools.age].permute(0, 3, 2, 1).masked_fill(~pools.there[:, None, None], -torch.inf)
        query = query.expand(len(place), -1, -1, -1)
        key, value = key[place].transpose(1, 2), value[place].transpose(1, 2)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        states = self.seeds + self.out(seen.transpose(1, 2).flatten(2))
        pooled: Tensor = self.last(states + self.ffn(states))
        return pooled


class UserModel(nn.Module):
    """Causal states of events, pooled states of users, and the heads that both are trained through.

    `num_primitives` rows of interests beside row 0 for none; `levels` are the (start, stop) rows of each level.
    """

    def __init__(self, size: UserArchitecture, num_primitives: int, levels: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        width = size.width
        self.levels, self.heads = levels, size.heads
        self.product = table(size.product_buckets, width)
        self.advertiser = table(size.advertiser_buckets, width)
        self.primitive = table(1 + num_primitives, width)
        self.kind = table(NUM_EVENT_TYPES, width)
        self.gap = table(NUM_USER_GAPS, width)
        self.blocks = nn.ModuleList(CausalBlock(width, size.heads, size.dropout) for _ in range(size.layers))
        self.last = nn.LayerNorm(width)
        self.pooling = SeedPooling(width, size.heads, size.seeds)
        self.merge = nn.Linear(size.seeds * width, width)
        self.next_item, self.next_interest = nn.Linear(width, width), nn.Linear(width, width)
        self.interest_bias = nn.Parameter(torch.zeros(num_primitives))

    def items(self, items: Items) -> Tensor:
        """(n, d): hashed id, advertiser, and per level the weighted mean of the primitives."""
        slots = items.slots
        mean = F.embedding_bag(
            slots.primitive, self.primitive.weight, slots.offsets[:-1], mode="sum", per_sample_weights=slots.share
        )
        known: Tensor = self.product(items.product) + self.advertiser(items.advertiser) + mean
        return known

    def events(self, batch: EventBatch) -> Tensor:
        """(N, d): the causal state of each event."""
        x = self.items(batch.items) + self.kind(batch.kind) + self.gap(batch.gap)
        place = torch.arange(len(x), device=x.device) - torch.repeat_interleave(
            batch.offsets[:-1], batch.offsets.diff()
        )
        angles = rotary_angles(place, x.shape[1] // self.heads)
        for block in self.blocks:
            x = block(x, batch.offsets, angles)
        states: Tensor = self.last(x)
        return states

    def pool(self, states: Tensor, batch: EventBatch, pools: Pools) -> Tensor:
        """(P, k, d): the states of users at dates."""
        pooled: Tensor = self.pooling(states, batch.offsets, pools)
        return pooled

    def merged(self, pooled: Tensor) -> Tensor:
        """(P, k, d) -> (P, d): what the heads read of pooled states, in training only."""
        one: Tensor = self.merge(pooled.flatten(1))
        return one

    def interest_logs(self, states: Tensor) -> Tensor:
        """(n, d) -> (n, V): log probability of each primitive within its level."""
        logits = self.next_interest(states) @ self.primitive.weight[1:].T + self.interest_bias
        parts = [logits[:, start - 1 : stop - 1].log_softmax(1) for start, stop in self.levels]
        return torch.cat(parts, dim=1) if parts else logits
