"""Who holds an interest: one pass over the tokens, keeping what the newest bag of each entity says."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.timegrid import TOKENS

Held = dict[str, dict[str, float]]
"""entity_id -> primitive_id -> weight."""

_COLUMNS = ["entity_type", "entity_id", "primitive_id", "weight"]
_TEXTS = ["entity_type", "entity_id", "primitive_id"]
_ROWS = 1 << 18  # tokens read at once


def holders(tokens: ArtifactRef, entity_type: str, wanted: Collection[str]) -> Held:
    """Entities of a type whose newest bag holds any of the primitives `wanted`, in the order of their ids.

    Time: one pass over the tokens of that type, newest date first. Memory: one batch of them, and the ids of the type.
    """
    found: Held = {}
    seen: set[str] = set()
    for name in reversed(tokens.names(TOKENS)):
        fresh: set[str] = set()
        with pq.ParquetFile(tokens.file(name), page_checksum_verification=True, read_dictionary=_TEXTS) as file:
            groups = _groups_of(file, entity_type)
            for batch in file.iter_batches(_ROWS, row_groups=groups, columns=_COLUMNS):
                names, rows = _matches(batch, entity_type, wanted)
                fresh.update(names)
                for entity, primitive, weight in rows:
                    if names[entity] not in seen:
                        found.setdefault(names[entity], {})[primitive] = weight
        seen |= fresh
    return dict(sorted(found.items()))


def _matches(
    batch: pa.RecordBatch, entity_type: str, wanted: Collection[str]
) -> tuple[list[str], list[tuple[int, str, float]]]:
    """Of the rows of a type: its entities, and the wanted rows as (place of the entity, primitive_id, weight)."""
    kinds, _ = _codes(batch, "entity_type", [entity_type])
    rows = np.flatnonzero(kinds)
    entity = batch["entity_id"]
    code = _numbers(entity.indices)[rows]
    starts = np.flatnonzero(np.append(True, code[1:] != code[:-1])[: len(code)])
    place = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(code))))
    names = [entity.dictionary[int(code[start])].as_py() for start in starts]
    held, primitives = _codes(batch, "primitive_id", wanted)
    kept = np.flatnonzero(held[rows])
    weights = _numbers(batch["weight"])[rows[kept]].tolist()
    said = [primitives[number] for number in _numbers(batch["primitive_id"].indices)[rows[kept]]]
    return names, list(zip(place[kept].tolist(), said, weights, strict=True))


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
