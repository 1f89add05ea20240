"""Interest tokens as a point-in-time feature table: one row for each (entity, time) asked for, in the order asked.

A row takes the newest bag with as_of <= ts. That bag was itself made from what had happened and could be read by as_of
alone, so that nothing in it is later than the row.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.context import RunContext
from data.schema import ENTITY_TYPES
from data.timegrid import TOKENS
from ranking.asof import Ints, at_rows
from ranking.histories import encode_ids
from ranking.joins import join_status
from ranking.tokens_asof import TokenRows, read_tokens

STATUS = ("ok", "missing", "stale")
"""Words of reader.OK, MISSING and STALE: a bag is there, none was made by then, or the newest is older than allowed."""

ASKED = pa.schema([("entity_type", pa.string()), ("entity_id", pa.string()), ("ts", pa.int64())])
"""What is asked for: whose tokens, as of when [us]."""

EVERYONE_ROWS = 65_536
"""Entities of a piece of `TokenTable.everyone`."""


@dataclass(frozen=True)
class TokenTable:
    """The tokens of one artifact, ready to be looked up by entity and time."""

    tokens: TokenRows
    ids: dict[str, pa.Array]
    dates: Ints
    versions: pa.Array

    @classmethod
    def open(cls, tokens: ArtifactRef, ctx: RunContext) -> TokenTable:
        """Index all dates of a tokens artifact. Memory: about 40 bytes a token row, and the ids."""
        pieces: dict[str, list[pa.Array]] = {kind: [pa.array([], pa.string())] for kind in ENTITY_TYPES}
        dated: set[tuple[int, str]] = set()
        for batch in tokens.batches(TOKENS, ["entity_type", "entity_id", "as_of", "vocab_version"]):
            for kind, found in pieces.items():
                found.append(batch["entity_id"].filter(pc.equal(batch["entity_type"], kind)).unique())
            pairs = pa.Table.from_batches([batch]).group_by(["as_of", "vocab_version"]).aggregate([])
            dated |= set(zip(pairs["as_of"].to_pylist(), pairs["vocab_version"].to_pylist(), strict=True))
        known = {kind: pa.concat_arrays(found).unique() for kind, found in pieces.items()}
        known = {kind: ids.take(pc.sort_indices(ids)) for kind, ids in known.items()}
        versions = dict(sorted(dated))
        dates = np.array(list(versions), np.int64)
        return cls(read_tokens(tokens, known, ctx), known, dates, pa.array(list(versions.values()), pa.string()))

    def schema(self, flat: bool = False) -> pa.Schema:
        """Columns of the table: what was asked, status, as_of, vocab_version, and per level lists of ids and weights,
        heaviest first; with `flat` also one column of ids and one of weights for each slot of a level."""
        fields = [*ASKED, ("status", pa.string()), ("as_of", pa.int64()), ("vocab_version", pa.string())]
        for level in self.tokens.levels:
            fields.append((f"level_{level}_primitive_id", pa.list_(pa.string())))
            fields.append((f"level_{level}_weight", pa.list_(pa.float32())))
        for level, (start, stop) in self.tokens.levels.items() if flat else ():
            for slot in range(stop - start):
                fields.append((f"level_{level}_slot_{slot}", pa.string()))
                fields.append((f"level_{level}_slot_{slot}_weight", pa.float32()))
        return pa.schema(fields)

    def rows(self, asked: pa.Table, stale_days: int, flat: bool = False) -> pa.Table:
        """One row of `schema` for each row of `asked` (schema ASKED), in its order.

        Absent bags have status missing, null as_of and vocab_version, empty lists; empty slots null ids of weight 0.
        """
        ts = asked["ts"].to_numpy()
        found = self._find(asked, ts)
        made = at_rows(self.tokens.as_of, found)
        status = join_status(found >= 0, ts, made, stale_days)
        absent = found < 0
        columns = [asked[name] for name in ASKED.names]
        columns += [pa.array(STATUS).take(pa.array(status)), pa.array(made, mask=absent)]
        columns.append(self.versions.take(pa.array(np.searchsorted(self.dates, made), mask=absent)))
        primitive, weight = self._bags(found)
        spans = list(self.tokens.levels.values())
        for start, stop in spans:
            columns += self._lists(primitive[:, start:stop], weight[:, start:stop])
        for slot in (slot for start, stop in spans for slot in range(start, stop)) if flat else ():
            columns += [self._names(primitive[:, slot]), pa.array(weight[:, slot])]
        return pa.Table.from_arrays(columns, schema=self.schema(flat))

    def everyone(self, ts: int) -> Iterator[pa.Table]:
        """Rows of schema ASKED for every entity that has a bag by `ts` [us], by type and id."""
        for kind in ENTITY_TYPES:
            for start in range(0, len(self.ids[kind]), EVERYONE_ROWS):
                ids = self.ids[kind].slice(start, EVERYONE_ROWS)
                codes = np.arange(start, start + len(ids))
                there = self.tokens.find(kind, codes, np.full(len(ids), ts)) >= 0
                ids = ids.filter(pa.array(there))
                times = pa.array(np.full(len(ids), ts, np.int64))
                yield pa.Table.from_arrays([pa.repeat(kind, len(ids)), ids, times], schema=ASKED)

    def _find(self, asked: pa.Table, ts: Ints) -> Ints:
        found = np.full(len(asked), -1, np.int64)
        for kind, ids in self.ids.items():
            mine = np.flatnonzero(pc.equal(asked["entity_type"], kind).to_numpy())
            codes = encode_ids(asked["entity_id"].take(pa.array(mine)), ids)
            found[mine] = self.tokens.find(kind, codes, ts[mine])
        return found

    def _bags(self, found: Ints) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        slots = self.tokens.primitive.shape[1]
        primitive, weight = np.full((len(found), slots), -1, np.int32), np.zeros((len(found), slots), np.float32)
        there = found >= 0
        primitive[there], weight[there] = self.tokens.primitive[found[there]], self.tokens.weight[found[there]]
        return primitive, weight

    def _lists(self, primitive: NDArray[np.int32], weight: NDArray[np.float32]) -> list[pa.Array]:
        filled = primitive >= 0
        ends = np.concatenate([[0], np.cumsum(filled.sum(axis=1))]).astype(np.int32)
        values = (self._names(primitive[filled]), pa.array(weight[filled]))
        return [pa.ListArray.from_arrays(pa.array(ends), each) for each in values]

    def _names(self, primitive: NDArray[np.int32]) -> pa.Array:
        names = self.tokens.vocabulary["primitive_id"].combine_chunks()
        return names.take(pa.array(primitive, mask=primitive < 0))


def write_table(
    table: TokenTable, asked: Iterable[pa.Table], out: Path, stale_days: int, flat: bool = False
) -> dict[str, int]:
    """Write the rows of all pieces of `asked` to Parquet file `out`, which appears by one rename when it is complete.

    Returns the rows of each status, and `first` and `last` [us] of their times if there is any.
    """
    counts, times = dict.fromkeys(STATUS, 0), []
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with pq.ParquetWriter(draft, table.schema(flat), compression="zstd") as writer:
            for piece in asked:
                rows = table.rows(piece, stale_days, flat)
                writer.write_table(rows)
                for name in STATUS:
                    counts[name] += int(pc.sum(pc.equal(rows["status"], name)).as_py() or 0)
                if len(rows):
                    times += [bound.as_py() for bound in pc.min_max(rows["ts"]).values()]
                    times = [min(times), max(times)]
        os.replace(draft, out)
    finally:
        draft.unlink(missing_ok=True)
    return counts | (dict(zip(("first", "last"), times, strict=True)) if times else {})
