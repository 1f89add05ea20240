"""Exact search by inner product: torch on a device against FAISS on the CPU, queries a second after equal results.

    strata bench search -- --device cuda|cpu [--vectors 1000000 --dim 64,256 --queries 10000 --k 100 --repeats 5]

Vectors are random unit ones, made from a seed where they are measured. A speed is given only after two gates: whole
numbers, of which every sum is exact, give the very ids of a full sort; and the vectors that are timed give the peer's
scores up to rounding and its ids but where such scores tie. A machine without FAISS (a GPU machine) has a search in
numpy for its peer; FAISS's rows then come from a CPU run. Two floors stand beside each speed: the matrix product alone,
and on a GPU the scores written and read once at the rate of a large copy.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data import device_search
from data.device_search import DeviceIndex
from tests.benchmarks.rows import hand_over, spread, take_over
from tests.benchmarks.sampler import copy_rate, machine, timed

Answer = tuple[NDArray[np.float32], NDArray[np.int64]]
Search = Callable[[NDArray[np.float32], int], Answer]
PEER_QUERIES = 200
"""A peer on the CPU is asked no more than this; its time grows in proportion."""


def unit_vectors(count: int, dim: int, seed: int) -> NDArray[np.float32]:
    """Random unit vectors (count, dim)."""
    drawn = np.random.default_rng(seed).standard_normal((count, dim), np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn


def numpy_search(vectors: NDArray[np.float32], queries: NDArray[np.float32], k: int, rows: int = 64) -> Answer:
    """Exact search with a matrix product and a partial sort, `rows` queries at a time: larger first, then lower id."""
    found = []
    for start in range(0, len(queries), rows):
        scores = queries[start : start + rows] @ vectors.T
        least = -np.partition(-scores, k - 1, axis=1)[:, k - 1]
        for row, bound in zip(scores, least, strict=True):
            ids = np.flatnonzero(row >= bound)
            found.append(ids[np.lexsort((ids, -row[ids]))][:k])
    ids = np.array(found)
    return np.einsum("qkd,qd->qk", vectors[ids], queries), ids


def check_whole_numbers(device: str, dim: int, k: int, count: int = 20_000, queries: int = 100) -> None:
    """Raise AssertionError unless exact sums give exactly the ids of a full sort."""
    rng = np.random.default_rng(7)
    vectors, asked = (rng.integers(-3, 4, (n, dim)).astype(np.float32) for n in (count, queries))
    ids = np.arange(count)
    _, found = DeviceIndex(vectors, ids, device).search(asked, min(k, count))
    scores = asked @ vectors.T
    wanted = np.lexsort((np.broadcast_to(ids, scores.shape), -scores))[:, : min(k, count)]
    assert np.array_equal(found, wanted), f"ids differ from a full sort on {device}"


def check_equal(one: Answer, other: Answer, vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> float:
    """Share of equal ids at equal ranks; AssertionError where answers differ by more than rounding explains."""
    tolerance = 1e-5
    assert np.abs(one[0] - other[0]).max() <= tolerance, "scores differ"
    for (_, ids), (theirs, _) in ((one, other), (other, one)):
        truth = np.einsum("qkd,qd->qk", vectors[ids].astype(np.float64), queries.astype(np.float64))
        assert np.abs(truth - theirs).max() <= tolerance, "an id does not have the score of its rank"
        assert all(len(np.unique(row)) == len(row) for row in ids), "an id was found twice"
    return float((one[1] == other[1]).mean())


def peers(vectors: NDArray[np.float32]) -> dict[str, Search]:
    """Searches on the CPU by name, exact ones first; an approximate one where the door to FAISS would build it."""
    if importlib.util.find_spec("faiss") is None:
        return {"numpy": lambda queries, k: numpy_search(vectors, queries, k)}
    from data import vectors as door

    ids = np.arange(len(vectors))
    flat = door.flat(vectors, ids)
    found: dict[str, Search] = {"faiss flat": lambda queries, k: door.search(flat, queries, k)}
    if len(vectors) > door.FLAT_LIMIT:
        inverted = door.build(vectors, ids)
        found["faiss IVF"] = lambda queries, k: door.search(inverted, queries, k)
    return found


def seconds_of(call: Callable[[], Any], repeats: int) -> list[float]:
    """Wall seconds of `repeats` calls after one that warms up; results are on the host when a call returns."""
    samples = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return samples[1:]


def measured(device: str, count: int, dim: int, asked: int, k: int, repeats: int) -> list[dict[str, Any]]:
    """All rows of one dimension."""
    check_whole_numbers(device, dim, k)
    vectors, queries = unit_vectors(count, dim, 0), unit_vectors(asked, dim, 1)
    index, others = DeviceIndex(vectors, np.arange(count), device), peers(vectors)
    few = queries[:PEER_QUERIES]
    ours, (exact, search) = index.search(few, k), next(iter(others.items()))
    same = check_equal(ours, search(few, k), vectors, few)
    shape, found = f"{count} vectors, dim {dim}, {asked} queries, k {k}", []
    found.append(row("search, ids equal at equal ranks", "share", "1", shape, [same], exact))
    spent = seconds_of(lambda: index.search(queries, k), repeats)
    found.append(row("exact search, torch top-k", "rate", "queries/s", shape, [asked / each for each in spent]))
    product = [2e-12 * asked * count * dim / each for each in spent]
    found.append(row("exact search, torch top-k", "products", "TFLOP/s", shape, product))
    moved = [1e-9 * 8 * asked * count / each for each in spent]
    found.append(row("exact search, torch top-k, scores written and read", "traffic", "GB/s", shape, moved))
    found += floors(index, queries, shape, repeats)
    threads = f", {torch.get_num_threads()} threads, {len(few)} asked"
    for name, other in others.items():
        if name == "faiss IVF":
            recall = np.mean([len(np.intersect1d(a, b)) / k for a, b in zip(ours[1], other(few, k)[1], strict=True)])
            found.append(row("search, share of the exact top k", "recall", "1", shape, [float(recall)], name))
        rates = [len(few) / each for each in seconds_of(lambda o=other: o(few, k), min(repeats, 3))]
        found.append(row("search on the CPU", "rate", "queries/s", shape + threads, rates, name))
    return found


def floors(index: DeviceIndex, queries: NDArray[np.float32], shape: str, repeats: int) -> list[dict[str, Any]]:
    """Queries a second if there were only the matrix product, and if there were only the memory of the scores."""
    vectors, rates = index._vectors, []
    size = min(len(vectors), device_search.AT_ONCE // device_search.QUERIES)
    asked = torch.from_numpy(queries[: device_search.QUERIES]).to(index.device)
    into = torch.empty(len(asked), size, device=index.device)
    for _ in range(repeats + 1):
        spent, _ = timed(lambda: torch.mm(asked, vectors[:size].t(), out=into), index.device)
        rates.append(len(asked) / (spent * len(vectors) / size))
    found = [row("search floor: the fp32 matrix product alone", "rate", "queries/s", shape, rates[1:])]
    if index.device.type == "cuda":
        rate = copy_rate("cuda")
        found.append(row("device copy, read and written", "traffic", "GB/s", "4 GiB", [rate / 1e9]))
        bound = [rate / (8 * len(vectors))]
        found.append(row("search floor: scores written and read once", "rate", "queries/s", shape, bound))
    return found


def row(what: str, metric: str, unit: str, shape: str, samples: list[float], peer: str = "") -> dict[str, Any]:
    """One row of a result file."""
    start = {"what": what, "peer": peer, "metric": metric, "unit": unit, "shape": shape, "dtype": "float32"}
    return start | spread(samples)


def main(arguments: list[str] | None = None) -> None:
    """Print the rows and append them to results/search.csv, or write them to `--file` as JSON lines.

    A machine that has torch but not all of the project's dependencies can only do the latter; `--add FILE --commit SHA`
    then appends what it wrote.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--dim", default="64,256", help="dimensions, by commas")
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--file", default="", help="write rows here, as JSON lines, instead of to results/search.csv")
    parser.add_argument("--add", default="", help="append the rows of such a file and measure nothing")
    parser.add_argument("--commit", default="", help="the commit that the added rows were measured on")
    given = parser.parse_args(arguments)
    if given.add:
        return take_over("search", given.add, given.commit)
    found = []
    for dim in map(int, given.dim.split(",")):
        found += measured(given.device, given.vectors, dim, given.queries, given.k, given.repeats)
    where = {"machine": machine(given.device), "versions": f"torch={torch.__version__};numpy={np.__version__}"}
    for line in found:
        print(f"{line['p50']:>12.4g} {line['unit']:9} {line['what']} {line['peer']} | {line['shape']}")
    hand_over("search", [line | where for line in found], given.file)


if __name__ == "__main__":
    main()
