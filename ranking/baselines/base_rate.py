"""The rate of the training window for every row: normalized entropy 1 means no better than this."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ranking.evaluate import Floats
from ranking.fitting import Sample
from ranking.reader import Examples


@dataclass(frozen=True)
class BaseRate:
    """One logit for all rows."""

    logit: float

    def logits(self, rows: NDArray[np.int64]) -> tuple[Floats, None]:
        """(n,) times the same logit, and no deep logits."""
        return np.full(len(rows), self.logit), None

    def tensors(self) -> dict[str, torch.Tensor]:
        """The logit."""
        return {"logit": torch.tensor([self.logit], dtype=torch.float64)}


def fit_base_rate(examples: Examples, sample: Sample) -> BaseRate:
    """Rate among the training rows, corrected for their sampling."""
    labels = np.asarray(examples.columns["label"][sample.train])
    positives = int(labels.sum())
    odds = max(positives, 0.5) / max(len(labels) - positives, 0.5)
    return BaseRate(float(np.log(odds)) + sample.shift)
