"""Every model by name: what to build, how to fit it, and its figures on the validation and the test rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from data.context import StageConfig
from ranking.baselines.base_rate import fit_base_rate
from ranking.baselines.dcnv2 import DCNv2
from ranking.baselines.logistic_regression import fit_logistic_regression
from ranking.baselines.popularity_by_surface import fit_popularity
from ranking.batch import Batcher, Buckets, hashed_bags, learned_bags
from ranking.delayed import Delayed, delayed_labels
from ranking.evaluate import Floats, deciles, figures, slices
from ranking.fitting import Sample, Schedule, Trained, fit_network
from ranking.importance import importance
from ranking.model import Ranker
from ranking.reader import TEST, VALIDATION, Examples


class Architecture(StageConfig):
    """Size of the networks."""

    width: int = Field(default=32, ge=2, multiple_of=2, description="width of a token [components]")
    num_blocks: int = Field(default=2, ge=1, description="blocks of target-aware attention and per-token layer")
    num_heads: int = Field(default=2, ge=1, description="attention heads; must divide width")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="dropout before the heads [share]")
    history_len: int = Field(default=50, ge=1, description="latest events of the user that are read [count]")
    user_states: bool = Field(
        default=True,
        description="read the offline user model's states; without, they are masked, parameters stay equal",
    )
    user_buckets: int = Field(default=4_096, ge=2, description="rows of the hashed user table")
    product_buckets: int = Field(default=32_768, ge=2, description="rows of the hashed product table")
    advertiser_buckets: int = Field(default=8_192, ge=2, description="rows of the hashed advertiser table")
    category_buckets: int = Field(default=4_096, ge=2, description="rows of the hashed category-prefix table")

    @property
    def buckets(self) -> Buckets:
        """Sizes of the hashed tables."""
        return Buckets(self.user_buckets, self.product_buckets, self.advertiser_buckets, self.category_buckets)


@dataclass(frozen=True)
class Fit:
    """One model with one arm and seed."""

    model: str
    arm: str
    seed: int

    @property
    def name(self) -> str:
        """File-name form, such as ranker-tokens-0."""
        return f"{self.model}-{self.arm}-{self.seed}"


class Predictor(Protocol):
    """What all fitted models share."""

    def logits(self, rows: NDArray[np.int64]) -> tuple[Floats, Floats | None]:
        """Immediate logits (n,) corrected for sampling, and deep logits where the model has them."""

    def tensors(self) -> dict[str, Tensor]:
        """All that was learned."""


@dataclass(frozen=True)
class Setup:
    """What all fits share: rows, delayed labels known before T1, and sizes."""

    examples: Examples
    sample: Sample
    delayed: Delayed
    architecture: Architecture
    schedule: Schedule

    @classmethod
    def open(cls, examples: Examples, max_rows: int, architecture: Architecture, schedule: Schedule) -> Setup:
        """Draw the training rows and read the delayed labels as of T1, when training ends."""
        delayed = delayed_labels(examples, examples.cuts[1])
        return cls(examples, Sample.draw(examples, max_rows), delayed, architecture, schedule)

    @cached_property
    def matured(self) -> Delayed:
        """Delayed labels as of the end of the log, for judging only."""
        return delayed_labels(self.examples, self.examples.end)


def evaluate_fit(setup: Setup, fit: Fit, seed: int, explain: bool = False) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Fit one model and score validation and test once.

    Returns tensors ("model.<name>", and "test": logits of the test rows) and figures: "rows" (validation, test),
    "about" and, for networks when `explain` is set, "importance".
    """
    predictor, about = _fit(setup, fit, seed)
    tensors = predictor.tensors()
    about |= {"parameters": sum(value.numel() for value in tensors.values())}
    identity = {"model": fit.model, "arm": fit.arm, "seed": fit.seed}
    scores, rows = {}, []
    for name, split in (("validation", VALIDATION), ("test", TEST)):
        scores[name], row = _figures(setup, predictor, split)
        rows.append({**identity, "split": name, "parameters": about["parameters"], **row})
    state: dict[str, Any] = {"rows": rows, "about": about}
    if explain and isinstance(predictor, Trained):
        found = importance(predictor, setup.examples.rows(VALIDATION))
        state["importance"] = [{**identity, **row} for row in found]
    learned = {f"model.{name}": value for name, value in tensors.items()}
    return {**learned, "test": torch.from_numpy(scores["test"])}, state


def _fit(setup: Setup, fit: Fit, seed: int) -> tuple[Predictor, dict[str, Any]]:
    """The fitted model, and how it was made."""
    examples, sample = setup.examples, setup.sample
    if fit.model == "base_rate":
        return fit_base_rate(examples, sample), {}
    if fit.model == "popularity_by_surface":
        popularity = fit_popularity(examples, sample)
        return popularity, {"strength": popularity.strength}
    if fit.model == "logistic_regression":
        regression = fit_logistic_regression(examples, sample)
        return regression, {"strength": regression.strength}
    trained = _fit_network(setup, fit, seed)
    return trained, {"shift": trained.shift, "checks": trained.seen}


def _fit_network(setup: Setup, fit: Fit, seed: int) -> Trained:
    """Both arms of the ranker start from the same weights and see the same batches in the same order."""
    size, examples = setup.architecture, setup.examples
    content_dim = examples.content.shape[1]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network: Ranker | DCNv2
        if fit.model == "dcnv2":
            network = DCNv2(size.buckets, content_dim, dropout=size.dropout)
        else:
            _, num_states, state_width = examples.user_states.shape
            network = Ranker(
                size.buckets,
                examples.levels,
                content_dim,
                (num_states, state_width),
                size.width,
                size.num_blocks,
                size.num_heads,
                size.dropout,
            )
        network.heads.start_at(*_rates(setup))
        bags = learned_bags(examples) if fit.arm == "tokens" else hashed_bags(examples)
        batcher = Batcher(examples, bags, size.buckets, size.history_len, size.user_states)
        return fit_network(network, batcher, setup.sample, setup.delayed, setup.schedule, seed)


def _rates(setup: Setup) -> tuple[float, float]:
    """Share of positives among the training rows, and of repurchases among those whose delayed label is known."""
    train, delayed = setup.sample.train, setup.delayed
    known = delayed.known[train]
    deep = float(delayed.label[train][known].mean()) if known.any() else 0.5
    return float(np.asarray(setup.examples.columns["label"][train]).mean()), deep


def _figures(setup: Setup, predictor: Predictor, split: int) -> tuple[Floats, dict[str, Any]]:
    examples = setup.examples
    rows = examples.rows(split)
    logits, deep = predictor.logits(rows)
    labels = np.asarray(examples.columns["label"][rows])
    weights = 1.0 / examples.columns["sample_prob"][rows].astype(np.float64)
    row = {**figures(logits, labels, weights), "deciles": deciles(logits, labels, weights), "slices": [], "deep": None}
    if split == TEST:
        row["slices"] = slices(examples, rows, logits)
    if deep is not None:
        known = setup.matured.known[rows]
        row["deep"] = figures(deep[known], setup.matured.label[rows][known], weights[known])
    return logits, row
