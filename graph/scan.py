"""The only reading of the log: its columns with ids as numbers of a small dictionary, kept until nodes are numbered.

Parquet holds ids as dictionaries already, so that strings are looked at once for each distinct id of a row group
rather than once an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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


def scan(sources: Sequence[Source], event_types: Sequence[str], threads: int, folder: Path) -> dict[str, int]:
    """Write the events of `sources` to `folder`, sorted by (visible_from, time); returns {"rows": n}.

    <end>.npy int32 (n,): number in <end>.parquet (schema NODES: id, first visible_from; -1 for none); kind.npy int8,
    visible_from.npy and time.npy int64 us, weight.npy float32. Memory: about 100 bytes a row and the distinct ids.
    """
    with ThreadPoolExecutor(threads) as pool:
        table = pa.concat_tables(pool.map(_read, sources))
        columns = dict(zip(_TEXT, pool.map(lambda name: table[name].unify_dictionaries(), _TEXT), strict=True))
    kind = _kinds(columns["event_type"])
    time, weight = table["ts"].to_numpy(), (1 / table["sample_prob"].to_numpy()).astype(np.float32)
    seen = visible_from(time, table["known_at"].to_numpy())
    del table
    rows = _order(seen, time)
    wanted = np.isin(kind, [EVENT_TYPES.index(name) for name in event_types])
    if not wanted.all():
        rows = np.flatnonzero(wanted) if isinstance(rows, slice) else rows[wanted[rows]]
    seen = seen[rows]
    for name, array in (("visible_from", seen), ("time", time[rows]), ("weight", weight[rows]), ("kind", kind[rows])):
        save(folder / f"{name}.npy", array)

    def number(end: str) -> None:
        save(folder / f"{end}.npy", _codes(columns.pop(f"{end}_id"), folder / f"{end}.parquet", rows, seen))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(number, ENDS))
    return {"rows": len(seen)}


def _read(source: Source) -> pa.Table:
    with pq.ParquetFile(source.path, read_dictionary=_TEXT, page_checksum_verification=True) as reader:
        if source.row_groups is None:
            return reader.read(columns=_COLUMNS, use_threads=False)
        return reader.read_row_groups(source.row_groups, columns=_COLUMNS, use_threads=False)


def _kinds(column: pa.ChunkedArray) -> NDArray[np.int8]:
    """Index in EVENT_TYPES of each event; raises BadDataError for a type that is none of them."""
    codes, names = _parts(column)
    number = index_in(names, pa.array(EVENT_TYPES, pa.string()))
    if (number < 0).any():
        raise BadDataError(f"expected event types {EVENT_TYPES}, got {names.filter(pa.array(number < 0)).to_pylist()}")
    return number.astype(np.int8)[codes]


def _codes(column: pa.ChunkedArray, file: Path, rows: Any, seen: NDArray[np.int64]) -> NDArray[np.int32]:
    """Write the distinct ids that `rows` name, each with its first visible_from; return their numbers, -1 for none."""
    codes, names = _parts(column)
    codes = codes[rows]
    first = np.full(len(names) + 1, _NEVER, np.int64)  # the last one takes rows without an id (-1)
    first[codes[::-1]] = seen[::-1]  # of several values for one place the last one stays: the earliest
    named = first[:-1] < _NEVER
    if not named.all():
        number = np.append(np.cumsum(named) - 1, -1).astype(np.int32)
        names, first = names.filter(pa.array(named)), first[np.append(named, True)]
        codes = np.asarray(number[codes])
    pq.write_table(pa.Table.from_arrays([names, pa.array(first[:-1])], schema=NODES), file, compression="lz4")
    return codes


def _parts(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], pa.Array]:
    """Numbers (-1 for null) and values of a dictionary column whose chunks share one dictionary."""
    if not column.num_chunks:
        return np.zeros(0, np.int32), pa.array([], pa.string())
    numbers = [chunk.indices.fill_null(-1).to_numpy() for chunk in column.chunks]
    codes: NDArray[np.int32] = np.concatenate(numbers).astype(np.int32, copy=False)
    return codes, column.chunk(0).dictionary


def _order(seen: NDArray[np.int64], time: NDArray[np.int64]) -> Any:
    """Index that sorts by (visible_from, time); a slice where they are sorted, as days of a log without delays are."""
    later = np.diff(seen)
    if ((later > 0) | ((later == 0) & (np.diff(time) >= 0))).all():
        return slice(None)
    return np.lexsort((time, seen))
