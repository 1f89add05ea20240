"""One run on one set: every method in turn, its figures over seeds, and the rows that say them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from data.artifacts import ArtifactRef, Store
from tests.benchmarks import rows
from tests.benchmarks.hierarchy_levels import measure, retrieval, trials
from tests.benchmarks.hierarchy_levels.ground import Ground
from tests.benchmarks.hierarchy_levels.methods import LEARNER, NAMES, Method, Setting, vectors_of

Values = dict[tuple[str, str], float]
"""Values by (what, metric)."""


class Bench:
    """Methods on one set; `emitted` is the folder of the artifacts of baselines, `results` that of the rows."""

    def __init__(self, ground: Ground, results: Path, emitted: Path, seeds: int, count: int, users: int) -> None:
        self.ground, self.results, self.store, self.seeds, self.trials = ground, results, Store(emitted), seeds, count
        self.versions = rows.versions_of("scipy", "igraph")
        self.asked = retrieval.windows(ground, users)

    def product_graph(self) -> None:
        """Density and drift of the graph between products."""
        self._figures("", [_values(measure.product_graph(self.ground))])

    def learner(self) -> None:
        """The learner's own levels, of each of its seeds."""
        found = []
        for refs in self.ground.seeds:
            found.append(self._measured(refs, None, self._learned(refs)))
        self._figures(LEARNER, found)

    def baseline(self, method: Method) -> None:
        """A baseline with settings chosen once; what divides a learner's vectors divides those of each of its seeds."""
        chosen, log = trials.choose(method, self.ground, self.ground.refs, self.trials)
        self._write(trials.LOG, log)
        own = method.space == "learner" and len(self.ground.seeds) > 1
        seeds = range(len(self.ground.seeds) if own else self.seeds)
        self._figures(method.name, [self._seed(method, chosen, seed) for seed in seeds])

    def _seed(self, method: Method, setting: Setting, seed: int) -> Values:
        learned = method.space == "learner"
        refs = self.ground.seeds[seed % len(self.ground.seeds)] if learned else self.ground.refs
        fitted = method.fit(self.ground, vectors_of(method, self.ground, refs), setting, seed)
        made = measure.emitted(method, fitted, self.ground, refs, self.store, f"{NAMES.index(method.name)}-{seed}")
        return self._measured(made, fitted, self._learned(refs) if learned else self._content)

    def _measured(
        self, refs: Mapping[str, ArtifactRef], fitted: measure.Fitted | None, vectors: retrieval.Reference
    ) -> Values:
        levels = _values(measure.quality(self.ground, refs, fitted))
        what = f"retrieval, {len(self.asked[1].users):,} users, products new to them, test window"
        standing = None if fitted is None or fitted.division.nearest else fitted.division.vectors[-1]
        through = retrieval.through_tokens(self.ground, refs, vectors, standing)
        found = {(what, metric): value for metric, value in through}
        return levels | found | _values(measure.primitive_graph(self.ground, refs))

    @cached_property
    def _content(self) -> retrieval.Reference:
        return retrieval.reference(self.ground, self.asked, self.ground.content_entities)

    def _learned(self, refs: Mapping[str, ArtifactRef]) -> retrieval.Reference:
        return retrieval.reference(self.ground, self.asked, self.ground.learned_entities(refs))

    def _figures(self, peer: str, seeds: list[Values]) -> None:
        """A row for each figure of a method, over its seeds."""
        shape = f"{self.ground.shape}, {len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
        found = []
        for what, metric in seeds[0]:
            values = [seed[what, metric] for seed in seeds]
            unit = "bits" if metric.startswith("drift,") else "ratio"
            row = {"what": what, "peer": peer, "metric": metric, "unit": unit, "shape": shape}
            found.append(row | rows.spread(values))
            print(f"{np.mean(values):10.4f}  {metric:46} {peer:40} {what} | {self.ground.name}", file=sys.stderr)
        self._write("hierarchy", found)

    def _write(self, name: str, found: list[dict[str, Any]]) -> None:
        common = {"versions": self.versions, "git_sha": rows.commit(), "dtype": "float32"}
        rows.write(self.results / f"{name}.csv", found, **common)


def _values(figures: Iterable[measure.Figure]) -> Values:
    return {(what, metric): value for what, metric, value in figures}
