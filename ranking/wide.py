"""Every feature of a row embedded by itself, side by side: what explicit crosses need to be able to tell apart.

Tokens add the parts of a product up before anything attends; the heads' crosses see what that hides, as the wide part
of a wide and deep model (Cheng et al., DLRS 2016, arXiv:1606.07792).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ranking.batch import Buckets, JaggedBatch
from ranking.tokenization import table

_FIELDS = 9


class Wide(nn.Module):
    """Product, advertiser, category path, content, user, mean of the history, surface, hour, weekday."""

    def __init__(self, buckets: Buckets, content_dim: int, width: int) -> None:
        super().__init__()
        sizes = {
            "user": buckets.user,
            "product": buckets.product,
            "advertiser": buckets.advertiser,
            "category": buckets.category,
            "surface": buckets.surface,
            "hour": 24,
            "weekday": 7,
        }
        self.tables = nn.ModuleDict({name: table(rows, width) for name, rows in sizes.items()})
        self.content = nn.Linear(content_dim, width)
        self.size = _FIELDS * width

    def forward(self, batch: JaggedBatch) -> Tensor:
        """(B, size)."""
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
        ]
        return torch.cat(fields, dim=1)
