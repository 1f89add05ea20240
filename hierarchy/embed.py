"""Stage embeddings: unit vectors of users, products and advertisers on a weekly as_of grid, and at the day of a run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from pydantic import Field

from data.artifacts import ArtifactRef, OutputDir
from data.context import Metrics, RunContext, StageConfig, UtcTime
from data.schema import ENTITY_TYPES, embeddings_schema, to_micros
from data.timegrid import EMBEDDINGS, as_of_grid, date_file
from encoders.placement import device_of
from graph.store import ENGAGED
from hierarchy.dates import Dates, cause_of, content_of
from hierarchy.inference import EntityEncoder, FrozenLearner
from hierarchy.past import fingerprints

_ORDERED = tuple(sorted(ENTITY_TYPES))
_ROWS = 16_384  # rows of a row group, and of an encoding call


class Config(StageConfig):
    """Options of the stage."""

    t0: UtcTime = Field(description="First date of the grid.")
    every_days: int = Field(default=7, ge=1, description="Days between dates of the grid.")
    as_of: UtcTime | None = Field(
        default=None,
        description="Instant up to which the log was read: a last date beside the grid, so that what is new that day "
        "has vectors that day; none if unset. Filled from events.as_of.",
    )

    def lineage_fields(self) -> dict[str, Any]:
        """What artifacts of one growing log share: all but `as_of`."""
        return {name: value for name, value in self.result_fields().items() if name != "as_of"}


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Write embeddings/<date>.parquet, each sorted by (entity_type, entity_id, head), and dates.json.

    The first date holds every visible entity, later ones those with new visible engagement or newly known: a reader
    takes an entity's last row at or before its time. With `previous`, embeddings of an earlier day, dates whose past is
    the same are taken as they are. Time is linear in the rows of new dates; memory is one date of one type. Finished
    dates are kept in the work folder, so a killed run goes on with the next date.
    """
    torch.set_num_threads(ctx.threads)
    learner = FrozenLearner.open(inputs["learner"], device_of(ctx.device))
    encoder = EntityEncoder(learner, inputs["graph"], inputs["features"])
    grid = dates_of(config, last_visible(encoder))
    version, frozen = learner.ref.version("model.safetensors"), content_of(learner.ref, "training.jsonl")
    dates = Dates(out, inputs.get("previous"))
    past = fingerprints(inputs["graph"], inputs["features"], grid)
    with ctx.progress.step("embed entities", len(grid), "dates") as progress:
        for as_of, before, seen in zip(grid, [None, *grid], past, strict=False):
            make = partial(_write_date, encoder=encoder, as_of=as_of, previous=before, version=version)
            dates.add(date_file(EMBEDDINGS, as_of), cause_of(frozen, before, as_of, seen), make)
            progress.advance()
    dates.write()
    span = {"dates": len(grid), "lent_dates": dates.lent, "first_as_of": grid[0], "last_as_of": grid[-1]}
    return {"rows": dates.rows, **span, "model_version": version}


def dates_of(config: Config, end: int) -> list[int]:
    """The grid up to `end` [us], or up to `as_of` and then that instant itself.

    The last date stands beside the grid: the next day has a later one in its place. No event of the log is later than
    it, so no example reads it, and what examples read stays as it is when the log grows.
    """
    if config.as_of is None:
        return as_of_grid(config.t0, end, config.every_days)
    last = to_micros(config.as_of)
    grid = as_of_grid(config.t0, last, config.every_days)
    return grid if grid[-1] >= last else [*grid, last]


def last_visible(encoder: EntityEncoder) -> int:
    """When the last engagement event became visible [us]; 0 when there is none."""
    segments = encoder.store.segments(ENGAGED["product"])
    return int(segments[-1].visible_from.max()) if segments else 0


def changed(encoder: EntityEncoder, kind: str, as_of: int, previous: int | None) -> NDArray[np.int64]:
    """Internal ids known at `as_of` that are new, have engagement visible since `previous` (None: all known) or another
    popularity, where that forgets."""
    known_at = encoder.store.known_at(kind)
    nodes = np.arange(int(np.searchsorted(known_at, as_of, side="right")))
    if previous is None:
        return nodes
    grown = encoder.degree(kind, nodes, as_of) > encoder.degree(kind, nodes, previous)
    if kind != "user" and encoder.learner.popularity_days is not None:
        grown |= encoder.popularity(kind, nodes, as_of) != encoder.popularity(kind, nodes, previous)
    return nodes[grown | (known_at[: len(nodes)] > previous)]


def _write_date(path: Path, encoder: EntityEncoder, as_of: int, previous: int | None, version: str) -> tuple[int, None]:
    schema = embeddings_schema(encoder.learner.model.encoder.shape.dim)
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
        for kind in _ORDERED:
            nodes = changed(encoder, kind, as_of, previous)
            names = encoder.store.entity_ids(kind).take(pa.array(nodes))
            order = np.argsort(np.asarray(names.to_pylist(), dtype=object), kind="stable")
            for start in range(0, len(nodes), _ROWS):
                part = order[start : start + _ROWS]
                table = _table(encoder, kind, nodes[part], names.take(pa.array(part)), as_of, version)
                writer.write_table(table)
                count += table.num_rows
    return count, None


def _table(
    encoder: EntityEncoder, kind: str, nodes: NDArray[np.int64], names: pa.Array, as_of: int, version: str
) -> pa.Table:
    vectors = encoder.encode(kind, nodes, as_of)
    count, heads, dim = vectors.shape
    degree = encoder.degree(kind, nodes, as_of)
    # Users are never candidates, so nothing is added to their score.
    popularity = np.zeros(count, np.float32) if kind == "user" else encoder.popularity(kind, nodes, as_of)
    each = np.repeat(np.arange(count), heads)
    columns = [
        names.take(pa.array(each)),
        pa.array([kind] * len(each), pa.string()),
        pa.array(np.tile(np.arange(heads, dtype=np.int32), count)),
        pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dim),
        pa.array(popularity[each]),
        pa.array(degree[each]),
        pa.array([version] * len(each), pa.string()),
        pa.array(np.full(len(each), as_of, np.int64)),
    ]
    return pa.Table.from_arrays(columns, schema=embeddings_schema(dim))
