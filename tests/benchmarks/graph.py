"""Graph build against pandas and Polars, growth, a day's increment, and sampling, on a generated log.

    strata bench graph [--events 10000000] [--parts build,increment,sampler,growth] [--repeats 3] [--scratch FOLDER]

Every builder runs in a process of its own on the same Parquet files with two threads. Rows go to results/graph.csv
after all builders were found to have built the same edges, and an increment the same files as a build at once. `growth`
builds ten times the events; peak memory is that of the builder's process. All files lie in --scratch until the end.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data.artifacts import Store
from data.errors import StrataError, SystemStateError, UsageError, nearest
from tests.benchmarks import rows
from tests.benchmarks.graph_build import compare, growth, increment, sampling, world
from tests.benchmarks.graph_build.bench import CONFIGS, Bench

PARTS = {
    "build": compare.measure,
    "increment": increment.measure,
    "sampler": sampling.measure,
    "growth": growth.measure,
}
PEERS = ("pandas", "polars")


def main() -> None:
    """Measure the parts asked for, print progress, append rows part by part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000, help="events of the log (default 10,000,000)")
    parser.add_argument(
        "--entities-of",
        type=int,
        default=None,
        help="have as many users, products and so on as a log of so many events (default: 1 user to 50 events, also "
        "in the larger log of `growth`)",
    )
    parser.add_argument("--days", type=int, default=100, help="days of the log")
    parser.add_argument("--parts", default="build,increment,sampler", help=f"any of {','.join(PARTS)}")
    parser.add_argument("--configs", default="plain,everything", help="which of both `increment` and `growth` build")
    parser.add_argument("--repeats", type=int, default=3, help="times each builder runs, in turn")
    parser.add_argument("--limit-gib", type=float, default=4.0, help="memory that `growth` is held against [GiB]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the log")
    parser.add_argument("--scratch", type=Path, default=None, help="folder for all files (default: the system's)")
    try:
        _run(parser.parse_args())
    except StrataError as error:
        print(f"graph: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(options: argparse.Namespace) -> None:
    parts = _named(options.parts, PARTS)
    configs = {name: CONFIGS[name] for name in _named(options.configs, CONFIGS)}
    _require_peers()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="strata-bench-", dir=options.scratch) as scratch:
        largest = options.events * (growth.TIMES + 1 if "growth" in parts else 1)
        world.check_disk(Path(scratch), largest)
        store = Store(Path(scratch) / "store")
        config = world.sized(options.events, options.days, options.seed, options.entities_of)
        whole, seconds = world.generate(store, config)
        bench = Bench(
            store, Path(scratch), whole, config, options.repeats, options.limit_gib, load, options.entities_of, configs
        )
        bench.say(f"log of {bench.events:,} events made in {seconds:.1f} s, {world.size_mb(whole):,.0f} MB")
        bench.add("generator", "", "time", "s", [seconds])
        bench.add("generator", "", "disk", "MB", [world.size_mb(whole)])
        for part in parts:
            PARTS[part](bench)
            bench.flush()


def _named(text: str, known: Mapping[str, Any]) -> list[str]:
    """The names in `text`, separated by commas; raises UsageError for one that is not in `known`."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(f"no part or configuration {name!r}: {nearest(name, known)}")
    return names


def _require_peers() -> None:
    missing = [name for name in PEERS if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemStateError(
            f"expected {' and '.join(PEERS)} to compare with, found no {' and no '.join(missing)}: "
            f"install the extra, {sys.executable} -m pip install -e '.[bench]' in {rows.RESULTS.parents[2]}"
        )


if __name__ == "__main__":
    main()
