"""How a learned baseline is fitted: one loop with a clock, early stopping and seeds; and the scorer that comes of it.

Every method here ends in two tables of vectors whose dot product is the score, so they share one scorer, which also
answers on the device of the vectors, where a benchmark ranks without copying scores to the host.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data.errors import StrataError, UsageError, nearest
from hierarchy.purchases import History


@dataclass(frozen=True)
class Vectors:
    """A `hierarchy.recall.Scorer` of dot products: float32 vectors of users (U, D) and products (P, D)."""

    users: torch.Tensor
    products: torch.Tensor

    def on_device(self, users: torch.Tensor) -> torch.Tensor:
        """Scores (B, P) of users int64 (B,), both on the device of the vectors."""
        return self.users[users] @ self.products.T

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, P) of users (B,)."""
        return self.on_device(torch.from_numpy(users).to(self.users.device)).cpu().numpy()


Validate = Callable[[Vectors], float]
"""What is to be made large on the validation part: given the state of the method, a number."""


@dataclass(frozen=True)
class Limits:
    """When to stop, and how to run. None of these is part of a method's setting."""

    epochs: int = 200
    """At most so many passes over the training events."""
    seconds: float = math.inf
    """Wall clock: no step is begun after it. A pass that it cuts is dropped, unless nothing was validated before."""
    every: int = 1
    """Epochs between two validations."""
    patience: int = 5
    """Validations in a row without a better one before fitting stops."""
    record: bool = False
    """On a GPU, record one step as a CUDA graph and replay it (kernels.captured). Without effect on a CPU."""

    def __post_init__(self) -> None:
        for name in ("epochs", "every", "patience"):
            if getattr(self, name) < 1:
                raise UsageError(f"limit {name!r} is a whole number of at least 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class Course:
    """How fitting went: the epoch that was kept, its validation value (else NaN), wall clock [s], losses by epoch."""

    epochs: int
    value: float
    seconds: float
    losses: tuple[float, ...]


@dataclass(frozen=True)
class Trained:
    """A fitted method: a `Scorer` for the history that it was fitted on; `grown` makes one for a later history."""

    vectors: Vectors
    grow: Callable[[History], Vectors]
    course: Course

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,)."""
        return self.vectors.scores(users)

    def on_device(self, users: torch.Tensor) -> torch.Tensor:
        """Scores (B, products) of users (B,) on the device."""
        return self.vectors.on_device(users)

    def grown(self, history: History) -> Trained:
        """The same parameters for what users had by a later date, over the same users and products."""
        return replace(self, vectors=self.grow(history))


def train(
    model: torch.nn.Module,
    epoch: Callable[[], Iterator[torch.Tensor]],
    current: Callable[[], Vectors],
    limits: Limits,
    validate: Validate | None,
) -> Course:
    """Run epochs until a limit is met, and leave in `model` the parameters of the best validation, else the last.

    `epoch` yields the loss of each step it makes, on the device; they are read once an epoch. Raises StrataError when
    the loss stops being finite before any validation; after one, the best parameters so far are the answer.
    """
    started, losses, stale = time.monotonic(), [], 0
    kept, value, state = 0, math.nan, None
    for number in range(1, limits.epochs + 1):
        loss, late = _epoch(model, epoch, started + limits.seconds)
        if state is not None and (late or not math.isfinite(loss)):
            break
        if not math.isfinite(loss):
            raise StrataError("the loss is not finite: expected a number; lower the learning rate (setting `lr`)")
        losses.append(loss)
        if validate is None:
            kept = number
        elif late or number % limits.every == 0 or number == limits.epochs:
            found = validate(current())
            stale = 0 if state is None or found > value else stale + 1
            if not stale:
                kept, value, state = number, found, _copy(model)
        if late or (stale and stale >= limits.patience):
            break
    if state is not None:
        model.load_state_dict(state)
    return Course(kept, value, time.monotonic() - started, tuple(losses))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draws of torch follow `seed` inside; the caller's generators are as before afterwards."""
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def completed(setting: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`setting` with what it leaves out taken from `defaults`. Raises UsageError for a key that is none of theirs."""
    for key in setting:
        if key not in defaults:
            raise UsageError(f"no setting {key!r}: {nearest(key, defaults)}")
    return {**defaults, **setting}


def require_events(known: History, method: str) -> None:
    """Raise UsageError when there is nothing to learn from."""
    if not len(known.user):
        raise UsageError(f"{method} learns from events: expected at least one, found none; give a longer history")


def _epoch(model: torch.nn.Module, epoch: Callable[[], Iterator[torch.Tensor]], deadline: float) -> tuple[float, bool]:
    """Mean loss of the steps made, and whether the clock ended the epoch."""
    model.train()
    total, steps = None, 0
    for loss in epoch():
        total = loss.detach().clone() if total is None else total.add_(loss.detach())
        steps += 1
        if time.monotonic() >= deadline:
            return float(total) / steps, True
    return (math.nan if total is None else float(total) / steps), False


def _copy(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
