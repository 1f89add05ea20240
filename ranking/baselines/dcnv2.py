"""DCN-V2 (Wang et al., WWW 2021) on all features, with the history as its mean; interest tokens where asked for.

It has the ranker's heads, so the two differ in what feeds these: fields side by side, or tokens that attended.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ranking.baselines.fields import Interests
from ranking.batch import Buckets, JaggedBatch
from ranking.heads import Heads
from ranking.numbers import CROSSES, NUMBERS, table_size
from ranking.reader import Level
from ranking.tokenization import table


class DCNv2(nn.Module):
    """Fields: user, product, advertiser, category, content, mean history, surface, hour, weekday, each number."""

    def __init__(
        self,
        buckets: Buckets,
        content_dim: int,
        width: int = 16,
        dropout: float = 0.1,
        hidden: int = 64,
        num_crosses: int = 2,
        levels: tuple[Level, ...] = (),
    ) -> None:
        super().__init__()
        sizes = {
            "user": buckets.user,
            "product": buckets.product,
            "advertiser": buckets.advertiser,
            "category": buckets.category,
            "surface": buckets.surface,
            "hour": 24,
            "weekday": 7,
            "number": table_size(),
        }
        self.tables = nn.ModuleDict({name: table(rows, width) for name, rows in sizes.items()})
        self.content = nn.Linear(content_dim, width)
        self.interests = Interests(levels, width) if levels else None
        inputs = (9 + len(NUMBERS) + len(CROSSES) + 5 * len(levels)) * width
        self.heads = Heads(inputs, hidden, dropout, num_crosses)

    def forward(self, batch: JaggedBatch) -> tuple[Tensor, Tensor]:
        """(immediate, deep) logits, each (B,)."""
        immediate, deep = self.heads(self._fields(batch))
        return immediate, deep

    def _fields(self, batch: JaggedBatch) -> Tensor:
        """(B, fields * width)."""
        tables = self.tables
        path = tables["category"](batch.item_category) * (batch.item_category > 0).unsqueeze(-1)
        parts = (tables["product"](batch.item_product), tables["advertiser"](batch.item_advertiser), path.sum(1))
        items = torch.stack([*parts, self.content(batch.item_content)], dim=1)
        past = batch.history.with_values(items.sum(1)[batch.history.values]).to_padded().sum(1)
        mean = past / batch.history.lengths.clamp_min(1).unsqueeze(1)
        fields = [
            items[batch.candidate].flatten(1),
            tables["user"](batch.user)[batch.visit],
            mean[batch.visit],
            tables["surface"](batch.surface),
            tables["hour"](batch.hour),
            tables["weekday"](batch.weekday),
            tables["number"](batch.numbers).flatten(1),
        ]
        return torch.cat(fields if self.interests is None else [*fields, self.interests(batch)], dim=1)
