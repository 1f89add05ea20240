"""Who holds an interest: one pass over the tokens, keeping what the newest bag of each entity says."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data.artifacts import ArtifactRef

Held = dict[str, dict[str, float]]
"""entity_id -> primitive_id -> weight."""

_COLUMNS = ["entity_type", "entity_id", "as_of", "primitive_id", "weight"]
_TEXTS = ["entity_type", "entity_id", "primitive_id"]
_ROWS = 1 << 18  # tokens read at once


def holders(tokens: ArtifactRef, entity_type: str, wanted: Collection[str]) -> Held:
    """Entities of a type whose newest bag holds any of the primitives `wanted`, in the order of their ids.

    Time: one pass over the tokens of that type. Memory: one batch of them, and the entities found.
    """
    found: Held = {}
    with pq.ParquetFile(tokens.file("tokens.parquet"), page_checksum_verification=True, read_dictionary=_TEXTS) as file:
        groups = _groups_of(file, entity_type)
        last, newest = None, 0
        for batch in file.iter_batches(_ROWS, row_groups=groups, columns=_COLUMNS):
            names, starts, as_of, rows = _matches(batch, entity_type, wanted)
            if not names:
                continue
            # The first entity may have begun in the batch before, with an older bag.
            if names[0] == last and as_of[starts[1] - 1] > newest:
                found.pop(names[0], None)
            for entity, primitive, weight in rows:
                found.setdefault(names[entity], {})[primitive] = weight
            last, newest = names[-1], int(as_of[-1])
    return found


def _matches(
    batch: pa.RecordBatch, entity_type: str, wanted: Collection[str]
) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64], list[tuple[int, str, float]]]:
    """Of the rows of a type: its entities, where each starts (entities + 1,), every row's as_of, and the wanted rows of
    newest bags as (place of the entity, primitive_id, weight)."""
    kinds, _ = _codes(batch, "entity_type", [entity_type])
    rows = np.flatnonzero(kinds)
    entity = batch["entity_id"]
    code, as_of = _numbers(entity.indices)[rows], _numbers(batch["as_of"])[rows]
    starts = np.append(np.flatnonzero(np.append(True, code[1:] != code[:-1])[: len(code)]), len(code))
    place = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    names = [entity.dictionary[int(code[start])].as_py() for start in starts[:-1]]
    held, primitives = _codes(batch, "primitive_id", wanted)
    kept = np.flatnonzero(held[rows] & (as_of == as_of[starts[1:] - 1][place])) if len(rows) else rows
    weights = _numbers(batch["weight"])[rows[kept]].tolist()
    said = [primitives[number] for number in _numbers(batch["primitive_id"].indices)[rows[kept]]]
    return names, starts, as_of, list(zip(place[kept].tolist(), said, weights, strict=True))


def _codes(batch: pa.RecordBatch, name: str, wanted: Collection[str]) -> tuple[NDArray[np.bool_], list[str]]:
    """Which rows of a dictionary column hold one of `wanted`, and the dictionary."""
    words: list[str] = batch[name].dictionary.to_pylist()
    chosen = np.array([word in wanted for word in words], bool)
    return chosen[_numbers(batch[name].indices)] if len(words) else np.zeros(len(batch), bool), words


def _numbers(column: pa.Array) -> NDArray[Any]:
    """A column without nulls as it lies in memory; to_numpy would import pandas."""
    found: NDArray[Any] = np.from_dlpack(column)
    return found


def _groups_of(file: Any, entity_type: str) -> list[int]:
    """Row groups that can hold a type, by the bounds in the file's statistics."""
    column = file.schema_arrow.names.index("entity_type")
    bounds = [file.metadata.row_group(group).column(column).statistics for group in range(file.metadata.num_row_groups)]
    return [group for group, bound in enumerate(bounds) if bound.min <= entity_type <= bound.max]
