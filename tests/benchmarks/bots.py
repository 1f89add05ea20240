"""Bots push ten products: how much of what they gain the guards take back, and what that costs people.

    python -m tests.benchmarks.bots [--seeds 1 2 3] [--learners 3]

Exposure is the share of people's top-20 slots that hold a target; lift is the exposure with bots less that of the same
log without them; cut is 1 - lift with guards / lift without. Both worlds of a seed hold the very same people. Appends
rows to results/graph.csv. The limits were set on seed 0, which is not reported.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graph import guards
from tests.benchmarks import rows
from tests.benchmarks.planted_bots import BEHAVIOURS, TOP, Figures, World, log_config

_ARMS = {"unguarded": None, "guarded": guards.Config()}
Measured = dict[tuple[str | None, str], list[Figures]]
"""By behaviour (None: no bots) and arm, the figures of every seed and learner, in the same order."""


def main() -> None:
    """Measure every behaviour with and without guards and append what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="seeds of the logs")
    parser.add_argument("--learners", type=int, default=3, help="learners trained on each log")
    parser.add_argument("--behaviours", nargs="+", default=list(BEHAVIOURS), choices=list(BEHAVIOURS))
    parser.add_argument("--dry", action="store_true", help="append nothing")
    options = parser.parse_args()
    found: Measured = {}
    cut: list[float] = []
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as scratch:
            world = World(log_config(seed), Path(scratch))
            cut.append(world.cut(None, guards.Config()))
            measure(world, options.behaviours, options.learners, found)
    size = log_config(0)
    shape = f"{size.users} users, {size.products} products, {size.events} events, {len(options.seeds)} logs"
    people = {"metric": "engaged events cut", "unit": "share", **rows.spread(cut)}
    made = [{"what": "no bots", "peer": "guarded", **people}, *report(found, options.behaviours)]
    for row in made:
        print(*(row[name] for name in ("what", "peer", "metric", "p20", "p50", "p80")), sep="  ")
    if not options.dry:
        rows.append("graph", made, shape=shape, versions=rows.versions_of(), git_sha=rows.commit())


def measure(world: World, behaviours: list[str], learners: int, found: Measured) -> None:
    """Add the figures of one log to `found`."""
    for behaviour in (None, *behaviours):
        for arm, limits in _ARMS.items():
            for learner in range(learners):
                figures = world.figures(behaviour, limits, learner)
                found.setdefault((behaviour, arm), []).append(figures)
                print(world.config.seed, behaviour or "no bots", arm, learner, figures, flush=True)


def report(found: Measured, behaviours: list[str]) -> Iterator[dict[str, Any]]:
    """Rows: exposure and recall of every arm, and of each behaviour the cut of its lift and the recall it costs."""
    clean = found[None, "unguarded"]
    for (behaviour, arm), figures in found.items():
        what = {"what": f"bots, {behaviour}" if behaviour else "no bots", "peer": arm}
        yield {**what, "metric": f"targets in top {TOP}", "unit": "share", **rows.spread([f.exposure for f in figures])}
        yield {**what, "metric": f"recall@{TOP}", "unit": "share", **rows.spread([f.recall for f in figures])}
    for behaviour in behaviours:
        before, after = (_mean(found[behaviour, arm], "exposure") - _mean(clean, "exposure") for arm in _ARMS)
        cut = {"metric": "lift cut by the guards", "unit": "share", **rows.spread([1 - after / before])}
        yield {"what": f"bots, {behaviour}", "peer": "guarded", **cut}
        yield _loss(f"bots, {behaviour}", found[behaviour, "guarded"], clean)
    yield _loss("no bots", found[None, "guarded"], clean)


def _loss(what: str, guarded: list[Figures], clean: list[Figures]) -> dict[str, Any]:
    """Recall lost, relative, over all logs and learners; p20 and p80 are one standard error to either side."""
    each = np.array([1 - a.recall / b.recall for a, b in zip(guarded, clean, strict=True)])
    loss = 1 - _mean(guarded, "recall") / _mean(clean, "recall")
    error = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else 0.0
    marks = {name: float(f"{loss + by * error:.4g}") for name, by in (("p20", -1), ("p50", 0), ("p80", 1))}
    metric = f"recall@{TOP} lost against no bots, unguarded (mean, one standard error)"
    return {"what": what, "peer": "guarded", "metric": metric, "unit": "share", **marks}


def _mean(figures: list[Figures], name: str) -> float:
    return float(np.mean([getattr(found, name) for found in figures]))


if __name__ == "__main__":
    main()
