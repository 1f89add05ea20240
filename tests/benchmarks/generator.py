"""Generated events per second in one process, made alone and written as raw Parquet, and memory as the log grows.

    python -m tests.benchmarks.generator [--repeats 3]

Appends rows to results/graph.csv after the smaller log has been found equal, file by file, in two runs. CPU rates count
the processor's time of all threads: on a machine that others use too they are the steadier ones.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from data.artifacts import sha256_file
from data.generator import log, write
from data.generator.config import Config
from data.generator.plan import make_plan
from tests.benchmarks import children, rows

_SIZES = (2_000_000, 20_000_000)


def config(events: int) -> Config:
    """A log of 20 days and `events` events, with bots and canaries."""
    size = {"users": 100_000, "products": 50_000, "advertisers": 2000, "campaigns": 200, "days": 20}
    return Config(events=events, bots=0.001, canaries=1000, canary_day=15, **size)


def work(events: Path, folder: Path) -> int:
    """In a process of its own: write `events` events below `folder`, or only make them where it is "-"; how many."""
    wanted = config(int(events.name))
    if folder.name == "-":
        plan = make_plan(wanted)
        return sum(len(table) for day in range(wanted.days) for table in log.day(plan, day))
    return sum(write.raw(wanted, folder).values())


def main() -> None:
    """Check equality, measure, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dry", action="store_true", help="append nothing")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        hashes = [_written(Path(scratch) / name) for name in ("one", "two")]
        if hashes[0] != hashes[1]:
            raise SystemExit("two runs with one config wrote different files: no rate is recorded")
        for events in _SIZES:
            for what in ("generator, rows alone", "generator, raw Parquet"):
                folder = "-" if what.endswith("alone") else f"{scratch}/out"
                runs = [_run(str(events), folder) for _ in range(options.repeats)]
                shape = {"what": what, "shape": f"{runs[0].said} events"}
                for name, unit, values in (
                    ("rate", "events/s", [run.said / run.seconds for run in runs]),
                    ("rate by CPU time", "events/s", [run.said / run.cpu for run in runs]),
                    ("peak memory", "MB", [run.peak_mb for run in runs]),
                ):
                    found.append({**shape, "metric": name, "unit": unit, **rows.spread(values)})
    for row in found:
        print(*(row[name] for name in ("what", "shape", "metric", "p20", "p50", "p80")), sep="  ")
    if not options.dry:
        rows.append("graph", found, versions=rows.versions_of(), git_sha=rows.commit())


def _written(folder: Path) -> dict[str, str]:
    write.raw(config(_SIZES[0]), folder)
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in sorted(folder.rglob("*.parquet"))}


def _run(*arguments: str) -> children.Measured:
    return children.run("tests.benchmarks.generator_child", arguments)


if __name__ == "__main__":
    main()
