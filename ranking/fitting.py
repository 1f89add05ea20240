"""Training one network on sampled rows: AdamW, a warm-up and decay of the rate, the best state by validation NE."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from data.context import StageConfig, derive_seed
from ranking.batch import Batcher, JaggedBatch
from ranking.delayed import Delayed, Strategy
from ranking.evaluate import Floats, normalized_entropy, sampling_shift
from ranking.hashing import hash_share
from ranking.heads import joint_loss
from ranking.reader import TRAIN, VALIDATION, Examples


class Schedule(StageConfig):
    """How a network is trained; the defaults were chosen on the validation window."""

    epochs: int = Field(default=1, ge=1, description="passes over the training rows")
    batch_rows: int = Field(default=256, ge=1, description="rows of a step")
    lr: float = Field(default=4e-3, gt=0, description="peak learning rate of AdamW")
    table_lr: float = Field(default=4e-3, gt=0, description="peak learning rate of embedding tables")
    weight_decay: float = Field(default=1.0, ge=0, description="decoupled weight decay [per unit of learning rate]")
    warmup: float = Field(default=0.1, gt=0, lt=1, description="share of the steps in which the rate rises from 0")
    final_lr: float = Field(default=0.2, ge=0, le=1, description="rate of the last step [share of the peak]")
    averaging: float = Field(default=0.99, ge=0, lt=1, description="weight kept by the averaged state each step")
    deep_weight: float = Field(default=0.2, ge=0, description="weight of the delayed task's loss")
    delay: Strategy = Field(
        default="likelihood",
        description="delayed conversions at T1: naive (late ones are negatives), waiting (whole windows only), "
        "importance (all rows, labels corrected by the delay law) or likelihood (all rows, none yet is no negative); "
        "no effect on models without a delayed head",
    )
    checks: int = Field(default=2, ge=1, description="looks at the validation NE, evenly spread; the best state wins")


@dataclass(frozen=True)
class Sample:
    """Training rows (n,), the shift that undoes all sampling of them, and validation rows (m,)."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    shift: float

    @classmethod
    def draw(cls, examples: Examples, max_rows: int) -> Sample:
        """At most about `max_rows` rows of the training window, chosen by hash of the event.

        Positives are kept first, but fill at most half of the sample; negatives take what is left.
        """
        rows = examples.rows(TRAIN)
        labels = np.asarray(examples.columns["label"][rows]) > 0
        share = hash_share(np.asarray(examples.columns["event_hash"][rows]))
        prob = examples.columns["sample_prob"][rows].astype(np.float64)
        kept = labels & (share < max_rows / 2 / max(labels.sum(), 1))
        kept |= ~labels & (share < (max_rows - kept.sum()) / max((~labels).sum(), 1))
        for mine in (labels, ~labels):
            prob[mine] *= kept[mine].mean() if mine.any() else 1.0
        return cls(rows[kept], examples.rows(VALIDATION), sampling_shift(labels[kept], prob[kept]))


@dataclass
class Trained:
    """A network at its best state, with what it saw on the way."""

    network: nn.Module
    batcher: Batcher
    shift: float
    seen: list[dict[str, float]] = field(default_factory=list)

    def logits(self, rows: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """(immediate, deep) float64 (n,), immediate corrected for negative sampling."""
        immediate, deep = predict(self.network, self.batcher, rows)
        return immediate + self.shift, deep

    def tensors(self) -> dict[str, Tensor]:
        """The network's weights by name."""
        return dict(self.network.state_dict())


def fit_network(
    network: nn.Module,
    batcher: Batcher,
    sample: Sample,
    delayed: Delayed,
    schedule: Schedule,
    seed: int,
    advance: Callable[[int], None] = lambda rows: None,
) -> Trained:
    """Train `network` (JaggedBatch -> immediate, deep logits) and restore its best state.

    The state checked is an exponential average of the weights, which a single odd batch cannot throw off. Time
    grows with rows x epochs; memory with the tables (three copies for AdamW and the average) and one batch.
    """
    columns = batcher.examples.columns
    validation = sample.validation
    labels = np.asarray(columns["label"][validation])
    weights = 1.0 / columns["sample_prob"][validation].astype(np.float64)
    trained = Trained(network, batcher, sample.shift)
    average = {name: value.clone() for name, value in network.state_dict().items()}
    optimizer, batches = _optimizer(network, schedule), _batches(batcher, sample, schedule, seed)
    checks = {math.ceil(len(batches) * (number + 1) / schedule.checks) for number in range(schedule.checks)}
    best, best_ne = average, math.inf
    network.train()
    for step, rows in enumerate(batches, start=1):
        _set_rate(optimizer, schedule, step / len(batches))
        loss = _step(network, batcher.batch(rows), optimizer, delayed, rows, schedule.deep_weight)
        _average(average, network, min(schedule.averaging, step / (step + 9)))
        advance(len(rows))
        if step in checks:
            live = {name: value.clone() for name, value in network.state_dict().items()}
            network.load_state_dict(average)
            ne = normalized_entropy(predict(network, batcher, validation)[0] + sample.shift, labels, weights)
            trained.seen.append({"step": step, "loss": loss, "validation_ne": ne})
            if ne < best_ne:
                best, best_ne = {name: value.clone() for name, value in average.items()}, ne
            network.load_state_dict(live)
            network.train()
    network.load_state_dict(best)
    return trained


def predict(
    network: nn.Module, batcher: Batcher, rows: NDArray[np.int64], batch_rows: int = 2048
) -> tuple[Floats, Floats]:
    """(immediate, deep) logits float64 (n,) on the training sample's scale, without dropout."""
    network.eval()
    parts = []
    with torch.inference_mode():
        for start in range(0, len(rows), batch_rows):
            immediate, deep = network(batcher.batch(rows[start : start + batch_rows]))
            parts.append(torch.stack([immediate, deep]).double().numpy())
    both = np.concatenate(parts, axis=1) if parts else np.zeros((2, 0))
    return both[0], both[1]


def _optimizer(network: nn.Module, schedule: Schedule) -> torch.optim.Optimizer:
    """AdamW with a rate of its own for embedding tables, whose rows see few examples each."""
    tables = [module.weight for module in network.modules() if isinstance(module, nn.Embedding)]
    known = {id(table) for table in tables}
    dense = [parameter for parameter in network.parameters() if id(parameter) not in known]
    groups = [{"params": dense, "base": schedule.lr}, {"params": tables, "base": schedule.table_lr}]
    return torch.optim.AdamW(groups, lr=schedule.lr, weight_decay=schedule.weight_decay, fused=True)


def _set_rate(optimizer: torch.optim.Optimizer, schedule: Schedule, done: float) -> None:
    """Linear warm-up, then a linear fall to `final_lr` of the peak."""
    rise, fall = done / schedule.warmup, (done - schedule.warmup) / (1.0 - schedule.warmup)
    share = min(1.0, rise) * (1.0 - (1.0 - schedule.final_lr) * max(0.0, fall))
    for group in optimizer.param_groups:
        group["lr"] = group["base"] * share


def _batches(batcher: Batcher, sample: Sample, schedule: Schedule, seed: int) -> list[NDArray[np.int64]]:
    batches: list[NDArray[np.int64]] = []
    for epoch in range(schedule.epochs):
        order = batcher.order(sample.train, derive_seed(seed, "order", epoch))
        batches += np.array_split(order, max(1, math.ceil(len(order) / schedule.batch_rows)))
    return batches


def _step(
    network: nn.Module,
    batch: JaggedBatch,
    optimizer: torch.optim.Optimizer,
    delayed: Delayed,
    rows: NDArray[np.int64],
    deep_weight: float,
) -> float:
    immediate, deep = network(batch)
    late, weight, share = (torch.from_numpy(column[rows]) for column in (delayed.label, delayed.weight, delayed.share))
    loss: Tensor = joint_loss(immediate, deep, batch.label, late, weight, deep_weight, share)
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()
    return float(loss.detach())


@torch.no_grad()
def _average(average: dict[str, Tensor], network: nn.Module, keep: float) -> None:
    for name, value in network.state_dict().items():
        average[name].lerp_(value, 1.0 - keep)
