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
from ranking.arms import BASELINE, bags_of
from ranking.baselines.base_rate import fit_base_rate
from ranking.baselines.dcnv2 import DCNv2
from ranking.baselines.din import DIN
from ranking.baselines.gradient_boosting import fit_gradient_boosting
from ranking.baselines.hstu import HSTU
from ranking.baselines.logistic_regression import fit_logistic_regression
from ranking.baselines.popularity_by_surface import fit_popularity
from ranking.batch import Batcher, Buckets
from ranking.delayed import Delayed, delayed_labels
from ranking.evaluate import Floats, deciles, figures, slices
from ranking.fitting import Sample, Schedule, Trained, fit_network
from ranking.importance import importance
from ranking.model import Ranker
from ranking.reader import TEST, VALIDATION, Examples, Level

NETWORKS = ("ranker", "dcnv2", "din", "hstu")
"""Models that are fitted by steps, and therefore differ from seed to seed."""


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
        delayed = delayed_labels(examples, examples.cuts[1], schedule.delay)
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
    about = {"parameters": sum(value.numel() for value in tensors.values()), **about}
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
    if fit.model == "gradient_boosting":
        boosted = fit_gradient_boosting(batcher_of(setup, fit.arm), sample, levels_of(setup, fit.arm), seed=seed)
        return boosted, {"trees": boosted.booster.num_trees(), "parameters": boosted.num_leaves}
    trained = fit_network_of(setup, fit, seed)
    return trained, {"shift": trained.shift, "checks": trained.seen}


def levels_of(setup: Setup, arm: str) -> tuple[Level, ...]:
    """Levels of interest tokens that a baseline reads in this arm: none in its arm `baseline`."""
    return () if arm == BASELINE else setup.examples.levels


def batcher_of(setup: Setup, arm: str) -> Batcher:
    """Batches with the interest tokens of an arm; raises UsageError for an unknown one."""
    size = setup.architecture
    return Batcher(setup.examples, bags_of(setup.examples, arm), size.buckets, size.history_len, size.user_states)


def ranker_of(examples: Examples, size: Architecture) -> Ranker:
    """A fresh ranker for what the examples hold."""
    states, content_dim = examples.user_states.shape, examples.content.shape[1]
    sizes = size.width, size.num_blocks, size.num_heads, size.dropout
    return Ranker(size.buckets, examples.levels, content_dim, (states[1], states[2]), *sizes)


def network_of(setup: Setup, fit: Fit) -> Ranker | DCNv2 | DIN | HSTU:
    """A fresh network of one of `NETWORKS`, sized by the setup's architecture."""
    if fit.model == "ranker":
        return ranker_of(setup.examples, setup.architecture)
    size, content_dim = setup.architecture, setup.examples.content.shape[1]
    buckets, width, levels = size.buckets, size.width, levels_of(setup, fit.arm)
    if fit.model == "din":
        return DIN(buckets, content_dim, width, size.dropout, num_crosses=size.num_blocks, levels=levels)
    if fit.model == "hstu":
        heads = size.num_heads
        return HSTU(buckets, content_dim, size.history_len, width, size.num_blocks, heads, size.dropout, levels)
    # Its fields lie side by side: half as wide, they take the heads about as many weights as the tokens do.
    return DCNv2(buckets, content_dim, width // 2, size.dropout, 2 * width, size.num_blocks, levels)


def fit_network_of(setup: Setup, fit: Fit, seed: int) -> Trained:
    """One of `NETWORKS`. All arms of a model start from the same weights and see the same batches in the same order."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = network_of(setup, fit)
        network.heads.start_at(*_rates(setup))
        return fit_network(network, batcher_of(setup, fit.arm), setup.sample, setup.delayed, setup.schedule, seed)


def _rates(setup: Setup) -> tuple[float, float]:
    """Share of positives among the training rows, and of repurchases known over the share that can be known."""
    train, delayed = setup.sample.train, setup.delayed
    label, weight, share = (c[train].astype(np.float64) for c in (delayed.label, delayed.weight, delayed.share))
    deep = float((weight * label).sum() / (weight * share).sum()) if weight.any() else 0.5
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
