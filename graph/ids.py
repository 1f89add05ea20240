"""External id <-> contiguous int64 of one node type.

A node is known from the first readable row that names it, and nodes are numbered by (known_at, entity_id): rows that
arrive later add numbers at the end and change none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data.engine import Engine, in_pieces

NODES = pa.schema(
    [pa.field("entity_id", pa.string(), nullable=False), pa.field("known_at", pa.int64(), nullable=False)]
)
"""Schema of a node table; the row number is the internal id."""

SQL = Path(__file__).parent / "sql"

Mention = tuple[pa.Array | pa.ChunkedArray, NDArray[np.int64]]
"""Ids (string, null where a row names none) and when each row became readable [us]; equal lengths."""


def number(engine: Engine, settled: pa.Table, catalogue: pa.Table, named: Sequence[Path]) -> Iterator[pa.Table]:
    """All nodes of a type in order, in pieces of PIECE_ROWS rows (schema NODES): `settled`, then the others.

    `settled` (schema NODES) are nodes whose numbers stand; `catalogue` (schema NODES) and the Parquet files `named`
    (schema NODES) hold what the catalogue and events name, all settled ones or known later; ids may repeat. Grouped and
    sorted by DuckDB, which spills.
    """
    engine.connection.register("catalogue", catalogue)
    engine.connection.register("settled", settled)
    if named:
        fresh = engine.batches("number", named=[str(path) for path in named])
    else:
        fresh = engine.batches("number_catalogue")
    columns = pa.schema([field.with_nullable(True) for field in NODES])  # as DuckDB gives them
    return in_pieces(chain(settled.cast(columns).to_batches(), fresh), NODES)


def translate(engine: Engine, names: Sequence[Path], nodes: Path) -> list[NDArray[Any]]:
    """Internal ids int (n,) of the ids in each Parquet file of `names`, by the node table in file `nodes`; -1 where
    unknown. The node table is read once, so that many files cost little more than one."""
    sizes = [pq.read_metadata(file).num_rows for file in names]
    first = np.cumsum([0, *sizes])
    found = engine.arrow("translate", names=[str(file) for file in names], nodes=str(nodes))
    wide = pq.read_metadata(nodes).num_rows > np.iinfo(np.int32).max
    ids = np.full(first[-1], -1, np.int64 if wide else np.int32)
    ids[first[found["file"].to_numpy()] + found["code"].to_numpy()] = found["id"].to_numpy()
    return np.split(ids, first[1:-1])


def mentions(parts: Iterable[Mention]) -> pa.Table:
    """All mentions that name an id as one table (schema NODES)."""
    tables = [pa.table({"entity_id": ids, "known_at": pa.array(times, pa.int64())}) for ids, times in parts]
    table = pa.concat_tables([NODES.empty_table(), *tables], promote_options="permissive").combine_chunks()
    return table.filter(table["entity_id"].is_valid()).cast(NODES)


def first_mention(ids: pa.Array | pa.ChunkedArray, times: NDArray[np.int64]) -> pa.Table:
    """Each distinct id with its earliest time, in no particular order (schema NODES)."""
    grouped = mentions([(ids, times)]).group_by("entity_id", use_threads=False).aggregate([("known_at", "min")])
    return grouped.rename_columns({"known_at_min": "known_at"}).select(NODES.names).cast(NODES)
