"""Hierarchies compared: agreement with categories, use of the codebook, retrieval through tokens, density and drift.

    strata bench hierarchy [--store FOLDER]... [--sets amazon-scientific,completejourney] [--seeds 3] [--trials 20]

With --store, the published snapshots of finished stores; several of one set are its learner with several seeds.
Without, each set is run up to its tokens with every seed, in --work if that is given. All methods have the learner's
number of primitives at every level. Settings are chosen on half of the products (results/hierarchy_trials.csv holds
every trial), figures are of the other half; rows go to results/hierarchy.csv, p20/p50/p80 being over seeds.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from data.errors import StrataError, SystemStateError, UsageError, nearest
from tests.benchmarks import rows
from tests.benchmarks.hierarchy_levels import ground as grounds
from tests.benchmarks.hierarchy_levels.bench import Bench
from tests.benchmarks.hierarchy_levels.ground import Ground
from tests.benchmarks.hierarchy_levels.methods import LEARNER, LEIDEN, METHODS, NAMES

SETS = "amazon-scientific,completejourney"


def main() -> None:
    """Measure every method on every set and append rows, method by method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, action="append", default=[], help="finished store; may be given again")
    parser.add_argument("--sets", default=SETS, help="sets that are run without --store (default: %(default)s)")
    parser.add_argument("--methods", default="", help=f"beginnings of names, separated by ';', of: {'; '.join(NAMES)}")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of every baseline, and of the learners run here")
    parser.add_argument("--trials", type=int, default=20, help="settings tried of each baseline")
    parser.add_argument("--users", type=int, default=1000, help="users asked in retrieval, at most")
    parser.add_argument("--data", type=Path, default=None, help="folder of the public sets (default: $STRATA_DATA)")
    parser.add_argument("--results", type=Path, default=rows.RESULTS, help="folder the rows go to")
    parser.add_argument("--work", type=Path, default=None, help="folder for the stores that are made here, kept")
    try:
        _run(parser.parse_args())
    except StrataError as error:
        print(f"hierarchy: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(options: argparse.Namespace) -> None:
    names = _named(options.methods)
    if LEIDEN in names and importlib.util.find_spec("igraph") is None:
        raise SystemStateError("expected igraph for Leiden, found none: pip install -e '.[bench]', or name --methods")
    if options.data is not None:
        os.environ["STRATA_DATA"] = str(options.data.absolute())
    with tempfile.TemporaryDirectory(prefix="strata-bench-") as scratch:
        for ground in _grounds(options, Path(scratch)):
            emitted = Path(scratch) / "emitted" / ground.name
            bench = Bench(ground, options.results, emitted, options.seeds, options.trials, options.users)
            bench.product_graph()
            if LEARNER in names:
                bench.learner()
            for method in (method for method in METHODS if method.name in names):
                bench.baseline(method)


def _named(text: str) -> list[str]:
    """The methods whose names begin with one of the parts of `text`; all if it has none."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    for part in parts:
        if not any(name.startswith(part) for name in NAMES):
            raise UsageError(f"no method {part!r}: {nearest(part, NAMES)}")
    return [name for name in NAMES if not parts or name in parts or name.startswith(tuple(set(parts) - set(NAMES)))]


def _grounds(options: argparse.Namespace, scratch: Path) -> Iterator[Ground]:
    if options.store:
        yield from grounds.from_stores(options.store)
        return
    for name in options.sets.split(","):
        yield grounds.made(name.strip(), options.seeds, options.work or scratch / "made")


if __name__ == "__main__":
    main()
