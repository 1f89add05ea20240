"""Settings of a baseline, chosen by agreement with the categories of one half of the products; every trial is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from data.artifacts import ArtifactRef
from data.errors import BadDataError
from hierarchy.bags import Vectors
from hierarchy.level_quality import nmi
from tests.benchmarks.hierarchy_levels.ground import Ground
from tests.benchmarks.hierarchy_levels.methods import Fitted, Method, Setting, vectors_of

LOG = "hierarchy_trials"
"""Name of the result file that every trial goes to."""


def choose(
    method: Method, ground: Ground, refs: Mapping[str, ArtifactRef], count: int
) -> tuple[Setting, list[dict[str, Any]]]:
    """The setting with the best mean NMI over the levels on the choosing half, and a row for each of `count` trials."""
    vectors = vectors_of(method, ground, refs)
    rows: list[dict[str, Any]] = []
    best: tuple[float, Setting] | None = None
    for number, setting in enumerate(method.draws(count)):
        text = ", ".join(f"{name} {value}" for name, value in setting.items())
        try:
            found = score(ground, method.fit(ground, vectors, setting, 0), vectors)
        except BadDataError as error:  # a setting that the data do not allow is a trial that failed
            found, text = 0.0, f"{text} ({error})"
        what = {"what": f"trial {number + 1}: {text}", "peer": method.name, "metric": "NMI, mean of levels"}
        rows.append({**what, "unit": "ratio", "shape": f"{ground.shape}, choosing half", "p50": round(found, 4)})
        if best is None or found > best[0]:
            best = found, setting
    assert best is not None
    return best[1], rows


def score(ground: Ground, fitted: Fitted, vectors: Vectors) -> float:
    """Mean NMI over the levels with the categories of the products of the choosing half."""
    half = ground.chooses[: ground.fitted]
    assigned = fitted.division.assign(fitted.image(vectors))
    found = []
    for own, category in zip(assigned, ground.categories, strict=True):
        these = half & (category >= 0)
        found.append(nmi(own[these], category[these]))
    return float(np.mean(found))
