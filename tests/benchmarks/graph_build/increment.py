"""Part increment: the log's last day added to the graph of the days before it, against the whole log at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from data import parts
from data.artifacts import ArtifactRef
from data.errors import BadDataError
from graph.segments import plan
from tests.benchmarks.graph_build import world
from tests.benchmarks.graph_build.bench import Bench


def measure(bench: Bench) -> None:
    """Rows of the new day, with compaction apart, for each configuration asked for."""
    before = world.before_last_day(bench.store, bench.whole)
    share = 1 - before.metrics["rows"]["events"] / bench.events
    bench.add("increment", "", "share of the events", "ratio", [share])
    rewritten = _rewritten(parts.days(bench.whole))
    bench.add("increment", "", "rows compacted per new row, mean of all days", "ratio", [float(np.mean(rewritten))])
    bench.add("increment", "", "rows compacted per new row, last day", "ratio", [rewritten[-1]])
    for name, options in bench.configs.items():
        _measure(bench, before, name, options)


def _measure(bench: Bench, before: ArtifactRef, name: str, options: dict[str, Any]) -> None:
    previous, _ = bench.build(f"{name}-before", before, options)
    days, compactions, fulls, cpu = [], [], [], []
    for turn in range(bench.repeats):
        at_once, full = bench.build(f"{name}-at-once-{turn}", bench.whole, options)
        grown, added = bench.build(f"{name}-day-{turn}", bench.whole, options, previous)
        _equal(at_once, grown)
        compaction = float(added.said["metrics"]["increment"]["seconds"].get("compact", 0.0))
        compactions.append(compaction)
        days.append(added.said["stage"] - compaction)
        fulls.append(full.said["stage"])
        cpu.append(added.said["cpu"] / full.said["cpu"])
        bench.drop(at_once)
        bench.drop(grown)
    bench.drop(previous)
    ratios = [day / full for day, full in zip(days, fulls, strict=True)]
    bench.add(f"increment, {name}", "strata", "time of the new day", "s", days)
    bench.add(f"increment, {name}", "strata", "time of compaction", "s", compactions)
    bench.add(f"increment, {name}", "strata", "time of the build at once", "s", fulls)
    bench.add(f"increment, {name}", "new day / build at once", "time", "ratio", ratios)
    bench.add(f"increment, {name}", "new day with compaction / build at once", "CPU time", "ratio", cpu)


def _equal(at_once: ArtifactRef, grown: ArtifactRef) -> None:
    """Raise BadDataError unless both hold the same files, byte for byte."""
    first, second = ({name: file["sha256"] for name, file in ref.manifest["files"].items()} for ref in (at_once, grown))
    differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    if differing:
        raise BadDataError(f"expected day by day to equal at once, but {len(differing)} files differ: {differing[:5]}")


def _rewritten(rows: dict[int, int]) -> list[float]:
    """By day, rows of earlier segments that the day's coming rewrites, per row of the day."""
    days = sorted(rows)
    last = [plan({day: rows[day] for day in days[: count + 1]})[-1] for count in range(len(days))]
    return [(segment.rows - rows[day]) / rows[day] for day, segment in zip(days, last, strict=True)]
