"""Stage embeddings: unit vectors of users, products and advertisers on the weekly as_of grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from pydantic import Field

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, UtcTime, execution
from data.schema import ENTITY_TYPES, embeddings_schema
from data.timegrid import as_of_grid
from graph.store import ENGAGED
from hierarchy.inference import EntityEncoder, FrozenLearner

_ORDERED = tuple(sorted(ENTITY_TYPES))


class Config(StageConfig):
    """Options of the stage."""

    t0: UtcTime = Field(description="First date of the grid.")
    every_days: int = Field(default=7, ge=1, description="Days between dates of the grid.")
    rows: int = execution(16_384, "Rows per row group and per encoding call.", ge=1)


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Write embeddings.parquet, sorted by (as_of, entity_type, entity_id, head).

    The first date holds every visible entity, later ones those with new visible engagement or newly known: a reader
    takes an entity's last row at or before its time. Time is linear in rows; memory is one date of one type. Finished
    dates are kept as shards in the work folder, so a killed run goes on with the next date.
    """
    torch.set_num_threads(ctx.threads)
    learner = FrozenLearner.open(inputs["learner"])
    encoder = EntityEncoder(learner, inputs["graph"], inputs["features"])
    grid = as_of_grid(config.t0, last_visible(encoder), config.every_days)
    version = learner.ref.version("model.safetensors")
    shards = out.work / "shards"
    shards.mkdir(parents=True, exist_ok=True)
    with ctx.progress.step("embed entities", len(grid), "dates") as progress:
        for number, as_of in enumerate(grid):
            shard = shards / f"{as_of}.parquet"
            if not shard.exists():
                previous = grid[number - 1] if number else None
                _write_shard(shard, encoder, as_of, previous, version, config.rows)
            progress.advance()
    schema = embeddings_schema(learner.model.encoder.shape.dim)
    rows = out.write_batches("embeddings.parquet", schema, _read_shards(shards, grid, config.rows))
    dates = {"dates": len(grid), "first_as_of": grid[0], "last_as_of": grid[-1]}
    return {"rows": rows, **dates, "model_version": version}


def last_visible(encoder: EntityEncoder) -> int:
    """When the last engagement event became visible [us]; 0 when there is none."""
    segments = encoder.store.segments(ENGAGED["product"])
    return int(segments[-1].visible_from.max()) if segments else 0


def changed(encoder: EntityEncoder, kind: str, as_of: int, previous: int | None) -> NDArray[np.int64]:
    """Internal ids known at `as_of` that are new or have engagement visible since `previous` (None: all known)."""
    known_at = encoder.store.known_at(kind)
    nodes = np.arange(int(np.searchsorted(known_at, as_of, side="right")))
    if previous is None:
        return nodes
    grown = encoder.degree(kind, nodes, as_of) > encoder.degree(kind, nodes, previous)
    return nodes[grown | (known_at[: len(nodes)] > previous)]


def _write_shard(
    shard: Path, encoder: EntityEncoder, as_of: int, previous: int | None, version: str, rows: int
) -> None:
    schema = embeddings_schema(encoder.learner.model.encoder.shape.dim)
    draft = shard.with_suffix(".draft")
    with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
        for kind in _ORDERED:
            nodes = changed(encoder, kind, as_of, previous)
            names = encoder.store.entity_ids(kind).take(pa.array(nodes))
            order = np.argsort(np.asarray(names.to_pylist(), dtype=object), kind="stable")
            for start in range(0, len(nodes), rows):
                part = order[start : start + rows]
                writer.write_table(_table(encoder, kind, nodes[part], names.take(pa.array(part)), as_of, version))
    draft.replace(shard)


def _table(
    encoder: EntityEncoder, kind: str, nodes: NDArray[np.int64], names: pa.Array, as_of: int, version: str
) -> pa.Table:
    vectors = encoder.encode(kind, nodes, as_of)
    count, heads, dim = vectors.shape
    degree = encoder.degree(kind, nodes, as_of)
    # Users are never candidates, so nothing is added to their score.
    scale = 0.0 if kind == "user" else encoder.learner.model.link.popularity_in_cosine()
    each = np.repeat(np.arange(count), heads)
    columns = [
        names.take(pa.array(each)),
        pa.array([kind] * len(each), pa.string()),
        pa.array(np.tile(np.arange(heads, dtype=np.int32), count)),
        pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dim),
        pa.array((scale * np.log1p(degree)).astype(np.float32)[each]),
        pa.array(degree[each]),
        pa.array([version] * len(each), pa.string()),
        pa.array(np.full(len(each), as_of, np.int64)),
    ]
    return pa.Table.from_arrays(columns, schema=embeddings_schema(dim))


def _read_shards(shards: Path, grid: list[int], rows: int) -> Iterator[pa.RecordBatch]:
    for as_of in grid:
        with pq.ParquetFile(shards / f"{as_of}.parquet") as reader:
            yield from reader.iter_batches(batch_size=rows)
