"""Part build: our build, Polars' and pandas' on the same files in turn, then our build with everything switched on."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from graph.store import GraphStore
from tests.benchmarks import children
from tests.benchmarks.children import Measured
from tests.benchmarks.graph_build import gate, world
from tests.benchmarks.graph_build.bench import FULL, PLAIN, Bench

PEERS = ("polars", "pandas")


def measure(bench: Bench) -> None:
    """Rows of every builder, and of each peer over ours in the same round."""
    runs: dict[str, list[Measured]] = defaultdict(list)
    for turn in range(bench.repeats):
        first = turn == 0
        built, done = bench.build(f"plain-{turn}", bench.whole, PLAIN)
        runs["strata"].append(done)
        for peer in PEERS:
            out = bench.folder / peer
            runs[peer].append(_peer(bench, peer, out))
            if first:
                edges = gate.check(GraphStore.open(built), out, peer)
                bench.say(f"{peer}: all {edges:,} edges equal ours")
            shutil.rmtree(out)
        bench.drop(built)
        ref, done = bench.build(f"full-{turn}", bench.whole, FULL)
        runs["strata (everything)"].append(done)
        if first:
            bench.add("build", "strata (everything)", "disk", "MB", [world.size_mb(ref)])
        bench.drop(ref)
    report(bench, runs)


def _peer(bench: Bench, peer: str, out: Path) -> Measured:
    events = str(bench.whole.path / "events")
    done = children.run(f"tests.benchmarks.graph_build.{peer}_csr", [events, str(out)])
    bench.say(f"{peer}: {done.seconds:.1f} s, {done.cpu:.1f} CPU s, {done.peak_mb:,.0f} MB")
    return done


def stage_seconds(done: Measured) -> float:
    """Seconds of a build without what only we do after it: hashing every file and forcing it to disk."""
    return float(done.said["stage"]) if done.said else done.seconds


def cpu_seconds(done: Measured) -> float:
    """CPU seconds of what `stage_seconds` counts."""
    return float(done.said["cpu"]) if done.said else done.cpu


def report(bench: Bench, runs: Mapping[str, Sequence[Measured]]) -> None:
    """Rows by builder, then ratios to ours, round by round."""
    for peer, found in runs.items():
        bench.add("build", peer, "time", "s", [stage_seconds(done) for done in found])
        bench.add("build", peer, "throughput", "events/s", [bench.events / stage_seconds(done) for done in found])
        bench.add("build", peer, "CPU time", "s", [cpu_seconds(done) for done in found])
        bench.add("build", peer, "peak memory", "MB", [done.peak_mb for done in found])
        if peer.startswith("strata"):
            bench.add("build", peer, "seal time", "s", [done.said["seal"] for done in found])
    for peer in PEERS:
        pairs = list(zip(runs[peer], runs["strata"], strict=True))
        times = [stage_seconds(theirs) / stage_seconds(own) for theirs, own in pairs]
        bench.add("build", f"{peer} / strata", "time", "ratio", times)
        work = [cpu_seconds(theirs) / cpu_seconds(own) for theirs, own in pairs]
        bench.add("build", f"{peer} / strata", "CPU time", "ratio", work)
        memory = [theirs.peak_mb / own.peak_mb for theirs, own in pairs]
        bench.add("build", f"{peer} / strata", "peak memory", "ratio", memory)
