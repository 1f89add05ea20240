"""Figures of a graph that a reader checks before training on it: how skewed, how sparse, how many without edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from graph.csr import EdgeList
from graph.store import NODE_TYPES, Relation

QUANTILES = (0.5, 0.9, 0.99)


def statistics(nodes: Mapping[str, pa.Table], edges: Mapping[Relation, EdgeList]) -> dict[str, Any]:
    """Degrees by node type (over all relations that touch it) and, by relation, of its source and target side.

    Each entry: nodes, isolated (without an edge), mean, p50, p90, p99, max.
    """
    totals = {kind: np.zeros(nodes[kind].num_rows, np.int64) for kind in NODE_TYPES}
    relations: dict[str, Any] = {}
    for relation, found in edges.items():
        if not len(found.src):
            continue
        ends = {"src": (relation.src, found.src), "dst": (relation.dst, found.dst)}
        sides = {}
        for end, (kind, ids) in ends.items():
            degree = np.bincount(ids, minlength=nodes[kind].num_rows)
            totals[kind] += degree
            sides[end] = summary(degree)
        relations["-".join(relation)] = {"edges": len(found.src), **sides}
    return {"node_types": {kind: summary(degree) for kind, degree in totals.items()}, "relations": relations}


def summary(degree: NDArray[np.int64]) -> dict[str, float]:
    """Nodes, isolated nodes, mean, quantiles and maximum of degrees int64 (n,)."""
    if not len(degree):
        return {"nodes": 0, "isolated": 0, "mean": 0.0, "max": 0} | {f"p{round(q * 100)}": 0.0 for q in QUANTILES}
    marks = {f"p{round(q * 100)}": float(np.quantile(degree, q, method="lower")) for q in QUANTILES}
    ends = {"mean": round(float(degree.mean()), 3), "max": int(degree.max())}
    return {"nodes": len(degree), "isolated": int((degree == 0).sum()), **ends, **marks}
