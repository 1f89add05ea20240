"""Training the user model: windows of histories in an order drawn by seed, judged on the last days before t0.

A step is a function of the weights, the seed and its number, so a killed run goes on as if it had not been.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from data import checkpoint
from data.context import StageConfig, derive_seed
from data.schema import MICROS_PER_DAY
from ranking.asof import Ints
from ranking.user_events import UserEvents
from ranking.user_losses import divergence, some_slots, task_losses, total
from ranking.user_model import UserModel
from ranking.user_tasks import Catalogue, Task, make_task

_KEPT_EVERY = 100
"""Steps between checkpoints."""

_JUDGED_TOGETHER = 64
"""Users whose validation targets are scored at a time."""

Losses = dict[str, float]


class UserSchedule(StageConfig):
    """How the user model is trained."""

    epochs: int = Field(default=6, ge=1, description="passes over the users, one window each")
    batch_users: int = Field(default=16, ge=1, description="users of a step")
    lr: float = Field(default=3e-3, gt=0, description="peak learning rate of AdamW")
    weight_decay: float = Field(default=0.1, ge=0, description="decoupled weight decay [per unit of learning rate]")
    warmup: float = Field(default=0.1, gt=0, lt=1, description="share of the steps in which the rate rises from 0")
    final_lr: float = Field(default=0.1, ge=0, le=1, description="rate of the last step [share of the peak]")
    negatives: int = Field(default=512, ge=1, description="products that a step's targets are told from [count]")
    interest_weight: float = Field(default=0.5, ge=0, description="weight of the interest losses")
    pools: int = Field(default=4, ge=1, description="dates at which a user is pooled in a step [count]")
    pool_days: int = Field(default=7, ge=1, description="days between such dates: those between two emitted states")
    valid_days: int = Field(default=14, ge=1, description="days before t0 held out; they choose among the checks")
    valid_users: int = Field(default=300, ge=1, description="users that are judged on them [count], drawn by seed")
    checks: int = Field(default=4, ge=1, description="looks at the validation loss, evenly spread; the best state wins")


@dataclass
class Training:
    """A model on its way: its optimizer, what it was judged on, and the best state seen."""

    model: UserModel
    events: UserEvents
    catalogue: Catalogue
    schedule: UserSchedule
    max_events: int
    seed: int
    log: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set up what a resumed run must have, too."""
        schedule = self.schedule
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=schedule.lr, weight_decay=schedule.weight_decay, fused=True
        )
        self.split = self.events.t0 - schedule.valid_days * MICROS_PER_DAY
        start, end = self.events.visible(self.split - 1)
        self.users = np.flatnonzero(end - start > 1)
        self.start, self.end = start[self.users], end[self.users]
        self.batches = math.ceil(len(self.users) / schedule.batch_users)
        self.dates = self._dates()
        with torch.no_grad():
            self.model.interest_bias.copy_(self.catalogue.interest_share.log())

    @property
    def steps(self) -> int:
        """Steps of the whole training; 0 when nobody has two events."""
        return self.batches * self.schedule.epochs

    def train(self, path: Path, advance: Callable[[int], None] = lambda steps: None) -> None:
        """Train, or go on from the checkpoint at `path`, and restore the state that was best on the validation days."""
        done = self._resume(path)
        advance(done)
        checks = {math.ceil(self.steps * (number + 1) / self.schedule.checks) for number in range(self.schedule.checks)}
        for step in range(done, self.steps):
            loss = self.step(step)
            if step + 1 in checks:
                self._check(step + 1, loss)
            if (step + 1) % _KEPT_EVERY == 0 or step + 1 in checks:
                self._save(path, step + 1)
            advance(1)
        if self.best:
            self.model.load_state_dict(self.best)

    def step(self, step: int) -> Losses:
        """One step of AdamW: a function of the weights, the seed and the step's number."""
        self._set_rate((step + 1) / self.steps)
        self.model.train()
        rng = np.random.default_rng(derive_seed(self.seed, "step", step))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(self.seed, "dropout", step))
            task, negatives = self.task(step, rng), self.catalogue.negatives(self.schedule.negatives, rng)
            found = task_losses(self.model, task, self.catalogue, negatives)
        self.optimizer.zero_grad()
        torch.autograd.backward(total(found, self.schedule.interest_weight))
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return {name: float(value.detach()) for name, value in found.items()}

    def task(self, step: int, rng: np.random.Generator) -> Task:
        """The users of a step; of a longer history a window that starts anywhere."""
        epoch, number = divmod(step, self.batches)
        order = np.random.default_rng(derive_seed(self.seed, "order", epoch)).permutation(len(self.users))
        chosen = np.array_split(order, self.batches)[number]
        spare = np.maximum(self.end[chosen] - self.start[chosen] - self.max_events, 0)
        start = self.start[chosen] + rng.integers(0, spare + 1)
        end = np.minimum(start + self.max_events, self.end[chosen])
        return make_task(self.events, start, end, self.dates, self.schedule.pools, rng)

    @torch.no_grad()
    def judge(self) -> tuple[Losses, Losses]:
        """Losses on the held-out days [nats], and those of popularity and of the mean interests on the same targets."""
        self.model.eval()
        sums: dict[str, list[tuple[float, int]]] = {}
        for task in self._validation():
            pairs = {"": task.target, "pooled_": task.pool_target}
            mine = task_losses(self.model, task, self.catalogue, None)
            for prefix, target in pairs.items():
                reference, counts = self._reference(task, target)
                for name, value in reference.items():
                    sums.setdefault(f"popularity.{prefix}{name}", []).append((value, counts[name]))
                    sums.setdefault(f"model.{prefix}{name}", []).append((float(mine[f"{prefix}{name}"]), counts[name]))
        means = {name: sum(v * n for v, n in parts) / sum(n for _, n in parts) for name, parts in sums.items()}
        return _below(means, "model"), _below(means, "popularity")

    def _reference(self, task: Task, target: Tensor) -> tuple[Losses, dict[str, int]]:
        row = self.catalogue.find(task.batch.number[target])
        told = some_slots(task.batch.items.slots, target)
        found, counts = {}, {}
        if (row >= 0).any():
            found["item"] = -float(self.catalogue.log_share[row[row >= 0]].mean())
            counts["item"] = int((row >= 0).sum())
        if len(told.primitive):
            logs = self.catalogue.interest_share.log().expand(len(target), -1)
            found["interest"] = float(divergence(logs, told, len(self.model.levels)))
            counts["interest"] = int((told.offsets.diff() > 0).sum())
        return found, counts

    def _validation(self) -> list[Task]:
        rng = np.random.default_rng(derive_seed(self.seed, "validation"))
        start, end = self.events.visible(self.events.t0 - 1)
        held = np.flatnonzero((end > self.events.visible(self.split - 1)[1]) & (end - start > 1))
        held = np.sort(rng.permutation(held)[: self.schedule.valid_users])
        start = np.maximum(start, end - self.max_events)
        step = self.schedule.pool_days * MICROS_PER_DAY
        dates = np.arange(self.events.t0 - 1, self.split - 2, -step)[::-1]
        groups = [held[at : at + _JUDGED_TOGETHER] for at in range(0, len(held), _JUDGED_TOGETHER)]
        return [
            make_task(self.events, start[users], end[users], dates, self.schedule.pools, rng, self.split)
            for users in groups
        ]

    def _dates(self) -> Ints:
        """Dates [us] that pool in training, back from the start of the held-out days to the first event."""
        visible = self.events.columns["visible_from"]
        first = int(visible.min()) if len(visible) else self.split
        return np.arange(self.split - 1, min(first, self.split) - 1, -self.schedule.pool_days * MICROS_PER_DAY)[::-1]

    def _check(self, step: int, loss: Losses) -> None:
        mine, reference = self.judge()
        before = [row["judged"] for row in self.log]
        judged = chosen_by(mine, self.schedule)
        self.log.append({"step": step, "loss": loss, "validation": mine, "popularity": reference, "judged": judged})
        if judged is None or not before or judged < min(before):
            self.best = {name: value.clone() for name, value in self.model.state_dict().items()}

    def _set_rate(self, done: float) -> None:
        schedule = self.schedule
        rise, fall = done / schedule.warmup, (done - schedule.warmup) / (1.0 - schedule.warmup)
        share = min(1.0, rise) * (1.0 - (1.0 - schedule.final_lr) * max(0.0, fall))
        for group in self.optimizer.param_groups:
            group["lr"] = schedule.lr * share

    def _save(self, path: Path, done: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        tensors |= checkpoint.flatten("optimizer", {str(k): v for k, v in self.optimizer.state_dict()["state"].items()})
        checkpoint.save(path, tensors, {"done": done, "log": self.log})

    def _resume(self, path: Path) -> int:
        if (kept := checkpoint.load(path)) is None:
            return 0
        tensors, state = kept
        self.model.load_state_dict(_below(tensors, "model"))
        self.best, self.log = _below(tensors, "best"), state["log"]
        optimizer = self.optimizer.state_dict()
        for name, tensor in _below(tensors, "optimizer").items():
            index, _, part = name.partition(".")
            optimizer["state"].setdefault(int(index), {})[part] = tensor
        self.optimizer.load_state_dict(optimizer)
        return int(state["done"])


def chosen_by(losses: Losses, schedule: UserSchedule) -> float | None:
    """What chooses among checks: the pooled losses, which are what is emitted; None without held-out targets."""
    pooled = {name: value for name, value in losses.items() if name.startswith("pooled_")} or losses
    weighted = [schedule.interest_weight * v if "interest" in name else v for name, v in pooled.items()]
    return sum(weighted) if weighted else None


def _below(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name[len(prefix) + 1 :]: value for name, value in values.items() if name.startswith(f"{prefix}.")}
