"""Random search on the validation exam: the same number of trials for every method, every one of them logged."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from data.errors import UsageError, nearest
from hierarchy.baselines.blend import Blend
from hierarchy.recall import Found, Inductive, Question, rank
from tests.benchmarks import rows
from tests.benchmarks.retrieval_quality.methods import METHODS, Method, Setting, Space, weights
from tests.benchmarks.retrieval_quality.protocols import Exam, Known, Protocol

COLUMNS = ("set", "method", "question", "trial", "seed", "setting", "metric", "value", "seconds", "git_sha", "date")
_KEPT = 12  # fitted methods
Chosen = dict[str, Setting]
"""The setting chosen for each question."""


@dataclass
class Search:
    """One budget for all: `trials` settings a method, drawn from `seed`, logged to `log`.

    With `resume`, trials that the log already holds for the same set, method, seed and setting are not run again. With
    `shard` (i, n) only every n-th setting from the i-th on is tried, so that n processes share a search.
    """

    trials: int
    seed: int
    device: str
    log: Path
    resume: bool = False
    methods: Sequence[Method] = METHODS
    shard: tuple[int, int] | None = None
    _parts: dict[tuple[str, ...], Inductive] = field(default_factory=dict)
    _chosen: dict[tuple[str, str], Chosen] = field(default_factory=dict)

    def check(self, name: str) -> None:
        """Raises UsageError unless `name` is a method or several joined by "+"."""
        known = [method.name for method in self.methods]
        for part in name.split("+"):
            if part not in known:
                raise UsageError(f"no method {part!r}: {nearest(part, known)}")

    def suits(self, name: str, known: Known) -> bool:
        """Whether a method, or every part of a sum, can run on what is known."""
        return all(self._method(part).suits(known) for part in name.split("+"))

    def learned(self, name: str) -> bool:
        """Whether a method, or a part of a sum, differs from seed to seed."""
        return any(self._method(part).learned for part in name.split("+"))

    def choose(self, name: str, protocol: Protocol) -> Chosen:
        """The best setting of a method for each validation question, by recall@k of the protocol."""
        key = (protocol.name, name)
        if key not in self._chosen:
            self._chosen[key] = self._searched(name, protocol)
        return self._chosen[key]

    def _searched(self, name: str, protocol: Protocol) -> Chosen:
        logged = self._logged(protocol.name, name) if self.resume else {}
        best: dict[str, tuple[float, Setting]] = {}
        for place, setting in enumerate(self._settings(name, protocol)):
            if self.shard is not None and place % self.shard[1] != self.shard[0]:
                continue
            values = logged.get(json.dumps(setting))
            if values is None or len(values) < len(protocol.valid.questions):
                values = self._try(name, place, setting, protocol)
            for question, value in values.items():
                if question not in best or value > best[question][0]:
                    best[question] = value, setting
        return {question: setting for question, (_, setting) in best.items()}

    def forget(self) -> None:
        """Let go of what was fitted: exams of different sets have the same names."""
        self._parts.clear()

    def answer(
        self, name: str, setting: Setting, exam: Exam, questions: Sequence[Question], depth: int, seed: int
    ) -> list[Found]:
        """Fit a method for an exam and rank for its users."""
        scorer = self.fit(name, setting, exam, seed)
        if exam.grown is not None:
            scorer = scorer.grown(exam.grown)
        return rank(scorer, questions, exam.users, depth)

    def fit(self, name: str, setting: Setting, exam: Exam, seed: int) -> Inductive:
        """A fitted method, or the sum of several."""
        names = name.split("+")
        if len(names) == 1:
            return self._fitted(name, setting, exam, seed)
        parts = [self._fitted(part, own, exam, seed) for part, own in zip(names, setting["parts"], strict=True)]
        return Blend(parts, [1.0, *(setting[f"weight of {part}"] for part in names[1:])], setting["scale"])

    def _fitted(self, name: str, setting: Setting, exam: Exam, seed: int) -> Inductive:
        """One method; the newest few are kept, for the next weights of a sum and for the tests of one."""
        key, method = (exam.name, name, json.dumps(setting), str(seed)), self._method(name)
        if method.dense:
            return method.fit(exam.known, setting, seed, self.device)
        if key not in self._parts:
            while len(self._parts) >= _KEPT:
                del self._parts[next(iter(self._parts))]
            self._parts[key] = method.fit(exam.known, setting, seed, self.device)
        return self._parts[key]

    def _method(self, name: str) -> Method:
        return next(method for method in self.methods if method.name == name)

    def _settings(self, name: str, protocol: Protocol) -> list[Setting]:
        names = name.split("+")
        if len(names) == 1:
            return drawn(self._method(name).space(protocol.valid.known), self.trials, self.seed)
        chosen = [self.choose(part, protocol) for part in names]
        # A sum is asked every question with the parts that were best at the first, by which all of it is tuned.
        first = protocol.valid.questions[0].name
        parts = [own[first] for own in chosen]
        return [{**setting, "parts": parts} for setting in drawn(weights(names), self.trials, self.seed)]

    def _try(self, name: str, place: int, setting: Setting, protocol: Protocol) -> dict[str, float]:
        start, exam = time.perf_counter(), protocol.valid
        found = self.answer(name, setting, exam, exam.questions, protocol.k, self.seed)
        seconds = time.perf_counter() - start
        values = {}
        for question, one in zip(exam.questions, found, strict=True):
            values[question.name] = float(np.nanmean(one.recall(protocol.k, protocol.over)))
        common = {
            "set": protocol.name,
            "method": name,
            "trial": place,
            "seed": self.seed,
            "setting": json.dumps(setting),
        }
        common |= {"metric": f"recall@{protocol.k}", "seconds": round(seconds, 2)}
        rows.append_trials(
            self.log,
            COLUMNS,
            [{**common, "question": asked, "value": f"{value:.6f}"} for asked, value in values.items()],
        )
        return values

    def _logged(self, protocol: str, name: str) -> dict[str, dict[str, float]]:
        """Values by question, by setting, of the trials that the log holds."""
        found: dict[str, dict[str, float]] = {}
        if not self.log.exists():
            return found
        with open(self.log, newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                if (row["set"], row["method"], row["seed"]) == (protocol, name, str(self.seed)):
                    found.setdefault(row["setting"], {})[row["question"]] = float(row["value"])
        return found


def drawn(space: Space, trials: int, seed: int) -> list[Setting]:
    """`trials` different settings: the default first, the rest at random; all of them where there are no more."""
    names = list(space)
    total = int(np.prod([len(space[name]) for name in names]))
    rng = np.random.default_rng(seed)
    picked = {(0,) * len(names): None}
    while len(picked) < min(trials, total):
        picked[tuple(int(rng.integers(len(space[name]))) for name in names)] = None
    return [{name: space[name][place] for name, place in zip(names, places, strict=True)} for places in picked]
