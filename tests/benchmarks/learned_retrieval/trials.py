"""Trials on the validation part, each a line of CSV as soon as it is done; then the best setting, tested once."""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from data.errors import StrataError, UsageError
from hierarchy.baselines import lightgcn, sasrec
from hierarchy.baselines.fitting import Limits, Trained, Vectors
from tests.benchmarks.learned_retrieval.ranking import Ranking
from tests.benchmarks.learned_retrieval.sets import Arrays, Rows, history, joined

METHODS: dict[str, tuple[ModuleType, Limits]] = {
    "lightgcn": (lightgcn, Limits(epochs=1000, every=10, patience=5)),
    "sasrec": (sasrec, Limits(epochs=200, every=2, patience=5)),
}
"""A module with DEFAULTS, SPACE and fit by name, and when its fits stop."""


@dataclass(frozen=True)
class Trial:
    """One fit on the train part: its value on the validation part and the epoch that gave it."""

    number: int
    setting: Mapping[str, Any]
    value: float
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Tuning:
    """One method on one set on one device, and where its lines go."""

    arrays: Arrays
    method: str
    device: str
    limits: Limits
    out: Path
    fixed: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def ks(self) -> tuple[int, ...]:
        """Depths that are published: 5 and 10 for leave-one-out, 20 for Gowalla."""
        return (5, 10) if self.arrays.ordered else (20,)

    def ranking(self, targets: Rows, barred: Rows | None) -> Ranking:
        """The question, on the device."""
        return Ranking(targets, barred, torch.device(self.device))

    def fit(self, known: Rows, setting: Mapping[str, Any], seed: int, limits: Limits, validate: Any = None) -> Trained:
        """The method fitted on `known`."""
        fitted: Trained = METHODS[self.method][0].fit(
            history(known, self.arrays), setting, seed, self.device, limits, validate
        )
        return fitted

    def write(self, kind: str, line: Mapping[str, Any]) -> None:
        """Append a line to OUT/<set>-<method>-<kind>.csv, and flush it."""
        file = self.out / f"{self.arrays.name}-{self.method}-{kind}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "a", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(line))
            if not stream.tell():
                writer.writeheader()
            writer.writerow(line)


def settings(method: str, count: int, seed: int, fixed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The method's defaults, then distinct random settings of its space; `fixed` holds in all of them."""
    module = METHODS[method][0]
    rng = np.random.default_rng(seed)
    found: list[dict[str, Any]] = [{**module.DEFAULTS, **fixed}]
    possible = math.prod(len(values) for key, values in module.SPACE.items() if key not in fixed)
    while len(found) < min(count, possible):
        drawn = {key: values[rng.integers(len(values))] for key, values in module.SPACE.items()}
        setting = {**module.DEFAULTS, **drawn, **fixed}
        if setting not in found:
            found.append(setting)
    return found


def tune(tuning: Tuning, count: int, total: float, say: Callable[[str], None]) -> Trial:
    """Up to `count` trials, none begun after `total` seconds; the best. Each is chosen by recall with history masked.

    A trial that diverges has value NaN and is never the best. Raises UsageError when all did.
    """
    started, done = time.monotonic(), []
    arrays = tuning.arrays
    ranking = tuning.ranking(arrays.valid, arrays.train)
    name = f"recall@{tuning.ks[-1]}"

    def validate(vectors: Vectors) -> float:
        return float(ranking.of(vectors, tuning.ks[-1:])[name].mean())

    for number, setting in enumerate(settings(tuning.method, count, tuning.seed, tuning.fixed)):
        if done and time.monotonic() - started >= total:
            break
        done.append(_trial(tuning, number, setting, validate))
        trial = done[-1]
        say(f"trial {number}: {name} {trial.value:.4f}, {trial.epochs} epochs, {trial.seconds:.1f} s")
    finite = [trial for trial in done if math.isfinite(trial.value)]
    if not finite:
        raise UsageError("no trial ended with a finite value: narrow the space, above all its learning rates")
    return max(finite, key=lambda trial: trial.value)


def final(tuning: Tuning, chosen: Trial, seeds: Sequence[int], say: Callable[[str], None]) -> None:
    """Score the test part for each seed: fitted for the chosen number of epochs, with all that came before as history.

    Leave-one-out sets: "strict" knows train only when it is fitted, "refit" train and valid; masked and unmasked.
    Gowalla is refit and masked, as published. Values by user go to OUT/<set>-<method>-users.npz.
    """
    arrays = tuning.arrays
    before = joined(arrays.train, arrays.valid)
    kinds = {"strict": arrays.train, "refit": before} if arrays.ordered else {"refit": before}
    masks = {"masked": before, "unmasked": None} if arrays.ordered else {"masked": before}
    users: dict[str, Any] = {}
    limits = replace(tuning.limits, epochs=chosen.epochs, seconds=math.inf)
    for seed in seeds:
        for kind, known in kinds.items():
            fitted = tuning.fit(known, chosen.setting, seed, limits)
            grown = fitted.grown(history(before, arrays))
            for mask, barred in masks.items():
                found = tuning.ranking(arrays.test, barred).of(grown, tuning.ks)
                _report(tuning, chosen, seed, (kind, mask), fitted.course.seconds, found, say)
                users |= {f"{kind}/{mask}/{seed}/{name}": values.astype(np.float32) for name, values in found.items()}
    np.savez_compressed(tuning.out / f"{arrays.name}-{tuning.method}-users.npz", **users)


def _trial(tuning: Tuning, number: int, setting: Mapping[str, Any], validate: Callable[[Vectors], float]) -> Trial:
    started = time.monotonic()
    value, epochs, losses = math.nan, 0, (math.nan,)
    try:
        course = tuning.fit(tuning.arrays.train, setting, tuning.seed, tuning.limits, validate).course
        value, epochs, losses = course.value, course.epochs, course.losses
    except UsageError:
        raise
    except StrataError:
        pass  # it diverged
    seconds = time.monotonic() - started
    line = {
        "trial": number,
        "value": f"{value:.6f}",
        "epochs": epochs,
        "epochs_run": len(losses),
        "seconds": f"{seconds:.2f}",
        "first_loss": f"{losses[0]:.5f}",
        "last_loss": f"{losses[-1]:.5f}",
        "seed": tuning.seed,
        "setting": json.dumps(setting),
    }
    tuning.write("trials", line)
    return Trial(number, setting, value, epochs, seconds)


def _report(
    tuning: Tuning,
    chosen: Trial,
    seed: int,
    how: tuple[str, str],
    seconds: float,
    found: Mapping[str, Any],
    say: Callable[[str], None],
) -> None:
    for name, values in found.items():
        line = {
            "fitted": how[0],
            "ranked": how[1],
            "metric": name,
            "value": f"{values.mean():.5f}",
            "standard_error": f"{values.std() / math.sqrt(len(values)):.5f}",
            "users": len(values),
            "seed": seed,
            "trial": chosen.number,
            "epochs": chosen.epochs,
            "seconds": f"{seconds:.2f}",
            "setting": json.dumps(chosen.setting),
        }
        tuning.write("test", line)
    say(f"test, {', '.join(how)}, seed {seed}: {', '.join(f'{k} {v.mean():.4f}' for k, v in found.items())}")
