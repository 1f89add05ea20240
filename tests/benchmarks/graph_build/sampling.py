"""Part sampler: token sets a second from the built graph on the CPU, around users and products of its own events.

python -m tests.benchmarks.graph_build.sampling STORE REQUEST, where REQUEST is a JSON file with the graph's key
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data.artifacts import Store
from data.errors import BadDataError
from graph.sampler import TemporalSampler, TokenSet
from graph.store import ENGAGED, GraphStore
from tests.benchmarks.children import THREADS, measured, run
from tests.benchmarks.graph_build.bench import FULL, Bench
from tests.benchmarks.sampler import BUDGET

SEEDS = 8192
BATCHES = 25
WARM_UP = 5
"""Batches before measurement: they map the files and fill the caches."""


def measure(bench: Bench) -> None:
    """Rows for seeds of each kind, and for as many of both in turn: their times add up."""
    graph, _ = bench.build("sampled", bench.whole, FULL)
    request = bench.folder / "sampled.json"
    request.write_text(json.dumps({"key": graph.key}))
    done = run("tests.benchmarks.graph_build.sampling", [str(bench.store.root), str(request)])
    bench.drop(graph)
    shape = f"{bench.shape(bench.events)}; {SEEDS} seeds a call, {BUDGET.total} slots, 2 hops, {THREADS} threads"
    both = {name: np.sum([found[name] for found in done.said.values()], axis=0) for name in ("tokens", "seconds")}
    for what, found, seeds in (
        *((kind, found, SEEDS) for kind, found in done.said.items()),
        ("mixed", both, 2 * SEEDS),
    ):
        tokens, seconds = np.asarray(found["tokens"]), np.asarray(found["seconds"])
        filled = float(tokens.mean()) / (seeds * BUDGET.total)
        bench.say(f"sampler, {what} seeds: {np.median(tokens / seconds):,.0f} tokens/s, {filled:.0%} of slots filled")
        bench.add(f"sampler, {what} seeds", "strata", "throughput", "tokens/s", tokens / seconds, shape)
        bench.add(f"sampler, {what} seeds", "strata", "throughput", "slots/s", seeds * BUDGET.total / seconds, shape)
        bench.add(f"sampler, {what} seeds", "strata", "throughput", "seeds/s", seeds / seconds, shape)
        bench.add(f"sampler, {what} seeds", "strata", "slots filled", "ratio", [filled], shape)


def work(root: Path, request: Path) -> dict[str, Any]:
    """By node type: real tokens and seconds of each call, after the checks."""
    torch.set_num_threads(THREADS)
    store = GraphStore.open(Store(root).get("graph", json.loads(request.read_text())["key"]))
    sampler = TemporalSampler(store, BUDGET)
    rng = np.random.default_rng(0)
    return {node_type: _timed(sampler, store, node_type, rng) for node_type in ("user", "product")}


def _timed(sampler: TemporalSampler, store: GraphStore, node_type: str, rng: np.random.Generator) -> dict[str, Any]:
    tokens, seconds = [], []
    for number in range(WARM_UP + BATCHES):
        nodes, times = _seeds(store, node_type, rng)
        started = time.perf_counter()
        found = sampler.sample(node_type, nodes, times, seed=number)
        spent = time.perf_counter() - started
        if not number:
            _check(sampler, node_type, nodes, times, found)
        if number >= WARM_UP:
            tokens.append(int(found.mask.sum()))
            seconds.append(spent)
    return {"tokens": tokens, "seconds": seconds}


def _seeds(store: GraphStore, node_type: str, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ends of random engagements, each seen when it happened: what a training step asks for."""
    forward = ENGAGED["product"]
    edges = store.csr(forward if node_type == "user" else forward.reverse)
    picks = rng.integers(0, edges.num_edges, SEEDS)
    nodes = np.searchsorted(edges.rowptr, picks, side="right") - 1
    return nodes, edges.visible_from[picks] - 1


def _check(
    sampler: TemporalSampler, node_type: str, nodes: NDArray[np.int64], times: NDArray[np.int64], found: TokenSet
) -> None:
    """Raise BadDataError unless no token comes from after its seed's time, and a set depends on its seed alone."""
    if not bool(((found.age > 0) | (found.age == -1)).all()):
        raise BadDataError(f"{node_type} seeds: a token comes from after its seed's time")
    alone = sampler.sample(node_type, nodes[:100], times[:100], seed=0)
    if not all(torch.equal(one, many[:100]) for one, many in zip(alone.arrays(), found.arrays(), strict=True)):
        raise BadDataError(f"{node_type} seeds: token sets depend on their batch")


if __name__ == "__main__":
    measured(work)
