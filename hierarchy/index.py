"""Stage index: nearest-neighbour indexes over the newest embeddings of products, users, advertisers and primitives."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pydantic import Field

from data import vectors
from data.artifacts import ArtifactRef, OutputDir
from data.categories import SEPARATOR
from data.context import Metrics, RunContext, StageConfig
from data.errors import BadDataError
from graph.store import index_in
from hierarchy.asof import read_as_of
from hierarchy.bags import Vectors
from hierarchy.query import INDEXED

ENTITIES = pa.schema([(name, pa.string()) for name in ("entity_id", "title", "advertiser_id", "category")])
"""Columns of entities_<type>.parquet, sorted by entity_id; a user with several heads has a row for each."""


class Config(StageConfig):
    """What the stage asks of its own work."""

    min_recall: float = Field(
        default=0.9, ge=0, le=1, description="Least recall@10 of an index against exact search; below it the run fails."
    )


def run(config: Config, inputs: Mapping[str, ArtifactRef], out: OutputDir, ctx: RunContext) -> Metrics:
    """Write <type>.faiss, vectors_<type>.npy and entities_<type>.parquet for each of INDEXED; row numbers are the ids.

    Time and memory grow with the entities; above data.vectors.FLAT_LIMIT of them an index is approximate.
    Raises BadDataError when an index finds less than `min_recall` of what exact search finds.
    """
    metrics: Metrics = {"as_of": inputs["embeddings"].metrics["last_as_of"]}
    with ctx.progress.step("index", len(INDEXED), "types") as step:
        for kind in INDEXED:
            table, found, heads = _primitives(inputs["supergraph"]) if kind == "primitive" else _entities(inputs, kind)
            recall = _write(out, kind, table, found, ctx.device)
            if recall < config.min_recall:
                raise BadDataError(
                    f"index of {kind}: expected recall@10 of at least {config.min_recall}, got {recall:.3f}: "
                    "lower index.min_recall or raise data.vectors.FLAT_LIMIT, up to which search is exact"
                )
            metrics[kind] = {"vectors": len(found), "heads": heads, "recall@10": round(recall, 4)}
            step.advance()
    return metrics


def _write(out: OutputDir, kind: str, table: pa.Table, found: Vectors, device: str) -> float:
    ids = np.arange(len(found))
    index = vectors.build(found, ids)
    vectors.save(index, out.file(f"{kind}.faiss"))
    out.write_array(f"vectors_{kind}.npy", found)
    out.write_table(f"entities_{kind}.parquet", table)
    return vectors.exact_recall(index, found, ids, 10, device)


def _entities(inputs: Mapping[str, ArtifactRef], kind: str) -> tuple[pa.Table, Vectors, int]:
    """Entities of a type, their vectors (rows, d), and how many rows each has."""
    newest = read_as_of(inputs["embeddings"], kind)
    count, heads, dim = newest.vectors.shape
    columns = {"entity_id": newest.entity_id, **_known(inputs["events"], kind, newest.entity_id)}
    table = pa.table([columns.get(name, pa.nulls(count, pa.string())) for name in ENTITIES.names], schema=ENTITIES)
    return table.take(pa.array(np.repeat(np.arange(count), heads))), newest.vectors.reshape(-1, dim), heads


def _known(events: ArtifactRef, kind: str, ids: pa.Array) -> dict[str, pa.Array | pa.ChunkedArray]:
    """What the catalogue says of `ids`, in their order; null where it does not have them."""
    if kind == "user":
        return {}
    table = events.table(f"{kind}s.parquet")
    place = index_in(ids, table[f"{kind}_id"].combine_chunks())
    rows = table.take(pa.array(place, mask=place < 0))
    if kind == "advertiser":
        return {"title": rows["name"], "advertiser_id": ids, "category": rows["vertical"]}
    paths = [SEPARATOR.join(path) if path else None for path in rows["category"].to_pylist()]
    return {"title": rows["title"], "advertiser_id": rows["advertiser_id"], "category": pa.array(paths, pa.string())}


def _primitives(supergraph: ArtifactRef) -> tuple[pa.Table, Vectors, int]:
    """Primitives under their label; their category is the label of the parent."""
    rows = supergraph.table("primitives.parquet", ["primitive_id", "parent_id", "label", "vector"]).to_pylist()
    rows.sort(key=lambda row: row["primitive_id"])
    labels = {row["primitive_id"]: row["label"] for row in rows}
    columns = [
        [row["primitive_id"] for row in rows],
        [row["label"] for row in rows],
        [None] * len(rows),
        [labels.get(row["parent_id"]) for row in rows],
    ]
    table = pa.table([pa.array(column, pa.string()) for column in columns], schema=ENTITIES)
    return table, np.array([row["vector"] for row in rows], np.float32), 1
