"""What a network without tokenization reads of a batch: products, history events, and flat fields of each row.

Letters: B rows, V visits, I products, L levels of interest tokens, d width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ranking import interest_history
from ranking.batch import NUM_EVENT_TYPES, NUM_GAPS, Buckets, JaggedBatch
from ranking.numbers import CROSSES, NUM_STEPS, NUMBERS, table_size
from ranking.reader import Level
from ranking.tokenization import level_means, overlap_steps, table


class Interests(nn.Module):
    """Interest tokens as flat fields: the mean primitive of user, product and advertiser by level, and overlaps.

    The table and the overlaps are those of the ranker's tokenization, so an arm of a baseline reads what an arm of the
    ranker reads.
    """

    def __init__(self, levels: tuple[Level, ...], width: int) -> None:
        super().__init__()
        self.levels = levels
        self.primitive = table(1 + sum(level.size for level in levels), width)
        self.overlaps = table(2 * len(levels) * NUM_STEPS, width)
        self.interest_numbers = table(interest_history.table_size(levels), width)
        self.size = (5 * len(levels) + interest_history.columns_of(levels)) * width

    def forward(self, batch: JaggedBatch) -> Tensor:
        """(B, size): 10 L d."""
        bags = (
            (batch.user_slots[batch.visit], batch.user_weight[batch.visit]),
            (batch.product_slots, batch.product_weight),
            (batch.advertiser_slots, batch.advertiser_weight),
        )
        means = [level_means(self.primitive(slots), slots, weight, self.levels).flatten(1) for slots, weight in bags]
        shared = self.overlaps(overlap_steps(batch, self.levels)).flatten(1)
        return torch.cat([*means, shared, self.interest_numbers(batch.interest_numbers).flatten(1)], dim=1)


class Fields(nn.Module):
    """Embeds ids, categories, content, context, counts and ages; `levels` = () leaves interest tokens out."""

    def __init__(self, buckets: Buckets, content_dim: int, width: int, levels: tuple[Level, ...] = ()) -> None:
        super().__init__()
        sizes = {
            "product": buckets.product,
            "advertiser": buckets.advertiser,
            "category": buckets.category,
            "user": buckets.user,
            "surface": buckets.surface,
            "hour": 24,
            "weekday": 7,
            "event_type": NUM_EVENT_TYPES,
            "gap": NUM_GAPS,
        }
        self.tables = nn.ModuleDict({name: table(rows, width) for name, rows in sizes.items()})
        # Numbers are many: half as wide as ids, as in the ranker.
        self.numbers = table(table_size(), width // 2)
        self.content = nn.Linear(content_dim, width)
        self.item_norm = nn.LayerNorm(width)
        self.interests = Interests(levels, width // 2) if levels else None
        of_interests = self.interests.size if self.interests else 0
        self.size = 4 * width + (len(NUMBERS) + len(CROSSES)) * (width // 2) + of_interests

    def items(self, batch: JaggedBatch) -> Tensor:
        """(I, d): id, advertiser, category path and content of each distinct product."""
        tables = self.tables
        path = tables["category"](batch.item_category) * (batch.item_category > 0).unsqueeze(-1)
        ids = tables["product"](batch.item_product) + tables["advertiser"](batch.item_advertiser)
        items: Tensor = self.item_norm(ids + path.sum(1) + self.content(batch.item_content))
        return items

    def events(self, batch: JaggedBatch, items: Tensor) -> Tensor:
        """(total, d): each history event as its product, its type and its age."""
        tables = self.tables
        events: Tensor = (
            items[batch.history.values] + tables["event_type"](batch.history_type) + tables["gap"](batch.history_gap)
        )
        return events

    def flat(self, batch: JaggedBatch) -> Tensor:
        """(B, size): user, surface, hour, weekday, each number, and the interest tokens if there are levels."""
        tables = self.tables
        fields = [
            tables["user"](batch.user)[batch.visit],
            tables["surface"](batch.surface),
            tables["hour"](batch.hour),
            tables["weekday"](batch.weekday),
            self.numbers(batch.numbers).flatten(1),
        ]
        return torch.cat(fields if self.interests is None else [*fields, self.interests(batch)], dim=1)


def pairs(batch: JaggedBatch) -> tuple[Tensor, Tensor]:
    """(P,) rows and (P,) places among the history values: every row with every event of its visit, row by row."""
    lengths, offsets = batch.history.lengths[batch.visit], batch.history.offsets[batch.visit]
    row = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    first = lengths.cumsum(0) - lengths
    return row, torch.arange(len(row), device=row.device) - first[row] + offsets[row]
