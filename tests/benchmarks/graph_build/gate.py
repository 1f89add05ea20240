"""Whether two builders built the same graph: every edge of every relation of events, in external ids, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data.errors import BadDataError
from data.schema import EVENT_TYPES
from graph.store import Csr, GraphStore, Relation, index_in
from tests.benchmarks.graph_build.layout import KINDS, TARGETS, names

_MIX = np.uint64(0x9E3779B97F4A7C15)


def check(store: GraphStore, built: Path, peer: str) -> int:
    """Edges compared (both directions counted); raises BadDataError at the first relation in which they differ."""
    numbers = {}
    for kind in KINDS:
        ids = pq.read_table(built / "nodes" / f"{kind}.parquet")["entity_id"].cast("string").combine_chunks()
        numbers[kind] = index_in(store.entity_ids(kind), ids)
    compared = 0
    for event_type in EVENT_TYPES:
        for target in TARGETS:
            forward = Relation("user", event_type, target)
            for relation, folder in zip((forward, forward.reverse), names(event_type, target), strict=True):
                ours, theirs = store.csr(relation), _load(built / folder)
                _compare(ours, theirs, numbers[relation.src], numbers[relation.dst], f"{folder}, strata and {peer}")
                compared += ours.num_edges
    if not compared:
        raise BadDataError(f"expected edges to compare with {peer}, found none: the log is empty")
    return compared


def _load(folder: Path) -> Csr:
    if not folder.exists():
        nothing = np.zeros(0, np.int64)
        return Csr(np.zeros(1, np.int64), nothing.astype(np.int32), nothing)
    files = ("rowptr", "col", "visible_from", "time", "weight")
    return Csr(**{name: np.load(folder / f"{name}.npy") for name in files if (folder / f"{name}.npy").exists()})


def _compare(ours: Csr, theirs: Csr, sources: NDArray[np.int64], targets: NDArray[np.int64], where: str) -> None:
    if ours.num_edges != theirs.num_edges:
        raise BadDataError(f"{where}: {ours.num_edges:,} and {theirs.num_edges:,} edges")
    for csr in (ours, theirs):
        _check_order(csr, where)
    mine, other = _canonical(ours, sources, targets), _canonical(theirs, None, None)
    for name, column in mine.items():
        if not np.array_equal(column, other[name]):
            raise BadDataError(f"{where}: {np.count_nonzero(column != other[name]):,} edges differ in {name}")


def _check_order(csr: Csr, where: str) -> None:
    """Within a row (visible_from, time) never falls."""
    seen, time = np.diff(csr.visible_from), np.diff(csr.times)
    falls = np.flatnonzero((seen < 0) | ((seen == 0) & (time < 0))) + 1
    if not np.isin(falls, csr.rowptr).all():
        raise BadDataError(f"{where}: rows are not in order of time")


def _canonical(
    csr: Csr, sources: NDArray[np.int64] | None, targets: NDArray[np.int64] | None
) -> dict[str, NDArray[Any]]:
    """Edges in one order that does not depend on the numbers' order: that of a hash of all their columns.

    Equal sets of edges come out equal; two edges of one hash could only ever make equal sets look different.
    """
    row = np.repeat(np.arange(len(csr.rowptr) - 1), np.diff(csr.rowptr))
    columns = {
        "source": row if sources is None else sources[row],
        "target": csr.col.astype(np.int64) if targets is None else targets[csr.col],
        "visible_from": np.asarray(csr.visible_from),
        "time": csr.times,
        "weight": np.asarray(csr.weights),
    }
    mixed = np.zeros(csr.num_edges, np.uint64)
    for name, column in columns.items():
        bits = column.view(np.uint32) if name == "weight" else column.view(np.uint64)
        mixed = (mixed ^ bits) * _MIX
        mixed ^= mixed >> np.uint64(29)
    order = np.argsort(mixed)
    return {name: column[order] for name, column in columns.items()}
