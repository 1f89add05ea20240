"""Part growth: ten times the events, time and memory against the smaller log, and memory against a limit."""

from __future__ import annotations

from data.parts import EVENT_PARTS
from tests.benchmarks.graph_build import world
from tests.benchmarks.graph_build.bench import Bench

TIMES = 10


def measure(bench: Bench) -> None:
    """Rows of the large build and of both ratios, for each configuration asked for."""
    config = bench.config
    large, seconds = world.generate(
        bench.store, world.sized(config.events * TIMES, config.days, config.seed, bench.entities_of)
    )
    shape = bench.shape(large.rows(EVENT_PARTS))
    bench.say(f"log of {large.rows(EVENT_PARTS):,} events made in {seconds:.1f} s, {world.size_mb(large):,.0f} MB")
    bench.add("generator", "", "time", "s", [seconds], shape)
    bench.add("generator", "", "disk", "MB", [world.size_mb(large)], shape)
    for name, options in bench.configs.items():
        figures = {}
        for size, log in (("small", bench.whole), ("large", large)):
            ref, done = bench.build(f"{name}-{size}", log, options)
            figures[size] = done
            disk = world.size_mb(ref)
            bench.drop(ref)
        events = large.rows(EVENT_PARTS)
        stage = {size: float(done.said["stage"]) for size, done in figures.items()}
        rows: list[tuple[str, str, str, float]] = [
            ("strata", "time", "s", stage["large"]),
            ("strata", "seal time", "s", figures["large"].said["seal"]),
            ("strata", "throughput", "events/s", events / stage["large"]),
            ("strata", "CPU time", "s", figures["large"].said["cpu"]),
            ("strata", "peak memory", "MB", figures["large"].peak_mb),
            (
                f"limit of {bench.limit_gib:g} GiB",
                "peak memory",
                "ratio",
                figures["large"].peak_mb / bench.limit_gib / 1024,
            ),
            ("strata", "disk", "MB", disk),
            (f"{TIMES}x events", "time", "ratio", stage["large"] / stage["small"]),
            (f"{TIMES}x events", "peak memory", "ratio", figures["large"].peak_mb / figures["small"].peak_mb),
        ]
        for peer, metric, unit, value in rows:
            bench.add(f"growth, {name}", peer, metric, unit, [value], shape)
