"""Row-wise Adagrad for embedding tables: one accumulator a row, and only rows that a batch touched are written.

The optimizer of large embedding tables in DLRM-like training (Naumov et al., arXiv 1906.00091); a step costs in
proportion to the batch, not to the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class RowwiseAdagrad(torch.optim.Optimizer):
    """p[row] -= lr * g[row] / (sqrt(mean over steps' sum of mean(g[row]^2)) + eps) for rows of sparse gradients (n, d).

    Duplicate rows of a batch are added up first, in a fixed order, so equal runs give equal bits.
    """

    def __init__(self, tables: Iterable[Tensor], lr: float, eps: float = 1e-8) -> None:
        super().__init__(tables, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update; raises ValueError for a dense gradient. `closure` is not used."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._update(table, group["lr"], group["eps"])

    def _update(self, table: Tensor, lr: float, eps: float) -> None:
        if not table.grad.is_sparse:
            raise ValueError("expected a sparse gradient (nn.Embedding(..., sparse=True)), got a dense one")
        gradient = table.grad.coalesce()
        rows, values = gradient.indices()[0], gradient.values()
        state = self.state[table]
        if not state:
            state["sum"] = torch.zeros(len(table), dtype=table.dtype)
        total = state["sum"].index_add_(0, rows, values.square().mean(1))[rows]
        table.index_add_(0, rows, values / (total.sqrt() + eps).unsqueeze(1), alpha=-lr)
