"""Delayed labels: how much of what a late conversion costs each strategy wins back, on logs with planted delay laws.

    strata bench delayed [--laws exponential,lognormal,mixture,lengthening,repurchases] [--seeds 0 1 2 3 4]

One logistic regression, trained at the cut on the labels and weights of each strategy, is judged by the final labels of
clicks of the week after. "gap closed" is (NE naive - NE) / (NE naive - NE oracle); "ne over oracle" is NE - NE oracle,
both within a seed. "calibration" is expected over observed conversions. "calibration, delay a-b d" compares conversions
expected after a to b days, the sum of p (F(b) - F(a)) with F the law that `importance` estimated at the cut (for all
strategies, so that they differ by p alone), with those that came; a bucket appears when it has 1,000 conversions or
more in every seed. The model errs about new campaigns whatever its labels: "calibration over oracle" is what delays
alone cost, in all buckets alike. Beside the strategies: those that need a law with the planted one and with one for
all groups, and `importance` with rows of equal weight. "repurchases" are real: Complete Journey, five cuts in place of
seeds. p20, p50 and p80 are over seeds or cuts. Rows go to results/ranking.csv. Half-life and prior of the law were
chosen on seeds from 100 on, the groups of real rows on two other cuts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from data.errors import StrataError, UsageError, nearest
from data.schema import MICROS_PER_DAY
from ranking.delayed import (
    NEVER,
    Delayed,
    censored,
    corrected,
    importance,
    law_at,
    likelihood,
    naive,
    oracle,
    waiting,
)
from ranking.evaluate import Floats, calibration, normalized_entropy, sigmoid
from tests.benchmarks import rows
from tests.benchmarks.delayed_feedback import panel
from tests.benchmarks.delayed_feedback.log import DAYS, LAWS, TEST_DAYS, WINDOW_DAYS, Log, World
from tests.benchmarks.delayed_feedback.model import design, fit

REAL = "repurchases"
BUCKETS = (0, 1, 3, 7, 14)
"""Where delay buckets start [days]; the last ends with the window."""

LEAST = 1_000
"""Conversions below which a bucket shows mostly noise."""

Figures = dict[str, float]
"""By metric, of one strategy under one law and seed; NaN where a bucket holds too little."""


def main() -> None:
    """Measure each law and append its rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--laws", default=",".join((*LAWS, REAL)), help="planted delay laws, or the real one")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="seeds of the logs; or cuts, to 4"
    )
    parser.add_argument("--clicks", type=int, default=400_000, help="clicks before the cut; twice as many after it")
    parser.add_argument("--dry", action="store_true", help="append nothing")
    try:
        _run(parser.parse_args())
    except StrataError as error:
        print(f"delayed: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(options: argparse.Namespace) -> None:
    for law in options.laws.split(","):
        made = list(table(law, [measure(*logs(law, seed, options.clicks)) for seed in options.seeds]))
        shape = f"{shape_of(law, options.clicks)}, {len(options.seeds)} {'cuts' if law == REAL else 'seeds'}"
        for row in made:
            print(*(row[name] for name in ("what", "peer", "metric", "p20", "p50", "p80")), sep="  ", flush=True)
        if not options.dry:
            common = {"shape": shape, "dtype": "float64", "versions": rows.versions_of(), "git_sha": rows.commit()}
            rows.append("ranking", made, **common)


def logs(law: str, seed: int, clicks: int) -> tuple[Log, Log]:
    """Clicks before and after the cut; raises UsageError for an unknown law."""
    if law == REAL:
        return panel.logs(seed)
    if law not in LAWS:
        raise UsageError(f"no delay law {law!r}: {nearest(law, (*LAWS, REAL))}")
    world = World(law, seed)
    return world.train(clicks), world.test(2 * clicks)


def shape_of(law: str, clicks: int) -> str:
    """What was trained and judged on, in words."""
    if law == REAL:
        return f"Complete Journey, {DAYS} d, judged on {panel.TEST_DAYS} d, window {panel.WINDOW_DAYS} d"
    return f"{clicks} clicks in {DAYS} d, judged on {2 * clicks} in {TEST_DAYS} d, window {WINDOW_DAYS} d"


def measure(log: Log, future: Log) -> dict[str, Figures]:
    """Figures of every strategy on one log."""
    inputs, judged, shares = design(log), design(future), _bucket_shares(log, future)
    found, start = {}, None
    for name, labelled in strategies(log).items():
        start = fit(inputs, labelled, start)
        found[name] = _judge(judged @ start, future, shares)
    worst, best = found["naive"]["ne"], found["oracle"]["ne"]
    for figures in found.values():
        figures["gap closed"] = (worst - figures["ne"]) / (worst - best)
        figures["ne over oracle"] = figures["ne"] - best
        figures["calibration over oracle"] = figures["calibration"] / found["oracle"]["calibration"]
    return found


def strategies(log: Log) -> dict[str, Delayed]:
    """Labels and weights at the cut, by strategy."""
    clicks, cut = log.clicks, log.cut
    weighted, alike = importance(clicks, cut), replace(clicks, group=np.zeros_like(clicks.group))
    made = {
        "oracle": oracle(clicks, cut),
        "naive": naive(clicks, cut),
        "waiting": waiting(clicks, cut),
        "importance": weighted,
        "likelihood": likelihood(clicks, cut),
        "importance, equal weights": Delayed.of(weighted.label, weighted.known.astype(np.float32)),
        "importance, one law": importance(alike, cut),
        "likelihood, one law": likelihood(alike, cut),
    }
    if log.known_share is not None:
        made["importance, planted law"] = corrected(clicks, cut, log.known_share)
        made["likelihood, planted law"] = censored(clicks, cut, log.known_share)
    return made


def table(law: str, found: Sequence[dict[str, Figures]]) -> Iterator[dict[str, Any]]:
    """A row for each strategy and metric that is defined in every seed."""
    for name in found[0]:
        for metric in found[0][name]:
            values = [figures[name][metric] for figures in found]
            if np.isfinite(values).all() and not ("," in name and "," in metric):  # of variants no buckets
                kind = {"what": f"delayed labels, {law}", "peer": name, "metric": metric, "unit": "ratio"}
                yield {**kind, **rows.spread(values)}


def _bucket_shares(log: Log, future: Log) -> Floats:
    """(buckets, n) part of a future click's conversions that is expected in each bucket, by the law at the cut."""
    law, group = law_at(log.clicks, log.cut), future.clicks.group
    reached = [law.known_by(np.full(len(group), day * float(MICROS_PER_DAY)), group) for day in BUCKETS]
    reached.append(np.ones(len(group)))
    return np.stack([high - low for low, high in pairwise(reached)])


def _judge(logits: Floats, future: Log, shares: Floats) -> Figures:
    labels, weights = (future.clicks.reported < NEVER).astype(np.float64), np.ones(len(logits))
    found = {"ne": normalized_entropy(logits, labels, weights), "calibration": calibration(logits, labels, weights)}
    expected = shares @ sigmoid(logits)
    ends = (*BUCKETS, future.clicks.window // MICROS_PER_DAY)
    for (low, high), mine in zip(pairwise(ends), expected, strict=True):
        came = np.count_nonzero((future.delay > low) & (future.delay <= high))
        found[f"calibration, delay {low}-{high} d"] = float(mine / came) if came >= LEAST else float("nan")
    return found


if __name__ == "__main__":
    main()
