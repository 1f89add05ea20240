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
from ranking.wide import Wide


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
        self.wide = Wide(buckets, content_dim, width)
        self.numbers = table(table_size(), width)
        self.interests = Interests(levels, width) if levels else None
        inputs = self.wide.size + (len(NUMBERS) + len(CROSSES)) * width
        self.heads = Heads(inputs + (self.interests.size if self.interests else 0), hidden, dropout, num_crosses)

    def forward(self, batch: JaggedBatch) -> tuple[Tensor, Tensor]:
        """(immediate, deep) logits, each (B,)."""
        fields = [self.wide(batch), self.numbers(batch.numbers).flatten(1)]
        if self.interests is not None:
            fields.append(self.interests(batch))
        immediate, deep = self.heads(torch.cat(fields, dim=1))
        return immediate, deep
