"""The only reading of the log: its columns with ids as numbers of a small dictionary, kept until nodes are numbered.

Parquet holds ids as dictionaries already, so that strings are looked at once for each distinct id of a row group
rather than once an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data.errors import BadDataError
from data.schema import EVENT_TYPES, visible_from
from graph.arrays import save
from graph.ids import NODES
from graph.store import EVENT_TARGETS, index_in

ENDS = ("user", *EVENT_TARGETS)
"""Node types an event can name, in the order of a chunk's columns."""

_TEXT = [*(f"{kind}_id" for kind in ENDS), "event_type"]
_COLUMNS = [*_TEXT, "ts", "known_at", "sample_prob"]
_NEVER = np.iinfo(np.int64).max


class Source(NamedTuple):
    """A part of the log: a Parquet file, and which of its row groups (None: all)."""

    path: Path
    row_groups: tuple[int, ...] | None = None


def pieces(path: Path, limit: int) -> list[Source]:
    """A part in sources of whole row groups with at most `limit` rows each (one row group at least)."""
    found: list[list[int]] = []
    with pq.ParquetFile(path) as reader:
        room = 0
        for group in range(reader.num_row_groups):
            rows = reader.metadata.row_group(group).num_rows
            if not found or rows > room:
                found.append([])
                room = limit
            found[-1].append(group)
            room -= rows
    return [Source(path, tuple(groups)) for groups in found]


def scan(sources: Sequence[Source], event_types: Sequence[str], folder: Path) -> dict[str, int]:
    """Write the events of `sources` to `folder`, sorted by (visible_from, time); returns {"rows": n}.

    <end>.npy int32 (n,): number in <end>.parquet (schema NODES: id, first visible_from; -1 for none); kind.npy int8,
    visible_from.npy and time.npy int64 us, weight.npy float32. Memory: about 80 bytes a row, the distinct ids, and a
    row group.
    """
    log = _Log.empty(sum(map(_rows, sources)))
    starts = np.cumsum([0, *map(_rows, sources)]).tolist()
    pieces = [piece for source, start in zip(sources, starts, strict=False) for piece in log.fill(source, start)]
    seen = log.visible_from
    rows = _order(seen, log.time)
    wanted = np.isin(log.kind, [EVENT_TYPES.index(name) for name in event_types])
    if not wanted.all():
        rows = np.flatnonzero(wanted) if isinstance(rows, slice) else rows[wanted[rows]]
    seen = seen[rows]
    save(folder / "visible_from.npy", seen)
    for name in ("time", "weight", "kind"):
        save(folder / f"{name}.npy", getattr(log, name)[rows])
    for end in ENDS:
        names = _unify(log.codes[end], [(piece.start, piece.stop, piece.names[end]) for piece in pieces])
        save(folder / f"{end}.npy", _named(log.codes.pop(end)[rows], names, folder / f"{end}.parquet", seen))
    return {"rows": len(seen)}


class _Piece(NamedTuple):
    """Rows start .. stop - 1 of a log, whose codes are places in `names` (by node type)."""

    start: int
    stop: int
    names: dict[str, pa.Array]


@dataclass(frozen=True)
class _Log:
    """The columns of a chunk, filled a row group at a time: what Arrow decodes is let go before the next is read."""

    codes: dict[str, NDArray[np.int32]]
    kind: NDArray[np.int8]
    time: NDArray[np.int64]
    visible_from: NDArray[np.int64]
    weight: NDArray[np.float32]

    @classmethod
    def empty(cls, rows: int) -> _Log:
        codes = {end: np.empty(rows, np.int32) for end in ENDS}
        times = np.empty(rows, np.int64), np.empty(rows, np.int64)
        return cls(codes, np.empty(rows, np.int8), *times, np.empty(rows, np.float32))

    def fill(self, source: Source, start: int) -> list[_Piece]:
        """Read a source into the rows from `start` on."""
        pieces = []
        with pq.ParquetFile(source.path, read_dictionary=_TEXT, page_checksum_verification=True) as reader:
            groups = range(reader.num_row_groups) if source.row_groups is None else source.row_groups
            for group in groups:
                for batch in reader.read_row_group(group, columns=_COLUMNS, use_threads=False).to_batches():
                    pieces.append(self._take(batch, start))
                    start += len(batch)
        return pieces

    def _take(self, batch: pa.RecordBatch, start: int) -> _Piece:
        rows = slice(start, start + len(batch))
        self.kind[rows] = _kinds(batch["event_type"])
        self.time[rows] = batch["ts"].to_numpy()
        self.visible_from[rows] = visible_from(self.time[rows], batch["known_at"].to_numpy())
        self.weight[rows] = 1 / batch["sample_prob"].to_numpy()
        for end in ENDS:
            self.codes[end][rows] = batch[f"{end}_id"].indices.fill_null(-1).to_numpy()
        return _Piece(rows.start, rows.stop, {end: batch[f"{end}_id"].dictionary for end in ENDS})


def _rows(source: Source) -> int:
    metadata = pq.read_metadata(source.path)
    if source.row_groups is None:
        return int(metadata.num_rows)
    return sum(metadata.row_group(group).num_rows for group in source.row_groups)


def _kinds(column: pa.DictionaryArray) -> NDArray[np.int8]:
    """Index in EVENT_TYPES of each event; raises BadDataError for a type that is none of them."""
    number = index_in(column.dictionary, pa.array(EVENT_TYPES, pa.string()))
    if (number < 0).any():
        odd = column.dictionary.filter(pa.array(number < 0)).to_pylist()
        raise BadDataError(f"expected event types {EVENT_TYPES}, got {odd}")
    kinds: NDArray[np.int8] = number.astype(np.int8)[column.indices.to_numpy()]
    return kinds


def _unify(codes: NDArray[np.int32], pieces: Sequence[tuple[int, int, pa.Array]]) -> pa.Array:
    """The distinct values of all pieces; `codes`, places in a piece's own values, become places in them."""
    if not pieces:
        return pa.array([], pa.string())
    whole = pa.concat_arrays([names for _, _, names in pieces]).dictionary_encode()
    number, passed = whole.indices.to_numpy(), 0
    for start, stop, names in pieces:
        own = np.append(number[passed : passed + len(names)], -1).astype(np.int32)
        codes[start:stop] = own[codes[start:stop]]
        passed += len(names)
    return whole.dictionary


def _named(codes: NDArray[np.int32], names: pa.Array, file: Path, seen: NDArray[np.int64]) -> NDArray[np.int32]:
    """Write the ids that `codes` name, each with its first visible_from; return their numbers, -1 for none."""
    first = np.full(len(names) + 1, _NEVER, np.int64)  # the last one takes rows without an id (-1)
    first[codes[::-1]] = seen[::-1]  # of several values for one place the last one stays: the earliest
    named = first[:-1] < _NEVER
    if not named.all():
        number = np.append(np.cumsum(named) - 1, -1).astype(np.int32)
        names, first = names.filter(pa.array(named)), first[np.append(named, True)]
        codes = np.asarray(number[codes])
    pq.write_table(pa.Table.from_arrays([names, pa.array(first[:-1])], schema=NODES), file, compression="lz4")
    return codes


def _order(seen: NDArray[np.int64], time: NDArray[np.int64]) -> Any:
    """Index that sorts by (visible_from, time); a slice where they are sorted, as days of a log without delays are."""
    later = np.diff(seen)
    if ((later > 0) | ((later == 0) & (np.diff(time) >= 0))).all():
        return slice(None)
    return np.lexsort((time, seen))
