"""Ranking: NE, AUC, GAUC, calibration of the ranker, its arms and rivals, tuned alike on validation, tested once.

    strata bench ranking -- --examples store/examples/KEY [--methods ranker,din,hstu,...] [--trials 20] [--seeds 5]
    strata bench ranking -- --store store [--snapshot ID] ...

Every model gets the same training rows and the same number of random-search trials on the validation window, all
logged beside the result file; the setting with the least NE is fitted with every seed and scores the test window once.
A model is named as in ranking_quality/methods.py: `ranker`, `ranker-no_tokens`, `ranker-level_1`, `din`, `din-tokens`.
Rows go to results/ranking.csv, or to --csv: figures over seeds, calibration by decile, slices by what was known of
product, advertiser and user and by size of advertiser, and paired bootstrap differences over users to --reference.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from data import snapshot
from data.artifacts import ArtifactRef, Store
from data.errors import BadDataError, StrataError, UsageError
from ranking.evaluate import MIN_POSITIVES, Floats
from ranking.fitting import Schedule
from ranking.models import Architecture, Setup
from ranking.reader import TEST, Examples
from tests.benchmarks import rows
from tests.benchmarks.ranking_quality import figures
from tests.benchmarks.ranking_quality.figures import Exam
from tests.benchmarks.ranking_quality.methods import SPACES, Method
from tests.benchmarks.ranking_quality.search import Search

RESULTS = rows.RESULTS / "ranking.csv"
DEFAULT = (*SPACES, "ranker-no_tokens", "gradient_boosting-tokens", "dcnv2-tokens", "din-tokens", "hstu-tokens")


def main() -> None:
    """Tune, test and append the rows of one model after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=Path, default=None, help="folder of an examples artifact")
    parser.add_argument("--store", type=Path, default=None, help="store whose snapshot names the examples")
    parser.add_argument("--snapshot", default=None, help="id of the snapshot (default: the current one)")
    parser.add_argument("--name", default="examples", help="name of the data in the rows, put before the key")
    parser.add_argument("--methods", default=",".join(DEFAULT), help="models, or model-arm (default: %(default)s)")
    parser.add_argument("--reference", default="ranker", help="model that the others are compared with")
    parser.add_argument("--rows", type=int, default=60_000, help="training rows of every model, about")
    parser.add_argument("--trials", type=int, default=20, help="settings tried for each model")
    parser.add_argument("--trial-seeds", type=int, default=2, help="fits of a trial, whose mean NE is its value")
    parser.add_argument("--seeds", type=int, default=5, help="test fits of each model that differs by seed")
    parser.add_argument("--seed", type=int, default=0, help="of the search and of the first test fit")
    parser.add_argument("--min-positives", type=int, default=MIN_POSITIVES, help="of a slice that gets rows, at least")
    parser.add_argument(
        "--shard", default="", metavar="i/n", help="only try every n-th setting from the i-th on; --resume tests later"
    )
    parser.add_argument("--resume", action="store_true", help="take trials and tests that are there as done")
    parser.add_argument("--fits", type=Path, default=Path("runs/ranking"), help="folder of the test logits")
    parser.add_argument("--csv", type=Path, default=RESULTS, help="file the rows go to (default: %(default)s)")
    try:
        _run(parser.parse_args())
    except StrataError as error:
        print(f"ranking: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(options: argparse.Namespace) -> None:
    for option in ("trials", "trial_seeds", "seeds", "rows"):
        if (came := getattr(options, option)) < 1:
            raise UsageError(f"expected --{option.replace('_', '-')} of at least 1, got {came}")
    shard = rows.shard(options.shard) if options.shard else None
    examples = Examples.open(opened(options))
    setup = Setup.open(examples, options.rows, Architecture(), Schedule(checks=4))
    names = list(dict.fromkeys([options.reference, *options.methods.split(",")]))
    methods = [Method.named(name, setup) for name in names]
    log, name = options.csv.with_name(f"{options.csv.stem}_trials.csv"), f"{options.name}-{examples.ref.key[:8]}"
    budget = options.trials, options.seed, log, options.fits, options.trial_seeds
    search = Search(name, setup, *budget, options.resume, shard)
    if shard is None:
        _measure(search, methods, options)
        return
    for method in methods:
        search.choose(method)


def opened(options: argparse.Namespace) -> ArtifactRef:
    """The examples that --examples, or --store and --snapshot, name; raises UsageError unless one of them does."""
    if (options.examples is None) == (options.store is None):
        raise UsageError("expected --examples, the folder of an artifact, or --store, got both or neither")
    if options.store is not None:
        store = Store(options.store)
        return snapshot.load(store, options.snapshot).ref(store, "examples")
    folder: Path = options.examples.resolve()
    if not (folder / "manifest.json").exists():
        raise BadDataError(f"expected an examples artifact in {options.examples}, found no manifest.json there")
    return ArtifactRef("examples", folder.name, folder)


def _measure(search: Search, methods: list[Method], options: argparse.Namespace) -> None:
    """Tune and test all models; a model's rows are written when it is done, comparisons at the end."""
    examples, found = search.setup.examples, dict[str, list[Floats]]()
    exam = Exam.of(examples, f"{search.name}, test", options.min_positives)
    shape = f"{len(search.setup.sample.train)} training x {len(examples.rows(TEST))} test rows"
    common: dict[str, Any] = {"versions": rows.versions_of("lightgbm"), "git_sha": rows.commit()}
    common |= {"shape": shape, "dtype": "float32"}
    rows.write(options.csv, figures.counts(exam), **common)
    for method in methods:
        setting, value = search.choose(method)
        print(f"{method.name}: validation NE {value:.4f} with {setting}", file=sys.stderr, flush=True)
        seeds = range(search.seed, search.seed + (options.seeds if method.seeded else 1))
        runs = found[method.name] = [search.test(method, setting, seed) for seed in seeds]
        tuned = {"what": f"{search.name}, validation", "peer": method.name, "metric": "NE", "unit": "ratio"}
        lines = [{**tuned, **rows.spread([value])}, *figures.judged(exam, method.name, runs)]
        rows.write(options.csv, lines, **common)
    gaps = figures.differences(exam, options.reference, found, search.seed)
    rows.write(options.csv, gaps, **common)


if __name__ == "__main__":
    torch.set_num_threads(1)  # as the stage fits: operations are too small to share
    main()
