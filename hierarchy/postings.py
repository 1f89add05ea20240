"""Stage postings: the inverse of the tokens, from an interest to the entities whose bags hold it, heaviest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, execution
from data.errors import UsageError, nearest
from data.schema import ENTITY_TYPES
from data.timegrid import TOKENS

QUERIES = Path(__file__).parent / "sql"
FILE = "postings.parquet"
_GROUP = 16_384  # rows of a row group: small, so that one interest is found without reading many others

POSTINGS = pa.schema(
    [
        pa.field("level", pa.int32(), nullable=False),
        pa.field("primitive_id", pa.string(), nullable=False),
        pa.field("entity_type", pa.string(), nullable=False),
        pa.field("weight", pa.float32(), nullable=False),
        pa.field("entity_id", pa.string(), nullable=False),
        pa.field("as_of", pa.int64(), nullable=False),
        pa.field("until", pa.int64()),
    ],
    metadata={"strata.table": "postings", "strata.schema_version": "1"},
)
"""The bag of a row holds at times t with as_of <= t < until [us]; `until` is null for an entity's newest bag."""


class Config(StageConfig):
    """How the stage runs."""

    memory_limit: str = execution("1GB", "Memory of the sort; what is more spills to the work folder.")


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Write postings.parquet, sorted by (level, primitive_id, entity_type, weight falling, entity_id, as_of).

    An external sort of all tokens: time n log n, memory `memory_limit` for any number of them.
    """
    from data.engine import session  # DuckDB takes longer to import than a question to answer

    paths = inputs["tokens"].paths(TOKENS)
    with session(out.work / "spill", ctx.threads, config.memory_limit, QUERIES, "postings") as engine:
        pieces = engine.tables("postings", POSTINGS, tokens=paths)
        groups = (piece.slice(start, _GROUP) for piece in pieces for start in range(0, len(piece), _GROUP))
        return {"postings": out.write_batches(FILE, POSTINGS, groups)}


def entities_of(
    postings: ArtifactRef, primitive_id: str, kind: str, k: int = 10, as_of: int | None = None
) -> list[dict[str, Any]]:
    """The `k` entities of type `kind` that hold a primitive with most weight: entity_id, weight, as_of of their bag.

    Bags are those of `as_of` [us], each entity's newest if left out. Reads the row groups that can hold the primitive
    and the type, until there are `k`; empty when no bag holds it. Raises UsageError for an unknown type or k below 1.
    """
    if kind not in ENTITY_TYPES:
        raise UsageError(f"unknown entity type {kind!r}: {nearest(kind, ENTITY_TYPES)}")
    if k < 1:
        raise UsageError(f"expected k of at least 1, got {k}")
    found: list[dict[str, Any]] = []
    with pq.ParquetFile(postings.file(FILE), page_checksum_verification=True) as file:
        for group in _groups(file, primitive_id, kind):
            for row in file.read_row_group(group).to_pylist():
                if (row["primitive_id"], row["entity_type"]) == (primitive_id, kind) and _holds(row, as_of):
                    found.append({name: row[name] for name in ("entity_id", "weight", "as_of")})
            if len(found) >= k:
                break
    return found[:k]


def _holds(row: Mapping[str, Any], as_of: int | None) -> bool:
    """Whether the bag of a row is the one of that time."""
    if as_of is None:
        return row["until"] is None
    return bool(row["as_of"] <= as_of and (row["until"] is None or as_of < row["until"]))


def _groups(file: pq.ParquetFile, primitive_id: str, kind: str) -> Iterator[int]:
    """Row groups that can hold rows of a primitive and a type, by the bounds in the file's statistics."""
    names = file.schema_arrow.names
    wanted = (names.index("primitive_id"), primitive_id), (names.index("entity_type"), kind)
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        bounds = [(group.column(column).statistics, value) for column, value in wanted]
        if all(bound.min <= value <= bound.max for bound, value in bounds):
            yield number
