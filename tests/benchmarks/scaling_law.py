"""Scaling of the ranker: NE against compute by depth, width, length, examples, and what feeds it; a law, and its test.

    strata bench scaling_law -- --examples store/examples/KEY [--axes depth,width,length,diagonal,examples,...]

Each axis is a row of sizes, smallest first. The law NE = E + A C^-alpha is fitted to all sizes but the largest, its
prediction is written, and only then the largest is run: rows say both, and how many standard deviations over seeds lie
between them. C: operations of training, from ranking.flops. All NE are of the validation window; the test is not read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from data.errors import StrataError, UsageError, nearest
from ranking.fitting import Schedule
from ranking.reader import Examples
from tests.benchmarks import rows
from tests.benchmarks.ranking import opened
from tests.benchmarks.scaling import law
from tests.benchmarks.scaling.points import AXES, Point, losses_of, size_of

RESULTS = rows.RESULTS / "scaling.csv"


def main() -> None:
    """Measure one axis after the other and append its rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=Path, default=None, help="folder of an examples artifact")
    parser.add_argument("--store", type=Path, default=None, help="store whose snapshot names the examples")
    parser.add_argument("--snapshot", default=None, help="id of the snapshot (default: the current one)")
    parser.add_argument("--axes", default=",".join(AXES), help="rows of sizes to measure (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=60_000, help="training rows where their number is not the axis")
    parser.add_argument("--seeds", type=int, default=3, help="fits of each size")
    parser.add_argument("--csv", type=Path, default=RESULTS, help="file the rows go to (default: %(default)s)")
    try:
        _run(parser.parse_args())
    except StrataError as error:
        print(f"scaling_law: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(options: argparse.Namespace) -> None:
    axes = options.axes.split(",")
    for name in axes:
        if name not in AXES:
            raise UsageError(f"no axis {name!r}: {nearest(name, AXES)}")
    if options.seeds < 2:
        raise UsageError(f"expected at least two seeds, whose spread judges a prediction, got {options.seeds}")
    examples = Examples.open(opened(options))
    common = {"versions": rows.versions_of(), "git_sha": rows.commit(), "dtype": "float32"}
    for name in axes:
        for line, points in AXES[name](options.rows).items():
            _axis(f"scaling, {name}{line}", points, examples, options, common)


def _axis(what: str, points: Sequence[Point], examples: Examples, options: argparse.Namespace, common: Any) -> None:
    """Rows of every size; the law of all but the last, and what it says of that one, are there before it is run."""
    schedule = Schedule(checks=4)
    compute = [size_of(examples, point, schedule) for point in points]
    losses: list[list[float]] = []
    for point, cost in zip(points[:-1], compute, strict=False):
        losses.append(losses_of(examples, point, schedule, options.seeds))
        rows.write(options.csv, [_size(what, point, cost, losses[-1])], **common)
    known = np.repeat(compute[:-1], options.seeds), np.concatenate(losses)
    fitted, said = law.fit(*known), {"what": what, "peer": "law", "shape": points[-1].shape}
    low, high = law.spread(*known, compute[-1])
    marks = {name: f"{value:.5g}" for name, value in (("p20", low), ("p50", fitted.at(compute[-1])), ("p80", high))}
    rows.write(options.csv, [{**said, "metric": "NE of the largest, said before", "unit": "ratio", **marks}], **common)
    last = losses_of(examples, points[-1], schedule, options.seeds)
    miss = (float(np.mean(last)) - fitted.at(compute[-1])) / max(float(np.std(last, ddof=1)), 1e-9)
    numbers = {"E": fitted.floor, "A": fitted.scale, "alpha": fitted.alpha, "compute of A": fitted.centre}
    lines = [_size(what, points[-1], compute[-1], last)]
    lines.append({**said, "metric": "miss of the largest", "unit": "sd over seeds", **rows.spread([miss])})
    lines += [{**said, "metric": name, "unit": "1", **rows.spread([value])} for name, value in numbers.items()]
    rows.write(options.csv, lines, **common)
    print(
        f"{what}: {np.mean(last):.4f}, said {fitted.at(compute[-1]):.4f} ({miss:+.1f} sd)", file=sys.stderr, flush=True
    )


def _size(what: str, point: Point, compute: float, losses: Sequence[float]) -> dict[str, Any]:
    shape = f"{point.shape}, {compute:.3g} {'users' if point.by_users else 'operations'}"
    return {"what": what, "peer": point.name, "metric": "NE", "unit": "ratio", "shape": shape, **rows.spread(losses)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
