"""Serving: milliseconds in which the ranker of a snapshot ranks candidates of one user, on one core.

    strata bench serving -- --store store [--fit ranker-tokens-0] [--candidates 100,1000] [--requests 200]

Rows go to results/ranking.csv, or to --csv, only after the service gave the scores that the ranker stage wrote for
test rows. A request is `RankerService.rank`: joins, batch, network, sorting. Cached: the user's joins are made already.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from data import snapshot
from data.artifacts import ArtifactRef, Store
from data.errors import StrataError
from data.schema import MICROS_PER_DAY
from ranking.reader import TEST, Examples
from ranking.serve import INPUTS, RankerService, Request
from tests.benchmarks import rows

GATE_ROWS = 2_000
"""Test rows whose scores must be those of the ranker stage."""

WARM_UPS = 20


@dataclass(frozen=True)
class Subject:
    """An open service, and what to ask it."""

    service: RankerService
    examples: Examples
    users: list[str]
    surface: str | None
    ts: int

    def candidates(self, count: int, seed: int) -> list[str]:
        """`count` products drawn at random, each once as long as there are enough."""
        rng, products = np.random.default_rng(seed), self.service.products
        drawn = rng.choice(len(products), count, replace=count > len(products))
        return [products[int(place)].as_py() for place in drawn]


def opened(store: Path, snapshot_id: str | None, fit: str) -> tuple[Subject, ArtifactRef]:
    """The service of a snapshot, asked a day after the last row, and its ranker."""
    found = snapshot.load(Store(store), snapshot_id)
    refs = {name: found.ref(Store(store), name) for name in ("ranker", *INPUTS)}
    service, examples = RankerService.open(refs["ranker"], refs, fit), Examples.open(refs["examples"])
    # Users of the test rows, the ones with the longest histories first: nobody's memory is shorter than in training.
    columns, test = examples.columns, examples.rows(TEST)
    users, first = np.unique(columns["user"][test], return_index=True)
    length = (columns["history_end"] - columns["history_start"])[test][first]
    names = refs["examples"].table("users.parquet")["user_id"].to_pylist()
    ordered = [names[user] for user in users[np.argsort(-length, kind="stable")]]
    surface = examples.surfaces[0] if examples.surfaces else None
    return Subject(service, examples, ordered, surface, examples.end + MICROS_PER_DAY), refs["ranker"]


def check_scores(subject: Subject, ranker: ArtifactRef, fit: str) -> None:
    """Raise AssertionError unless test rows score as in predictions.parquet, within 1e-5."""
    model, arm, seed = fit.split("-")
    table = ranker.table("predictions.parquet")
    mine = pc.and_(pc.equal(table["model"], model), pc.equal(table["arm"], arm))
    predicted = table.filter(pc.and_(mine, pc.equal(table["seed"], int(seed))))["score"].to_numpy()[:GATE_ROWS]
    ref, columns, test = subject.examples.ref, subject.examples.columns, subject.examples.rows(TEST)[:GATE_ROWS]
    ids = {kind: ref.table(f"{kind}s.parquet")[f"{kind}_id"].to_pylist() for kind in ("user", "product", "advertiser")}
    names = {kind: [known[code] if code >= 0 else None for code in columns[kind][test]] for kind, known in ids.items()}
    surfaces = [subject.examples.surfaces[code] if code >= 0 else None for code in columns["surface"][test]]
    asked = [
        Request(user, [product], int(ts), [surface], [advertiser])
        for user, product, advertiser, ts, surface in zip(*names.values(), columns["ts"][test], surfaces, strict=True)
    ]
    scores = np.array([ranking.score[0] for ranking in subject.service.rank_many(asked)])
    np.testing.assert_allclose(scores, predicted, rtol=1e-5, atol=1e-8)


def measured(subject: Subject, count: int, requests: int) -> list[dict[str, Any]]:
    """Rows of one number of candidates: a cached user's latency and CPU time, and that of a user not seen before."""
    candidates = subject.candidates(count, seed=0)

    def cached() -> Any:
        return subject.service.rank(subject.users[0], candidates, subject.ts, subject.surface)

    fresh = iter(range(1, 1 + WARM_UPS + requests))

    def first() -> Any:
        return subject.service.rank(subject.users[0], candidates, subject.ts + next(fresh), subject.surface)

    shape = f"{count:,} candidates of {len(subject.service.products):,} products"
    return [
        *_rows("rank, cached user", shape, _timed(cached, requests)),
        *_rows("rank, first request of a user", shape, _timed(first, requests)),
    ]


def _timed(ask: Callable[[], Any], requests: int) -> tuple[list[float], list[float]]:
    """Wall and CPU milliseconds of each request; on a shared machine only the latter say what the code costs."""
    wall, cpu = [], []
    for number in range(WARM_UPS + requests):
        before = time.perf_counter(), time.thread_time()
        ask()
        spent = time.perf_counter() - before[0], time.thread_time() - before[1]
        if number >= WARM_UPS:
            wall.append(1e3 * spent[0])
            cpu.append(1e3 * spent[1])
    return wall, cpu


def _rows(what: str, shape: str, samples: tuple[list[float], list[float]]) -> list[dict[str, Any]]:
    start = {"what": what, "unit": "ms", "shape": shape, "dtype": "float32"}
    found = []
    for metric, values in zip(("latency", "CPU time"), samples, strict=True):
        found.append({**start, "metric": metric, **rows.spread(values)})
        found.append({**start, "metric": f"{metric}, p99", **rows.spread([float(np.quantile(values, 0.99))])})
    return found


def main() -> None:
    """Check the scores, measure each number of candidates, print the rows and append them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("store"), help="folder of artifacts (default: %(default)s)")
    parser.add_argument("--snapshot", default=None, help="snapshot id (default: the published one)")
    parser.add_argument("--fit", default="ranker-tokens-0", help="which fit of the ranker (default: %(default)s)")
    parser.add_argument("--candidates", default="100,1000", help="candidates of a request, by commas")
    parser.add_argument("--requests", type=int, default=200, help="requests measured of each kind")
    parser.add_argument("--csv", type=Path, default=rows.RESULTS / "ranking.csv", help="file the rows go to")
    try:
        _run(parser.parse_args())
    except StrataError as error:
        print(f"serving: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(given: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(1)
    where = f"{rows.machine()}, one used, load {os.getloadavg()[0]:.1f}"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    subject, ranker = opened(given.store, given.snapshot, given.fit)
    check_scores(subject, ranker, given.fit)
    found = [row for count in map(int, given.candidates.split(",")) for row in measured(subject, count, given.requests)]
    for row in found:
        print(f"{row['p50']:>9.4g} {row['unit']} {row['metric']:14} {row['what']} | {row['shape']}")
    common = {"machine": where, "versions": rows.versions_of(), "git_sha": rows.commit()}
    rows.write(given.csv, found, **common)


if __name__ == "__main__":
    main()
