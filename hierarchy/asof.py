"""Reading the embeddings artifact: for each entity of a type, its last row at or before a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.timegrid import EMBEDDINGS, file_date


@dataclass(frozen=True)
class AsOfVectors:
    """Entities of one type in order of their id.

    entity_id string (N,), vectors float32 (N, H, d) with H heads, popularity float32 (N,) in units of cosine,
    degree int64 (N,), as_of int64 us (N,): the date of each row.
    """

    entity_id: pa.Array
    vectors: NDArray[np.float32]
    popularity: NDArray[np.float32]
    degree: NDArray[np.int64]
    as_of: NDArray[np.int64]


def read_as_of(embeddings: ArtifactRef, kind: str, time: int | None = None) -> AsOfVectors:
    """The last row of every entity of `kind` with as_of <= `time` [us] (None: the very last).

    Reads dates up to that time only, and of them row groups of matching type. Memory: the rows of that type up to then.
    """
    dates = [name for name in embeddings.names(EMBEDDINGS) if time is None or file_date(name) <= time]
    parts = [embeddings.table(name, filters=pc.field("entity_type") == kind) for name in dates]
    table = pa.concat_tables(parts or [embeddings.table(EMBEDDINGS, filters=pc.scalar(False))])
    heads = int(pc.max(table["head"]).as_py() or 0) + 1 if table.num_rows else 1
    names = np.asarray(table["entity_id"].to_pylist(), dtype=object)
    as_of, head = table["as_of"].to_numpy(), table["head"].to_numpy()
    unique, code = np.unique(names, return_inverse=True) if len(names) else (names, np.zeros(0, np.int64))
    order = np.lexsort((head, as_of, code))
    last = np.append(code[order][1:] != code[order][:-1], True) if len(order) else np.zeros(0, bool)
    rows = (np.flatnonzero(last)[:, None] - np.arange(heads)[None, ::-1]).reshape(-1)
    taken = table.take(pa.array(order[rows]))
    column = taken["vector"].combine_chunks()
    dim = column.type.list_size
    flat = column.flatten().to_numpy() if len(column) else np.zeros(0, np.float32)
    return AsOfVectors(
        entity_id=pa.array(unique.tolist(), pa.string()),
        vectors=flat.reshape(len(unique), heads, dim).astype(np.float32, copy=False),
        popularity=taken["popularity"].to_numpy()[::heads],
        degree=taken["degree"].to_numpy()[::heads],
        as_of=taken["as_of"].to_numpy()[::heads],
    )
