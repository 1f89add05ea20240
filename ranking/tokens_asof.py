"""Interest tokens as dense as-of rows: every (entity, as_of) becomes one row of slots, level by level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.context import RunContext
from data.schema import ENTITY_TYPES
from data.timegrid import TOKENS
from ranking.asof import AsOf
from ranking.histories import encode_ids

_COLUMNS = ["entity_id", "entity_type", "level", "primitive_id", "weight", "rank", "as_of"]


@dataclass(frozen=True)
class TokenRows:
    """`primitive` int32 (g, slots), -1 where empty, and `weight` float32 (g, slots) of g (entity, as_of) pairs.

    Slots of level l are levels[l][0]:levels[l][1]; primitive -1 aside, `primitive` is a row of `vocabulary`
    (level, primitive_id). `as_of` int64 (g,) [us]; `index[type]` finds the row of an entity at a time.
    """

    primitive: NDArray[np.int32]
    weight: NDArray[np.float32]
    as_of: NDArray[np.int64]
    levels: dict[int, tuple[int, int]]
    vocabulary: pa.Table
    index: dict[str, AsOf]
    first: dict[str, int]

    def find(self, entity_type: str, entities: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row (q,) with the last as_of <= times[i] of each entity, -1 when it has none."""
        row = self.index[entity_type].latest(entities, times)
        return np.where(row >= 0, row + self.first[entity_type], -1)

    def first_rows(self, entity_type: str, count: int) -> NDArray[np.int32]:
        """The earliest row of each of `count` entities, -1 for those without any."""
        index, found = self.index[entity_type], np.full(count, -1, np.int32)
        found[index.keys] = index.starts[:-1] + self.first[entity_type]
        return found

    def relabelled(self, vocabulary: pa.Table, levels: Mapping[int, tuple[int, int]]) -> TokenRows:
        """The same rows as a model reads them that was trained on other dates: by its vocabulary, in its slots.

        Interests that it does not know are absent, and so is what does not fit into its slots, the lightest.
        """
        code = encode_ids(self.vocabulary["primitive_id"], vocabulary["primitive_id"].combine_chunks())
        slots = max((stop for _, stop in levels.values()), default=0)
        primitive = np.full((len(self.primitive), slots), -1, np.int32)
        weight = np.zeros(primitive.shape, np.float32)
        for level in levels.keys() & self.levels.keys():
            (start, stop), (first, last) = levels[level], self.levels[level]
            width = min(stop - start, last - first)
            mine = self.primitive[:, first : first + width]
            known = np.where(mine >= 0, code[mine], -1)
            primitive[:, start : start + width] = known
            weight[:, start : start + width] = np.where(known >= 0, self.weight[:, first : first + width], 0)
        return replace(self, primitive=primitive, weight=weight, levels=dict(levels), vocabulary=vocabulary)


def read_tokens(tokens: ArtifactRef, vocabularies: Mapping[str, pa.Array], ctx: RunContext) -> TokenRows:
    """Read the tokens artifact (by date, then entity_type, entity_id, level, rank) in batches.

    Tokens of entities outside `vocabularies` (type -> ids) are dropped. Memory: about 40 bytes per token row.
    """
    vocabulary = _vocabulary(tokens)
    columns = _read(tokens, vocabulary["primitive_id"].combine_chunks(), vocabularies, ctx)
    order = np.lexsort((columns["rank"], columns["level"], columns["as_of"], columns["entity"], columns["type"]))
    sorted_columns = {name: column[order] for name, column in columns.items()}
    return _pack(sorted_columns, vocabulary)


def _vocabulary(tokens: ArtifactRef) -> pa.Table:
    pieces = [
        pa.Table.from_batches([batch]).group_by(["level", "primitive_id"]).aggregate([])
        for batch in tokens.batches(TOKENS, ["level", "primitive_id"])
    ]
    if not pieces:
        return pa.table({"level": pa.array([], pa.int32()), "primitive_id": pa.array([], pa.string())})
    merged = pa.concat_tables(pieces).group_by(["level", "primitive_id"]).aggregate([])
    return merged.sort_by([("level", "ascending"), ("primitive_id", "ascending")])


def _read(
    tokens: ArtifactRef, primitives: pa.Array, vocabularies: Mapping[str, pa.Array], ctx: RunContext
) -> dict[str, NDArray]:
    names = ("type", "entity", "as_of", "level", "rank", "primitive", "weight")
    parts: dict[str, list[NDArray]] = {name: [] for name in names}
    with ctx.progress.step("read tokens", tokens.rows(TOKENS), "tokens") as step:
        for batch in tokens.batches(TOKENS, _COLUMNS):
            for number, entity_type in enumerate(ENTITY_TYPES):
                rows = batch.filter(pc.equal(batch["entity_type"], entity_type))
                entity = encode_ids(rows["entity_id"], vocabularies[entity_type])
                values = {
                    "type": np.full(len(entity), number, np.int8),
                    "entity": entity.astype(np.int32),
                    "as_of": rows["as_of"].to_numpy(),
                    "level": rows["level"].to_numpy(),
                    "rank": rows["rank"].to_numpy(),
                    "primitive": encode_ids(rows["primitive_id"], primitives).astype(np.int32),
                    "weight": rows["weight"].to_numpy(),
                }
                for name in names:
                    parts[name].append(values[name][entity >= 0])
            step.advance(len(batch))
    empty = {"as_of": np.int64, "weight": np.float32}
    return {name: np.concatenate(p) if p else np.zeros(0, empty.get(name, np.int32)) for name, p in parts.items()}


def _pack(columns: Mapping[str, NDArray], vocabulary: pa.Table) -> TokenRows:
    """Number the (entity, as_of) pairs and the slot of each token within its pair and level."""
    pair_starts = _run_starts(columns["type"], columns["entity"], columns["as_of"])
    level_starts = _run_starts(columns["type"], columns["entity"], columns["as_of"], columns["level"])
    count = len(columns["level"])
    pair = np.searchsorted(pair_starts, np.arange(count), "right") - 1
    place = np.arange(count) - level_starts[np.searchsorted(level_starts, np.arange(count), "right") - 1]
    levels: dict[int, tuple[int, int]] = {}
    for level in np.unique(columns["level"]).tolist():
        start = max((stop for _, stop in levels.values()), default=0)
        levels[level] = (start, start + int(place[columns["level"] == level].max()) + 1)
    slots = max((stop for _, stop in levels.values()), default=0)
    base = np.array([levels.get(level, (0, 0))[0] for level in range(max(levels, default=0) + 1)], np.int64)
    primitive = np.full((len(pair_starts), slots), -1, np.int32)
    weight = np.zeros((len(pair_starts), slots), np.float32)
    slot = base[columns["level"]] + place
    primitive[pair, slot], weight[pair, slot] = columns["primitive"], columns["weight"]
    heads = {name: columns[name][pair_starts] for name in ("type", "entity", "as_of")}
    index, first = {}, {}
    for number, entity_type in enumerate(ENTITY_TYPES):
        mine = heads["type"] == number
        first[entity_type] = int(np.argmax(mine)) if mine.any() else 0
        index[entity_type] = AsOf.build(heads["entity"][mine].astype(np.int64), heads["as_of"][mine])[0]
    return TokenRows(primitive, weight, heads["as_of"].astype(np.int64), levels, vocabulary, index, first)


def _run_starts(*keys: NDArray) -> NDArray[np.int64]:
    """First positions of runs of equal rows in columns that are sorted together."""
    changed = np.zeros(len(keys[0]), bool)
    changed[:1] = True
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changed)
