"""Edges in external ids: the form in which two graphs can be compared whatever their segments and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.schema import EVENT_TYPES
from graph.merge import buckets
from graph.statistics import degrees_of
from graph.store import Csr, GraphStore, Relation, stretches

EDGES = pa.schema(
    [
        pa.field("src", pa.string(), nullable=False),
        pa.field("dst", pa.string(), nullable=False),
        pa.field("visible_from", pa.int64(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("weight", pa.float32(), nullable=False),
        pa.field("event_type", pa.string()),
    ]
)
"""Schema of an export; event_type is null outside the DERIVED relations."""


def export(store: GraphStore, relation: Relation, rows: int = 1 << 18) -> Iterator[pa.RecordBatch]:
    """All edges of a relation, sorted by all columns of EDGES from the first, in batches of about `rows` edges.

    A source node is never split over batches. Memory: a batch and 16 bytes a source node.
    """
    segments, ids = store.segments(relation), store.entity_ids(relation.src)
    order = np.asarray(pc.sort_indices(ids), np.int64)
    degree = degrees_of((segment.rowptr for segment in segments), len(ids))
    ends = np.concatenate([[0], np.cumsum(degree[order])])
    for start, stop in buckets(ends, rows):
        yield _batch(store, relation, segments, order[start:stop])


def _batch(store: GraphStore, relation: Relation, segments: Sequence[Csr], nodes: np.ndarray) -> pa.RecordBatch:
    tables = [_edges(store, relation, segment, nodes) for segment in segments]
    table = pa.concat_tables([EDGES.empty_table(), *tables])
    table = table.sort_by([(name, "ascending") for name in EDGES.names]).combine_chunks()
    return table.to_batches()[0]


def _edges(store: GraphStore, relation: Relation, csr: Csr, nodes: np.ndarray) -> pa.Table:
    own = nodes[nodes < len(csr.rowptr) - 1]
    count = csr.rowptr[own + 1] - csr.rowptr[own]
    src = np.repeat(own, count)
    place = stretches(csr.rowptr[own], count)
    seen = csr.visible_from[place]
    names = pa.nulls(len(place), pa.string())
    if csr.kind is not None:
        names = pa.array(EVENT_TYPES, pa.string()).take(pa.array(csr.kind[place]))
    columns = [
        store.entity_ids(relation.src).take(pa.array(src)),
        store.entity_ids(relation.dst).take(pa.array(csr.col[place])),
        pa.array(seen),
        pa.array(seen - 1 if csr.time is None else csr.time[place]),
        pa.array(np.ones(len(place), np.float32) if csr.weight is None else csr.weight[place]),
        names,
    ]
    return pa.Table.from_arrays(columns, schema=EDGES)
