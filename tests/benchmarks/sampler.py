"""The temporal sampler at speed: tokens a second over a made graph of millions of edges, on the CPU and on a GPU.

The graph is drawn from a seed where it is measured, so nothing is carried: users with lognormal activity, products by
Zipf's law, events in order of time, advertisers and categories by product number. A speed is given only after the
samples of both devices were found equal to the last bit.

`python -m tests.benchmarks.sampler [cpu|cuda] [edges] [file]`: see `main`.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.schema import EVENT_TYPES
from graph.sampler import Budget, TemporalSampler, TokenSet
from graph.store import (
    CHILD_OF,
    CO_ENGAGED,
    ENGAGED,
    ENGAGED_THROUGH,
    IN_CATEGORY,
    OWNED_BY,
    Csr,
    Relation,
    merged,
)
from kernels.captured import Captured
from tests.benchmarks.rows import hand_over, take_over

BUDGET = Budget(recent=12, uniform=8, two_hop=8, links=4)
EVERYTHING = Budget(recent=6, uniform=6, two_hop=6, links=4, related=4, ppr=6)
KINDS = ("user", "product")
SPAN = 365 * 86_400 * 10**6
"""Microseconds that the events are spread over."""


@dataclass
class MadeGraph:
    """What the sampler reads of a `GraphStore`, in memory."""

    num_nodes: dict[str, int]
    edges: dict[Relation, tuple[Csr, ...]] = field(default_factory=dict)

    def segments(self, relation: Relation) -> tuple[Csr, ...]:
        return self.edges.get(relation, ())

    def csr(self, relation: Relation) -> Csr:
        return merged(self.segments(relation), self.num_nodes[relation.src])


def made_graph(users: int, products: int, edges: int, seed: int = 0) -> MadeGraph:
    """A graph of `edges` engagement events in one segment, with a tenth as many advertisers as products."""
    rng = np.random.default_rng(seed)
    advertisers, categories = max(1, products // 10), 100
    popularity = 1 / np.arange(1, products + 1)
    product = rng.permutation(products)[_draw(popularity, edges, rng)].astype(np.int32)
    user = _draw(rng.lognormal(0, 1, users), edges, rng).astype(np.int32)
    seen = np.sort(rng.integers(0, SPAN, edges))
    kind = rng.integers(EVENT_TYPES.index("view"), EVENT_TYPES.index("conversion"), edges).astype(np.int8)
    owner, leaf = (
        (np.arange(products) % advertisers).astype(np.int32),
        (np.arange(products) % categories).astype(np.int32),
    )
    sizes = {"user": users, "product": products, "advertiser": advertisers, "campaign": 0, "category": categories}
    graph = MadeGraph(sizes)
    engaged = ENGAGED["product"]
    graph.edges[engaged] = (rows(user, product, users, seen, kind),)
    graph.edges[engaged.reverse] = (rows(product, user, products, seen, kind),)
    graph.edges[ENGAGED_THROUGH] = (rows(owner[product], product, advertisers, seen, kind),)
    for relation, target in ((OWNED_BY, owner), (IN_CATEGORY, leaf)):
        source = np.arange(products, dtype=np.int32)
        zero = np.zeros(products, np.int64)
        graph.edges[relation] = (rows(source, target, products, zero),)
        graph.edges[relation.reverse] = (rows(target, source, sizes[relation.dst], zero),)
    child = np.arange(10, categories, dtype=np.int32)
    zero = np.zeros(len(child), np.int64)
    graph.edges[CO_ENGAGED] = (related_lists(products, rng),)
    graph.edges[CHILD_OF] = (rows(child, child % 10, categories, zero),)
    graph.edges[CHILD_OF.reverse] = (rows(child % 10, child, categories, zero),)
    return graph


def related_lists(products: int, rng: np.random.Generator, length: int = 10, dates: int = 4) -> Csr:
    """Lists of random products for each product at each of a few dates."""
    source = np.tile(np.repeat(np.arange(products, dtype=np.int32), length), dates)
    target = rng.integers(0, products, len(source)).astype(np.int32)
    seen = np.repeat(np.arange(1, dates + 1) * (SPAN // (dates + 1)), products * length)
    made = rows(source, target, products, seen)
    return Csr(made.rowptr, made.col, made.visible_from, None, rng.random(len(source)).astype(np.float32))


def rows(
    source: NDArray, target: NDArray, sources: int, seen: NDArray[np.int64], kind: NDArray[np.int8] | None = None
) -> Csr:
    """Edges that come in order of time as a CSR."""
    order = np.argsort(source, kind="stable")
    rowptr = np.zeros(sources + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=sources), out=rowptr[1:])
    return Csr(rowptr, target[order], seen[order], None, None, None if kind is None else kind[order])


def _draw(weights: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    bounds = np.cumsum(weights / weights.sum())
    return np.minimum(np.searchsorted(bounds, rng.random(count)), len(weights) - 1)


def measured(device: str, edges: int, threads: int | None = None) -> list[dict[str, Any]]:
    """Rows of tokens a second on a device, over a graph of `edges` edges with a tenth as many users."""
    graph = made_graph(edges // 10, edges // 100, edges)
    torch.set_num_threads(threads or torch.get_num_threads())
    found: list[dict[str, Any]] = []
    shape = f"{edges} edges, {edges // 10} users, {edges // 100} products, T {BUDGET.total}"
    sampler = TemporalSampler(graph, BUDGET, device)
    if device != "cpu":
        check_equal(graph, device)
        copied = copy_rate(device)
        found.append(row("device copy, read and written", "GB/s", "4 GiB", "int64", [copied / 1e9]))
    for seeds in (8192,) if device == "cpu" else (4096, 32_768, 262_144):
        threads = f", {torch.get_num_threads()} threads" if device == "cpu" else ""
        for how in ("",) if device == "cpu" else ("launched", "captured"):
            shares, samples = zip(*(speed(sampler, kind, seeds, how) for kind in KINDS), strict=True)
            # Half the seeds of a mixed batch are users: the two times add up.
            mixed = [2 * seeds * BUDGET.total / sum(pair) for pair in zip(*samples, strict=True)]
            where = f"{shape}, {2 * seeds} seeds{threads}"
            found.append(row("temporal sampler, token slots", "1/s", where, "int64", mixed, how))
            real = [rate * sum(shares) / len(shares) for rate in mixed]
            found.append(row("temporal sampler, real tokens", "1/s", where, "int64", real, how))
    if device != "cpu":
        found += floors(sampler, copied, shape)
        found += searches(graph, device)
    where = {"machine": machine(device), "versions": f"torch={torch.__version__};numpy={np.__version__}"}
    return [line | where for line in found]


def machine(device: str) -> str:
    """The device in words."""
    return f"{platform.machine()} CPU" if device == "cpu" else torch.cuda.get_device_name(device)


def check_equal(graph: MadeGraph, device: str) -> None:
    """Raise AssertionError unless a sample of every policy is the same on the CPU, to the last bit."""
    samplers = [TemporalSampler(graph, EVERYTHING, where) for where in ("cpu", device)]
    rng = np.random.default_rng(5)
    for kind in ("user", "product", "advertiser", "category"):
        nodes, times = rng.integers(0, graph.num_nodes[kind], 5000), rng.integers(-1, SPAN, 5000)
        exclude = rng.integers(-1, 50, 5000)
        one, other = (sampler.sample(kind, nodes, times, 3, exclude) for sampler in samplers)
        given = [torch.from_numpy(array).to(device) for array in (nodes, times, exclude)]
        recorded = Captured(samplers[1].sample, device, warm=1)
        for _ in range(2):  # called, then recorded and replayed
            third = recorded(kind, *given[:2], torch.tensor(3, device=device), given[2])
        for found in (other, third):
            for name, left, right in zip(TokenSet.__dataclass_fields__, one.arrays(), found.arrays(), strict=True):
                assert torch.equal(left, right.cpu()), f"{kind}: {name} differs on {device}"
        assert one.mask.any()
    degree = torch.arange(1 << 24).to(torch.float64)
    assert torch.equal(torch.log1p(degree).float(), torch.log1p(degree.to(device)).float().cpu()), "log1p differs"


def speed(sampler: TemporalSampler, kind: str, seeds: int, how: str, repeats: int = 20) -> tuple[float, list[float]]:
    """(share of real tokens, seconds a batch) over batches of fresh seeds at random times."""
    share, seconds = 0.0, []
    seed = torch.tensor(0, device=sampler.device)
    sample = Captured(sampler.sample, sampler.device, warm=1) if how == "captured" else sampler.sample
    for nodes, times in batches(sampler, kind, seeds, repeats + 3):
        took, tokens = timed(lambda n=nodes, t=times: sample(kind, n, t, seed), sampler.device)
        share += float(tokens.mask.float().mean()) / (repeats + 3)
        seconds.append(took)
    return share, seconds[3:]


def batches(sampler: TemporalSampler, kind: str, seeds: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Random nodes of a type and random times, on the sampler's device."""
    rng = np.random.default_rng(1)
    for _ in range(count):
        nodes, times = rng.integers(0, sampler.store.num_nodes[kind], seeds), rng.integers(0, SPAN, seeds)
        yield torch.from_numpy(nodes).to(sampler.device), torch.from_numpy(times).to(sampler.device)


def timed(call: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """(seconds, result) of a call, by device events on a GPU."""
    if device.type == "cpu":
        start = time.perf_counter()
        result = call()
        return time.perf_counter() - start, result
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    result = call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3, result


def copy_rate(device: str) -> float:
    """Bytes a second of a large device-to-device copy, counting those read and those written."""
    source = torch.randint(0, 1 << 40, (1 << 29,), device=device)
    target = torch.empty_like(source)
    times = [timed(lambda: target.copy_(source), source.device)[0] for _ in range(20)]
    return 2 * source.nbytes / float(np.median(times[3:]))


def floors(sampler: TemporalSampler, rate: float, shape: str) -> list[dict[str, Any]]:
    """Token slots a second if every byte that must be read or written took its share of a copy.

    A slot writes its 29 bytes, reads the 13 of its edge and, to count its node's visible edges, 32 bytes (the least a
    GPU reads) for each step of a binary search in its row.
    """
    needed = []
    for kind in KINDS:
        nodes, times = next(batches(sampler, kind, 32_768, 1))
        tokens = sampler.sample(kind, nodes, times, 0)
        steps = torch.log2(torch.expm1(tokens.degree.double()) + 1).ceil().mean().item()
        needed.append(29 + 13 + 32 * steps)
    return [row("copy floor of the bytes of a token slot", "1/s", shape, "int64", [rate / float(np.mean(needed))])]


def searches(graph: MadeGraph, device: str) -> list[dict[str, Any]]:
    """The segmented search alone, in Triton and in torch: products as often as the events name them."""
    from kernels.visible_count import reference, triton_impl

    csr = graph.csr(ENGAGED["product"].reverse)
    rng = np.random.default_rng(2)
    rowptr, visible_from = torch.from_numpy(csr.rowptr).to(device), torch.from_numpy(csr.visible_from).to(device)
    weights = np.diff(csr.rowptr)
    asked = torch.from_numpy(_draw(weights, 1 << 23, rng)).to(device)
    times = torch.from_numpy(rng.integers(0, SPAN, 1 << 23)).to(device)
    found = []
    for name, call in (("triton", triton_impl.visible_count), ("torch", reference.visible_count)):
        assert torch.equal(
            call(rowptr, visible_from, asked, times), reference.visible_count(rowptr, visible_from, asked, times)
        )
        rates = [
            len(asked) / timed(lambda c=call: c(rowptr, visible_from, asked, times), asked.device)[0] for _ in range(23)
        ]
        found.append(
            row("visible_count", "1/s", f"{len(asked)} rows of {csr.num_edges} edges", "int64", rates[3:], name)
        )
    return found


def row(what: str, unit: str, shape: str, dtype: str, samples: list[float], peer: str = "") -> dict[str, Any]:
    """One row of a result file."""
    low, middle, high = (float(f"{mark:.4g}") for mark in np.quantile(samples, (0.2, 0.5, 0.8)))
    spread = {"p20": low, "p50": middle, "p80": high} if len(samples) > 1 else {"p20": "", "p50": middle, "p80": ""}
    return {"what": what, "peer": peer, "metric": "rate", "unit": unit, "shape": shape, "dtype": dtype, **spread}


def main(device: str = "cpu", edges: str = "10000000", file: str = "") -> None:
    """Print the rows and append them to results/sampler.csv, or write them to `file` as JSON lines.

    A machine that has torch but not all of the project's dependencies can only do the latter; `add FILE COMMIT` then
    appends what it wrote.
    """
    if device == "add":
        return take_over("sampler", edges, file)
    found = measured(device, int(edges))
    for line in found:
        print(f"{line['p50']:>12.4g} {line['unit']:5} {line['what']} {line['peer']} | {line['shape']}")
    hand_over("sampler", found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
