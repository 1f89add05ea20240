"""Figures of a graph that a reader checks before training on it: how skewed, how sparse, how many without edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.store import CO_ENGAGED, FORWARD, NODE_TYPES, SHARES_USERS, Relation

QUANTILES = (0.5, 0.9, 0.99)


def statistics(
    nodes: Mapping[str, int], degrees: Callable[[Relation], NDArray[np.int64]], threads: int = 1
) -> dict[str, Any]:
    """Degrees by node type (over all relations that touch it) and, by relation, of its source and target side.

    `nodes` counts each type; `degrees` gives the edges of each source node of a relation, int64 (n,). Each entry:
    nodes, isolated (without an edge), mean, p50, p90, p99, max. Memory grows with nodes and `threads` only.
    """
    totals = {kind: np.zeros(nodes[kind], np.int64) for kind in NODE_TYPES}
    lock = Lock()

    def of(relation: Relation) -> dict[str, Any] | None:
        out = degrees(relation)
        edges = int(out.sum())
        if not edges:
            return None
        sides = {"src": out}
        if relation in FORWARD:  # the others hold both directions of each pair already
            sides["dst"] = degrees(relation.reverse)
        with lock:
            for end, degree in sides.items():
                totals[getattr(relation, end)] += degree
        return {"edges": edges, **{end: summary(degree) for end, degree in sides.items()}}

    names = (*FORWARD, CO_ENGAGED, SHARES_USERS)
    with ThreadPoolExecutor(threads) as pool:
        relations = {"-".join(name): found for name, found in zip(names, pool.map(of, names), strict=True) if found}
        return {
            "node_types": dict(zip(totals, pool.map(summary, totals.values()), strict=True)),
            "relations": relations,
        }


def degrees_of(rowptrs: Iterable[NDArray[np.int64]], rows: int) -> NDArray[np.int64]:
    """Edges of each of `rows` rows over several blocks that may have fewer rows, int64 (rows,)."""
    total = np.zeros(rows, np.int64)
    for rowptr in rowptrs:
        total[: len(rowptr) - 1] += np.diff(rowptr)
    return total


def summary(degree: NDArray[np.int64]) -> dict[str, float]:
    """Nodes, isolated nodes, mean, quantiles (an occurring degree, the lower one) and maximum of degrees int64 (n,)."""
    if not len(degree):
        return {"nodes": 0, "isolated": 0, "mean": 0.0, "max": 0} | {f"p{round(q * 100)}": 0.0 for q in QUANTILES}
    marks = dict(zip((f"p{round(q * 100)}" for q in QUANTILES), _quantiles(degree), strict=True))
    ends = {"mean": round(float(degree.mean()), 3), "max": int(degree.max())}
    return {"nodes": len(degree), "isolated": int((degree == 0).sum()), **ends, **marks}


def _quantiles(degree: NDArray[np.int64]) -> list[float]:
    """By counting: nearly all degrees are small, so this takes a pass where a selection would take many."""
    place = [int(q * (len(degree) - 1)) for q in QUANTILES]
    if degree.max() > 1 << 24:
        return [float(value) for value in np.partition(degree, place)[place]]
    upto = np.cumsum(np.bincount(degree))
    return [float(value) for value in np.searchsorted(upto, place, "right")]
