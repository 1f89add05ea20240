"""External id <-> contiguous int64 of one node type.

A node is known from the first readable row that names it, and nodes are numbered by (known_at, entity_id): rows that
arrive later add numbers at the end and change none.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NODES = pa.schema(
    [pa.field("entity_id", pa.string(), nullable=False), pa.field("known_at", pa.int64(), nullable=False)]
)
"""Schema of a node table; the row number is the internal id."""

Mention = tuple[pa.Array | pa.ChunkedArray, NDArray[np.int64]]
"""Ids (string, null where a row names none) and when each row became readable [us]; equal lengths."""


def number(mentions: Iterable[Mention]) -> pa.Table:
    """Node table (schema NODES) of all ids named in `mentions`; memory grows with the distinct ids of each mention."""
    parts = [first_mention(*mention) for mention in mentions]
    merged = _earliest(pa.concat_tables([NODES.empty_table(), *parts]))
    return merged.sort_by([("known_at", "ascending"), ("entity_id", "ascending")]).combine_chunks()


def first_mention(ids: pa.Array | pa.ChunkedArray, times: NDArray[np.int64]) -> pa.Table:
    """Each distinct id with its earliest time, in no particular order (schema NODES)."""
    table = pa.table({"entity_id": ids, "known_at": pa.array(times, pa.int64())})
    return _earliest(table.filter(table["entity_id"].is_valid()))


def _earliest(table: pa.Table) -> pa.Table:
    grouped = table.group_by("entity_id", use_threads=False).aggregate([("known_at", "min")])
    return grouped.rename_columns({"known_at_min": "known_at"}).select(NODES.names).cast(NODES)
