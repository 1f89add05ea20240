"""The rows of results/ablation.csv: made from fits, and read back as a table in markdown."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks import rows
from tests.benchmarks.ablations.fits import LEVELS, Fit
from tests.benchmarks.ablations.variants import FULL
from tests.benchmarks.retrieval_quality.figures import resampled

REFUSED, SECONDS = "publish refused", "training and ranking"
EDGES = (2.5, 97.5)
Cells = dict[tuple[str, str, str], float]
"""p50 by set, variant and metric."""


def of_variant(name: str, found: Sequence[Fit], whole: Sequence[Fit], shape: str) -> Iterator[dict[str, Any]]:
    """Figures over seeds; recall also as difference to the whole recipe, paired by seed, resampled over users."""
    common = {"what": name, "shape": shape, "dtype": "float32"}
    kept = [place for place, fit in enumerate(found) if not fit.refused]
    yield {**common, "metric": SECONDS, "unit": "s", **rows.spread([fit.seconds for fit in found])}
    yield {**common, "metric": REFUSED, "unit": "ratio", **rows.spread([float(bool(fit.refused)) for fit in found])}
    if not kept:
        return
    for metric in found[kept[0]].figures:
        values = [found[place].figures[metric] for place in kept]
        yield {**common, "metric": metric, "unit": "ratio", **rows.spread(values)}
    paired = [place for place in kept if not whole[place].refused]
    if name == FULL or not paired:
        return
    for metric in found[paired[0]].users:
        gaps = [found[place].users[metric] - whole[place].users[metric] for place in paired]
        gap = resampled(np.mean(gaps, axis=0), 0)
        row = {**common, "peer": FULL, "unit": "ratio"}
        yield {**row, "metric": f"{metric}: difference", **rows.spread(list(gap))}
        for edge in EDGES:
            value = rows.spread([float(np.percentile(gap, edge))])
            yield {**row, "metric": f"{metric}: difference, {edge} %", **value}


def markdown(file: Path) -> str:
    """A table for each set: recall with its difference and the 95 % interval, then the worst level of the codebook."""
    cells = read(file)
    parts = [_of_set(name, cells) for name in dict.fromkeys(place[0] for place in cells)]
    return "\n\n".join(parts)


def read(file: Path) -> Cells:
    """The newest p50 of each set, variant and metric; empty without a file."""
    found: Cells = {}
    if file.exists():
        with open(file, newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                found[row["shape"].partition(",")[0], row["what"], row["metric"]] = float(row["p50"])
    return found


def variants_in(name: str, cells: Cells) -> list[str]:
    """Variants of a set, the whole recipe first, then by what they lose in the first measure."""
    found = list(dict.fromkeys(place[1] for place in cells if place[0] == name))
    gaps = [place[2] for place in cells if place[0] == name and place[2].endswith(": difference")]
    by = gaps[0] if gaps else ""
    return sorted(found, key=lambda variant: (variant != FULL, cells.get((name, variant, by), np.inf), variant))


def _of_set(name: str, cells: Cells) -> str:
    metrics = list(dict.fromkeys(place[2] for place in cells if place[0] == name))
    recalls = [metric for metric in metrics if metric.startswith("recall@") and "difference" not in metric]
    heads = [name, *(f"{metric}" for metric in recalls), *LEVELS.values()]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for variant in variants_in(name, cells):
        own = {metric: cells[name, variant, metric] for metric in metrics if (name, variant, metric) in cells}
        if own.get(REFUSED, 0) >= 1:
            lines.append([variant, "collapsed: publish refused", *[""] * (len(heads) - 2)])
            continue
        lines.append(
            [variant, *(_recall(own, metric) for metric in recalls), *(_level(own, m) for m in LEVELS.values())]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _recall(own: Mapping[str, float], metric: str) -> str:
    if metric not in own:
        return ""
    gap = f"{metric}: difference"
    if gap not in own:
        return f"{own[metric]:.4f}"
    low, high = (own[f"{gap}, {edge} %"] for edge in EDGES)
    return f"{own[metric]:.4f} ({own[gap]:+.4f}, {low:+.4f} to {high:+.4f})"


def _level(own: Mapping[str, float], metric: str) -> str:
    """The values of all levels, coarse to fine."""
    return " / ".join(f"{value:.2f}" for name, value in own.items() if name.startswith(f"{metric}, K "))
