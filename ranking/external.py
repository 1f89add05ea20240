"""The rows of an examples artifact in external ids: what another system reads, and what leakage tests compare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.schema import EVENT_TYPES
from ranking.histories import read_vocabularies
from ranking.reader import COLUMNS, JOINS, Examples

_PLAIN = (
    "ts",
    "sample_prob",
    "label",
    "split",
    "hour",
    "weekday",
    "product_events",
    "pair_events",
    "visit_age",
    "pair_age",
)
_INTERNAL = {"user", "product", "advertiser", "surface"}


def to_external(examples: ArtifactRef, path: Path, history_len: int = 50, batch_rows: int = 8_192) -> None:
    """Write one Parquet row per example, sorted by (ts, event_id), with history, tokens and content spelled out.

    No number in it depends on the order of an internal vocabulary. Memory grows with `batch_rows` only.
    """
    opened = Examples.open(examples)
    writer = None
    try:
        for table in _tables(opened, history_len, batch_rows):
            writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd", store_schema=False)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _tables(examples: Examples, history_len: int, batch_rows: int) -> Iterator[pa.Table]:
    ref = examples.ref
    ids = {
        **read_vocabularies(ref),
        "surface": pa.array(examples.surfaces, pa.string()),
        "primitive": ref.table("tokens/primitives.parquet")["primitive_id"].combine_chunks(),
    }
    category = ref.table("products.parquet")["category"].combine_chunks()
    start = 0
    for batch in ref.batches("ids.parquet", rows=batch_rows):
        rows = {name: np.asarray(examples.columns[name][start : start + len(batch)]) for name in COLUMNS}
        table: dict[str, pa.Array] = {"event_id": batch["event_id"]}
        for name in _INTERNAL:
            table[name if name == "surface" else f"{name}_id"] = _take(ids[name], rows[name])
        table |= {name: pa.array(rows[name]) for name in _PLAIN}
        table |= {f"{name}_status": pa.array(rows[f"{name}_status"]) for name in JOINS}
        table["category"] = _take(category, rows["product"])
        table["content"] = _vectors(examples.content, rows["content"])
        states = examples.user_states.reshape(len(examples.user_states), np.prod(examples.user_states.shape[1:]))
        table["user_states"] = _vectors(states, rows["user_states"])
        table |= _history(examples, rows, ids["product"], history_len)
        for entity_type in ("user", "product", "advertiser"):
            table |= _tokens(examples, rows[f"{entity_type}_tokens"], ids["primitive"], entity_type)
        start += len(batch)
        yield pa.table(dict(sorted(table.items())))


def _take(values: pa.Array, rows: NDArray) -> pa.Array:
    return values.take(pa.array(rows.astype(np.int64), mask=rows < 0))


def _lists(lengths: NDArray, values: pa.Array) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)), values)


def _vectors(content: NDArray, rows: NDArray) -> pa.Array:
    there = rows >= 0
    return _lists(there * content.shape[1], pa.array(np.asarray(content[rows[there]], np.float32).reshape(-1)))


def _history(examples: Examples, rows: dict[str, NDArray], products: pa.Array, history_len: int) -> dict[str, pa.Array]:
    start, end = rows["history_start"], rows["history_end"]
    lengths = np.minimum(end - start, history_len)
    places = np.repeat(end - np.cumsum(lengths), lengths) + np.arange(lengths.sum())
    kinds = examples.history["event_type"][places].astype(np.int64)
    return {
        "history_count": pa.array(end - start),
        "history_product_id": _lists(lengths, _take(products, examples.history["product"][places])),
        "history_event_type": _lists(lengths, pa.array(EVENT_TYPES).take(pa.array(kinds))),
        "history_ts": _lists(lengths, pa.array(np.asarray(examples.history["ts"][places]))),
    }


def _tokens(examples: Examples, rows: NDArray, primitives: pa.Array, entity_type: str) -> dict[str, pa.Array]:
    there = rows >= 0
    primitive = np.full((len(rows), examples.primitive.shape[1]), -1, np.int32)
    weight = np.zeros(primitive.shape, np.float32)
    primitive[there], weight[there] = examples.primitive[rows[there]], examples.weight[rows[there]]
    filled = primitive >= 0
    lengths = filled.sum(axis=1)
    return {
        f"{entity_type}_primitive_id": _lists(lengths, _take(primitives, primitive[filled])),
        f"{entity_type}_weight": _lists(lengths, pa.array(weight[filled])),
    }
