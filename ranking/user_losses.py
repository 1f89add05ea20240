"""Losses of the user model: next item by sampled softmax, next interests by cross entropy, from events and from pools.

The sampled softmax is that of Jean et al. (ACL 2015): negatives weigh one over their expected count, so that the loss
estimates the one over the whole catalogue. Scores come on top of log popularity, so training starts at the popularity
reference that it is compared with.

Letters: n states or targets, V primitives.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ranking.asof import Ints
from ranking.user_events import Slots
from ranking.user_model import UserModel
from ranking.user_tasks import Catalogue, Task

_SCORED_TOGETHER = 512
"""States that are scored against the whole catalogue at a time."""


def task_losses(
    model: UserModel, task: Task, catalogue: Catalogue, negatives: tuple[Ints, Tensor] | None
) -> dict[str, Tensor]:
    """Mean losses [nats] by name: `item` and `interest` from events, `pooled_item` and `pooled_interest` from pools.

    With `negatives` None items are judged against the whole catalogue. Interests count the cross entropy above the
    target's own entropy, a mean over levels, so that 0 is exact. What has no target in the task is left out.
    """
    states = model.events(task.batch)
    found = _losses(model, states[task.state], task.target, "", task, catalogue, negatives)
    if len(task.pool_target):
        pooled = model.merged(model.pool(states, task.batch, task.pools))
        found |= _losses(model, pooled, task.pool_target, "pooled_", task, catalogue, negatives)
    return found


def _losses(
    model: UserModel,
    states: Tensor,
    target: Tensor,
    prefix: str,
    task: Task,
    catalogue: Catalogue,
    negatives: tuple[Ints, Tensor] | None,
) -> dict[str, Tensor]:
    found, row = {}, catalogue.find(task.batch.number[target])
    known = row >= 0
    if known.any():
        sought = states[known], row[known]
        judged = (
            _full(model, *sought, catalogue) if negatives is None else _sampled(model, *sought, catalogue, negatives)
        )
        found[f"{prefix}item"] = judged
    told = some_slots(task.batch.items.slots, target)
    if len(told.primitive):
        found[f"{prefix}interest"] = divergence(model.interest_logs(states), told, len(model.levels))
    return found


def _sampled(
    model: UserModel, states: Tensor, row: Tensor, catalogue: Catalogue, negatives: tuple[Ints, Tensor]
) -> Tensor:
    drawn, log_expected = negatives
    rows, place = np.unique(np.concatenate([row.numpy(), drawn]), return_inverse=True)
    items, asked = model.items(catalogue.items(rows)), model.next_item(states)
    mine, other = torch.from_numpy(place[: len(row)]), torch.from_numpy(place[len(row) :])
    own = (asked * items[mine]).sum(1, keepdim=True) + catalogue.log_share[row, None]
    others = asked @ items[other].T + (catalogue.log_share[torch.from_numpy(drawn)] - log_expected)
    others = others.masked_fill(other == mine[:, None], -torch.inf)
    loss: Tensor = (torch.logsumexp(torch.cat([own, others], dim=1), dim=1) - own[:, 0]).mean()
    return loss


def _full(model: UserModel, states: Tensor, row: Tensor, catalogue: Catalogue) -> Tensor:
    items = model.items(catalogue.items(np.arange(len(catalogue.products))))
    parts = []
    for mine, wanted in zip(torch.split(states, _SCORED_TOGETHER), torch.split(row, _SCORED_TOGETHER), strict=True):
        logs = (model.next_item(mine) @ items.T + catalogue.log_share).log_softmax(1)
        parts.append(logs.gather(1, wanted[:, None])[:, 0])
    return -torch.cat(parts).mean()


def some_slots(slots: Slots, rows: Tensor) -> Slots:
    """The interests of some rows (n,), in their order."""
    lengths = slots.offsets.diff()[rows]
    offsets = torch.zeros(len(rows) + 1, dtype=torch.int64)
    torch.cumsum(lengths, 0, out=offsets[1:])
    place = torch.repeat_interleave(slots.offsets[rows] - offsets[:-1], lengths) + torch.arange(int(offsets[-1]))
    return Slots(slots.primitive[place], slots.share[place], offsets)


def divergence(logs: Tensor, told: Slots, num_levels: int) -> Tensor:
    """Cross entropy above entropy [nats] of `told` (n rows) under log probabilities (n, V), over rows with interests.

    A mean over rows and levels.
    """
    lengths = told.offsets.diff()
    row = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    above = told.share * (told.share.log() - logs[row, told.primitive - 1])
    return above.sum() / (num_levels * (lengths > 0).sum())


def total(found: Mapping[str, Tensor], interest_weight: float) -> Tensor:
    """The sum that is descended; a task without any target gives 0."""
    weighted = [interest_weight * v if "interest" in name else v for name, v in found.items()]
    return torch.stack(weighted).sum() if weighted else torch.zeros((), requires_grad=True)
