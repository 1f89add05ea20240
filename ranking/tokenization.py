"""Dense tokenization: a batch becomes query tokens (what is offered) and memory tokens (who is looking).

Letters: B rows, V visits, I products, L levels, S slots, H history length, k states of a user, d width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ranking import interest_history
from ranking.batch import NUM_EVENT_TYPES, NUM_GAPS, Buckets, JaggedBatch
from ranking.numbers import CROSSES, NUM_STEPS, NUMBERS, table_size
from ranking.reader import Level

OVERLAP_SCALE = 1000.0
"""Overlaps count from a thousandth up: those of fine levels are small."""

GROUP = 4
"""Rows of one visit that read its memory together."""


@dataclass(frozen=True)
class Groups:
    """Rows of the same visit side by side, GROUP at a time: `visit` (G,) of each group, `place` (B,) of each row."""

    visit: Tensor
    place: Tensor

    @classmethod
    def of(cls, visit: Tensor) -> Groups:
        """Group the rows of `visit` (B,)."""
        order = torch.argsort(visit, stable=True)
        rows = torch.bincount(visit)
        groups = (rows + GROUP - 1) // GROUP
        first_row, first_group = rows.cumsum(0) - rows, groups.cumsum(0) - groups
        place = torch.empty_like(visit)
        at = visit[order]
        place[order] = GROUP * first_group[at] + torch.arange(len(visit)) - first_row[at]
        return cls(torch.repeat_interleave(torch.arange(len(rows)), groups), place)

    def pack(self, rows: Tensor) -> Tensor:
        """(B, Q, d) -> (G, GROUP Q, d), zeros where a group is not full."""
        packed = rows.new_zeros(len(self.visit) * GROUP, *rows.shape[1:])
        return packed.index_copy(0, self.place, rows).view(len(self.visit), -1, rows.shape[-1])

    def unpack(self, packed: Tensor) -> Tensor:
        """The inverse of `pack`: (G, GROUP Q, d) -> (B, Q, d)."""
        return packed.view(len(self.visit) * GROUP, -1, packed.shape[-1])[self.place]


@dataclass(frozen=True)
class Tokens:
    """`query` (B, Q, d); `memory` (V, M, d) with attention `bias` (V, M), -inf at padding; `groups` tie them.

    `fields` (B, n): embedded counts, ages and overlaps, which the heads also cross directly.
    """

    query: Tensor
    fields: Tensor
    memory: Tensor
    bias: Tensor
    groups: Groups


def overlap(slots: Tensor, weight: Tensor, other: Tensor, other_weight: Tensor, levels: tuple[Level, ...]) -> Tensor:
    """(B, L): per level, the sum over primitives of w * w' of two bags (B, S); absent slots (0) match nothing."""
    found = []
    for level in levels:
        mine, theirs = slots[:, level.start : level.stop], other[:, level.start : level.stop]
        same = (mine[:, :, None] == theirs[:, None, :]) & (mine > 0)[:, :, None]
        product = weight[:, level.start : level.stop, None] * other_weight[:, None, level.start : level.stop]
        found.append((product * same).sum(dim=(1, 2)))
    return torch.stack(found, dim=1) if found else slots.new_zeros((len(slots), 0), dtype=torch.float32)


def overlaps(batch: JaggedBatch, levels: tuple[Level, ...]) -> Tensor:
    """(B, 2 L): `overlap` of the user's bag with the product's, then with the advertiser's."""
    mine = batch.user_slots[batch.visit], batch.user_weight[batch.visit]
    bags = ((batch.product_slots, batch.product_weight), (batch.advertiser_slots, batch.advertiser_weight))
    return torch.cat([overlap(*mine, *bag, levels) for bag in bags], dim=1)


def overlap_steps(batch: JaggedBatch, levels: tuple[Level, ...]) -> Tensor:
    """(B, 2 L): the same in half-octaves, as rows of one table of 2 L NUM_STEPS rows."""
    step = half_octaves(OVERLAP_SCALE * overlaps(batch, levels))
    return step + NUM_STEPS * torch.arange(step.shape[1], device=step.device)


def level_means(vectors: Tensor, slots: Tensor, weight: Tensor, levels: tuple[Level, ...]) -> Tensor:
    """(n, L, d): weighted mean of the `vectors` (n, S, d) of the slots (n, S) of each level; absent slots (0) are 0."""
    weighted = vectors * (weight * (slots > 0)).unsqueeze(-1)
    means = [weighted[:, level.start : level.stop].sum(1) for level in levels]
    return torch.stack(means, 1) if means else weighted.new_zeros(len(slots), 0, weighted.shape[-1])


class Tokenizer(nn.Module):
    """Embeds a batch. One primitive table serves user, product and advertiser, so that equal interests match."""

    def __init__(
        self,
        width: int,
        buckets: Buckets,
        levels: tuple[Level, ...],
        content_dim: int,
        state_shape: tuple[int, int],
    ) -> None:
        super().__init__()
        num_states, state_width = state_shape
        self.levels = levels
        self.num_query = 2 + 2 * len(levels)
        self.product = table(buckets.product, width)
        self.advertiser = table(buckets.advertiser, width)
        self.category = table(buckets.category, width)
        self.user = table(buckets.user, width)
        self.surface = table(buckets.surface, width)
        self.primitive = table(1 + sum(level.size for level in levels), width)
        self.hour = table(24, width)
        self.weekday = table(7, width)
        self.event_type = table(NUM_EVENT_TYPES, width)
        self.gap = table(NUM_GAPS, width)
        self.content = nn.Linear(content_dim, width)
        self.user_states = nn.Linear(state_width, width)
        self.seed = nn.Parameter(0.02 * torch.randn(num_states, width))
        self.numbers = table(table_size(), width // 2)
        self.overlaps = table(2 * len(levels) * NUM_STEPS, width // 2)
        self.interest_numbers = table(interest_history.table_size(levels), width // 2)
        of_interests = 2 * len(levels) + interest_history.columns_of(levels)
        self.num_fields = (len(NUMBERS) + len(CROSSES) + of_interests) * (width // 2)
        self.fields = nn.Linear(self.num_fields, width)
        self.level = nn.Parameter(0.02 * torch.randn(max(1, len(levels)), width))
        self.role = nn.Parameter(0.02 * torch.randn(self.num_query, width))
        self.item_norm = nn.LayerNorm(width)

    def forward(self, batch: JaggedBatch) -> Tokens:
        """Tokens of a batch; every memory row holds at least its user's id token."""
        items = self._items(batch)
        memory, bias = self._memory(batch, items)
        fields = self._fields(batch)
        return Tokens(self._query(batch, items, fields), fields, memory, bias, Groups.of(batch.visit))

    def _items(self, batch: JaggedBatch) -> Tensor:
        """(I, d): id, advertiser, category path and content of each distinct product."""
        path = (batch.item_category > 0).unsqueeze(-1)
        category = (self.category(batch.item_category) * path).sum(1)
        ids = self.product(batch.item_product) + self.advertiser(batch.item_advertiser)
        items: Tensor = self.item_norm(ids + category + self.content(batch.item_content))
        return items

    def _query(self, batch: JaggedBatch, items: Tensor, fields: Tensor) -> Tensor:
        """(B, Q, d): the candidate, its interests and its advertiser's by level, the context."""
        product = self._bags(batch.product_slots, batch.product_weight)
        advertiser = self._bags(batch.advertiser_slots, batch.advertiser_weight)
        context = (
            self.surface(batch.surface) + self.hour(batch.hour) + self.weekday(batch.weekday) + self.fields(fields)
        )
        tokens = [items[batch.candidate].unsqueeze(1), product, advertiser, context.unsqueeze(1)]
        return torch.cat(tokens, dim=1) + self.role

    def _bags(self, slots: Tensor, weight: Tensor) -> Tensor:
        """(B, L, d): weighted mean of the primitives of each level."""
        return level_means(self.primitive(slots), slots, weight, self.levels)

    def _fields(self, batch: JaggedBatch) -> Tensor:
        """(B, n): each stepped number, the overlap of the user's bag with the product's and the advertiser's, and how
        the user dealt with the product's interests."""
        shared = self.overlaps(overlap_steps(batch, self.levels)).flatten(1)
        dealt = self.interest_numbers(batch.interest_numbers).flatten(1)
        return torch.cat([self.numbers(batch.numbers).flatten(1), shared, dealt], dim=1)

    def _memory(self, batch: JaggedBatch, items: Tensor) -> tuple[Tensor, Tensor]:
        """(V, M, d) and (V, M): history, the user's states, id and primitives (log weight as attention bias)."""
        history = batch.history
        events = items[history.values] + self.event_type(batch.history_type) + self.gap(batch.history_gap)
        past = history.with_values(events).to_padded()
        interests = self.primitive(batch.user_slots) + self._slot_levels()
        states = self.user_states(batch.user_states) + self.seed
        memory = torch.cat([past, states, self.user(batch.user).unsqueeze(1), interests], dim=1)
        seen = torch.zeros(history.mask().shape).masked_fill(~history.mask(), -torch.inf)
        weight = torch.log(batch.user_weight.clamp_min(1e-6)).masked_fill(batch.user_slots == 0, -torch.inf)
        made = torch.zeros(states.shape[:2]).masked_fill(~batch.has_states[:, None], -torch.inf)
        return memory, torch.cat([seen, made, torch.zeros(len(memory), 1), weight], dim=1)

    def _slot_levels(self) -> Tensor:
        """(S, d): the level embedding of each slot."""
        rows = [number for number, level in enumerate(self.levels) for _ in range(level.start, level.stop)]
        return self.level[torch.tensor(rows, dtype=torch.int64)]


def half_octaves(values: Tensor) -> Tensor:
    """int64: the step of each value >= 0, as in `ranking.numbers`."""
    return torch.floor(2 * torch.log2(1 + values)).long().clamp(0, NUM_STEPS - 1)


def table(rows: int, width: int) -> nn.Embedding:
    """An embedding table of small random rows; rows that no example touches then say little."""
    embedding = nn.Embedding(rows, width)
    nn.init.normal_(embedding.weight, std=0.05)
    return embedding
