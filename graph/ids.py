"""External id <-> contiguous int64 of one node type.

A node is known from the first readable row that names it, and nodes are numbered by (known_at, entity_id): rows that
arrive later add numbers at the end and change none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data.engine import Engine

NODES = pa.schema(
    [pa.field("entity_id", pa.string(), nullable=False), pa.field("known_at", pa.int64(), nullable=False)]
)
"""Schema of a node table; the row number is the internal id."""

NUMBERED = NODES.append(pa.field("event_at", pa.int64()))
"""A node table with when an event first named the node [us], null where none did."""

SQL = Path(__file__).parent / "sql"

Mention = tuple[pa.Array | pa.ChunkedArray, NDArray[np.int64]]
"""Ids (string, null where a row names none) and when each row became readable [us]; equal lengths."""


def number(engine: Engine, catalogue: pa.Table, named: Sequence[Path], before: pa.Table) -> Iterator[pa.Table]:
    """All nodes of a type in order, in pieces (schema NUMBERED).

    `catalogue` and `before` (schema NODES) hold what the catalogue and earlier events name, the Parquet files `named`
    (schema NODES) what other events do; ids may repeat. Grouped and sorted by DuckDB, which spills.
    """
    engine.connection.register("catalogue", catalogue)
    engine.connection.register("before", before)
    if not named:
        return engine.tables("number_known", NUMBERED)
    return engine.tables("number", NUMBERED, named=[str(path) for path in named])


def translate(engine: Engine, names: Path, nodes: Path) -> NDArray[np.int64]:
    """Internal ids int64 (n,) of the ids in Parquet file `names`, by the node table in file `nodes`; -1 if unknown."""
    found = engine.arrow("translate", names=str(names), nodes=str(nodes))
    ids = np.full(pq.read_metadata(names).num_rows, -1, np.int64)
    ids[found["code"].to_numpy()] = found["id"].to_numpy()
    return ids


def mentions(parts: Iterable[Mention]) -> pa.Table:
    """All mentions that name an id as one table (schema NODES)."""
    tables = [pa.table({"entity_id": ids, "known_at": pa.array(times, pa.int64())}) for ids, times in parts]
    table = pa.concat_tables([NODES.empty_table(), *tables], promote_options="permissive").combine_chunks()
    return table.filter(table["entity_id"].is_valid()).cast(NODES)


def first_mention(ids: pa.Array | pa.ChunkedArray, times: NDArray[np.int64]) -> pa.Table:
    """Each distinct id with its earliest time, in no particular order (schema NODES)."""
    grouped = mentions([(ids, times)]).group_by("entity_id", use_threads=False).aggregate([("known_at", "min")])
    return grouped.rename_columns({"known_at_min": "known_at"}).select(NODES.names).cast(NODES)
