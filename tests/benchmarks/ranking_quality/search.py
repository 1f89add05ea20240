"""Random search on the validation window: the same number of trials for every model, every one of them logged."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.codehash import code_hash
from ranking.evaluate import Floats, normalized_entropy
from ranking.models import Setup
from ranking.reader import TEST
from tests.benchmarks import rows
from tests.benchmarks.ranking_quality.methods import Method, Setting
from tests.benchmarks.retrieval_quality.search import drawn

COLUMNS = (
    "set", "method", "rows", "trial", "seed", "fits", "setting", "metric", "value", "seconds", "git_sha", "date"
)  # fmt: skip


@dataclass(frozen=True)
class Search:
    """One budget for all: `trials` settings a model, drawn from `seed`, logged to `log`, and the tests of the chosen.

    A trial of a model that differs by seed is the mean of `trial_seeds` fits: a search by one fit each would choose
    lucky seeds. With `resume`, trials that the log holds for the same set, model, training rows, seeds and setting are
    not run again, nor tests whose logits lie in `fits` and were made by the same code. With `shard` (i, n) only every
    n-th setting from the i-th on is tried, so that n processes share a search.
    """

    name: str
    setup: Setup
    trials: int
    seed: int
    log: Path
    fits: Path
    trial_seeds: int = 1
    resume: bool = False
    shard: tuple[int, int] | None = None

    def choose(self, method: Method) -> tuple[Setting, float]:
        """The setting with the least validation NE among those tried here, and that NE."""
        logged = self._logged(method) if self.resume else {}
        tried = []
        for place, setting in enumerate(drawn(method.space, self.trials, self.seed)):
            if self.shard is not None and place % self.shard[1] != self.shard[0]:
                continue
            value = logged.get(json.dumps(setting))
            value = self._try(method, place, setting) if value is None else value
            # A fit that diverged is a trial spent, not a choice.
            tried.append((value if np.isfinite(value) else np.inf, place, setting))
        if not tried:
            return {}, float("nan")
        value, _, setting = min(tried, key=lambda trial: trial[:2])
        return setting, value

    def test(self, method: Method, setting: Setting, seed: int) -> Floats:
        """Logits of the test rows (n,), of a fit with the chosen setting."""
        causes = [self.name, method.name, setting, seed, len(self.setup.sample.train), code_hash("ranking")]
        file = self.fits / f"{method.name}-{hashlib.sha256(json.dumps(causes).encode()).hexdigest()[:16]}.npy"
        if self.resume and file.exists():
            held: Floats = np.load(file, allow_pickle=False)
            return held
        logits, _ = method.fit(self.setup, setting, seed).logits(self.setup.examples.rows(TEST))
        self.fits.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.part")
        with open(part, "wb") as stream:
            np.save(stream, logits, allow_pickle=False)
        os.replace(part, file)
        return logits

    def _try(self, method: Method, place: int, setting: Setting) -> float:
        started, columns = time.perf_counter(), self.setup.examples.columns
        held = self.setup.sample.validation
        labels, weights = np.asarray(columns["label"][held]), 1.0 / columns["sample_prob"][held].astype(np.float64)
        seeds = range(self.seed, self.seed + self._fits(method))
        fits = [method.fit(self.setup, setting, seed).logits(held)[0] for seed in seeds]
        value = round(float(np.mean([normalized_entropy(logits, labels, weights) for logits in fits])), 6)
        seconds = time.perf_counter() - started
        print(f"{method.name} trial {place}: NE {value:.4f}, {seconds:.1f} s", file=sys.stderr, flush=True)
        trial = {"trial": place, "setting": json.dumps(setting), "metric": "NE", "value": f"{value:.6f}"}
        rows.append_trials(self.log, COLUMNS, [{**self._key(method), **trial, "seconds": round(seconds, 2)}])
        return value

    def _key(self, method: Method) -> dict[str, str]:
        used, fits = str(len(self.setup.sample.train)), str(self._fits(method))
        return {"set": self.name, "method": method.name, "rows": used, "seed": str(self.seed), "fits": fits}

    def _fits(self, method: Method) -> int:
        return self.trial_seeds if method.seeded else 1

    def _logged(self, method: Method) -> dict[str, float]:
        """Values by setting of the trials that the log holds."""
        if not self.log.exists():
            return {}
        key = self._key(method)
        with open(self.log, newline="", encoding="utf-8") as stream:
            held = [row for row in csv.DictReader(stream) if all(row[name] == value for name, value in key.items())]
        return {row["setting"]: float(row["value"]) for row in held}
