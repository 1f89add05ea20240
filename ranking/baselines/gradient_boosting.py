"""Gradient boosted trees (LightGBM; Ke et al., NeurIPS 2017) on the table of an example: what tables alone can do."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from data.context import StageConfig
from data.errors import SystemStateError
from ranking.baselines.tabular import columns, tabulate
from ranking.batch import Batcher
from ranking.evaluate import Floats
from ranking.fitting import Sample
from ranking.reader import Level


class Trees(StageConfig):
    """Size and shrinkage of the ensemble."""

    rounds: int = Field(default=600, ge=1, description="trees at most [count]; validation says when to stop")
    patience: int = Field(default=50, ge=1, description="trees without a better validation loss before stopping")
    learning_rate: float = Field(default=0.05, gt=0, description="shrinkage of each tree")
    num_leaves: int = Field(default=31, ge=2, description="leaves of a tree")
    min_data_in_leaf: int = Field(default=50, ge=1, description="training rows of a leaf, at least")
    feature_fraction: float = Field(default=0.7, gt=0, le=1, description="columns each tree may use [share]")
    bagging_fraction: float = Field(default=0.8, gt=0, le=1, description="rows of each tree [share]")
    lambda_l2: float = Field(default=1.0, ge=0, description="L2 penalty of leaf values")
    cat_smooth: float = Field(default=50.0, ge=0, description="rows by which a category's statistics are pulled")


@dataclass(frozen=True)
class Boosted:
    """A fitted ensemble over the columns of `tabular.columns(levels)`."""

    booster: Any
    batcher: Batcher
    levels: tuple[Level, ...]
    shift: float

    def logits(self, rows: NDArray[np.int64]) -> tuple[Floats, None]:
        """(n,) logits corrected for negative sampling, and no deep logits."""
        if not len(rows):
            return np.zeros(0), None
        raw: Floats = self.booster.predict(tabulate(self.batcher, rows, self.levels), raw_score=True, num_threads=1)
        return raw + self.shift, None

    @property
    def num_leaves(self) -> int:
        """Leaves of all trees together: its learned numbers, less the thresholds."""
        return sum(int(tree["num_leaves"]) for tree in self.booster.dump_model()["tree_info"])

    def tensors(self) -> dict[str, torch.Tensor]:
        """LightGBM's own text of the model, as bytes."""
        text = bytearray(self.booster.model_to_string().encode())
        return {"model": torch.frombuffer(text, dtype=torch.uint8)}


def fit_gradient_boosting(
    batcher: Batcher, sample: Sample, levels: tuple[Level, ...] = (), trees: Trees | None = None, seed: int = 0
) -> Boosted:
    """Trees on the training rows until validation stops getting better; the test plays no part.

    `levels` = () leaves interest tokens out; otherwise they are those of `batcher`. One thread, so that equal inputs
    give equal trees. Memory: 4 bytes a row and column, twice. Raises SystemStateError without LightGBM.
    """
    lightgbm, trees = _lightgbm(), trees or Trees()
    names, categories = columns(levels)
    labels = np.asarray(batcher.examples.columns["label"])
    about = {"feature_name": names, "categorical_feature": categories, "free_raw_data": True}
    fixed = {"objective": "binary", "num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1}
    parameters = {**fixed, **trees.model_dump(exclude={"rounds", "patience"}), "bagging_freq": 1, "seed": seed}
    table = tabulate(batcher, sample.train, levels)
    train = lightgbm.Dataset(table, labels[sample.train], params=parameters, **about)
    # Validation stands for the log before sampling: its scores start at the shift, its rows count in full.
    held = lightgbm.Dataset(
        tabulate(batcher, sample.validation, levels),
        labels[sample.validation],
        reference=train,
        weight=1.0 / batcher.examples.columns["sample_prob"][sample.validation].astype(np.float64),
        init_score=np.full(len(sample.validation), sample.shift),
        params=parameters,
        **about,
    )
    stop = lightgbm.early_stopping(trees.patience, verbose=False)
    booster = lightgbm.train(parameters, train, trees.rounds, valid_sets=[held], callbacks=[stop])
    return Boosted(booster, batcher, levels, sample.shift)


def _lightgbm() -> ModuleType:
    try:
        import lightgbm
    except ImportError as error:
        raise SystemStateError("expected lightgbm for boosted trees, found none: pip install -e '.[bench]'") from error
    module: ModuleType = lightgbm
    return module
