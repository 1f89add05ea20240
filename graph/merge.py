"""Runs and segments, in time order, to one segment: their rows one after the other, a stretch of rows at a time.

Compaction is this very merge. What was sorted stays sorted, so nothing is compared, only moved; the exception are the
parts of a day too large for one chunk, whose rows are sorted anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.artifacts import link_file
from graph.arrays import ArrayFile, save, writer
from graph.hashing import counter_hash
from graph.runs import column_type
from graph.store import DERIVED, LINKS, OPTIONAL, RELATIONS, Relation, stretches

BUCKET = 1 << 21
"""Edges moved at a time: about 120 MB."""

EVENT_RELATIONS = tuple(relation for relation in (*RELATIONS, *DERIVED) if relation not in LINKS)
"""What a segment can hold."""

_ROWS = ("rowptr", "row", "start")
"""Files that say which edges belong to which row."""

_TYPES: dict[str, Any] = {"visible_from": np.int64, "time": np.int64, "weight": np.float32, "kind": np.int8}


def merge(sources: Sequence[Path], sizes: Mapping[str, int], threads: int, folder: Path, ordered: bool = True) -> int:
    """Merge the folders `sources` into `folder`, for `sizes` nodes of each type; returns the edges that were moved.

    `ordered`: every edge of a source is visible before those of the next one. Files that need no change are linked.
    Memory: a bucket of edges and rowptr, a thread (without `ordered` at least the longest row).
    """
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(lambda relation: _merge(sources, relation, sizes, folder, ordered), EVENT_RELATIONS))


def _merge(sources: Sequence[Path], relation: Relation, sizes: Mapping[str, int], folder: Path, ordered: bool) -> int:
    parts = [_Part(source / relation.folder) for source in sources if (source / relation.folder).is_dir()]
    target, rows = folder / relation.folder, sizes[relation.src]
    dtype = column_type(sizes[relation.dst])
    if not parts:
        return 0
    if len(parts) == 1 and parts[0].files["col"].dtype == dtype:
        _link(parts[0], target, rows)
        return 0
    rowptr = _rowptr(parts, rows)
    save(target / "rowptr.npy", rowptr)
    names = ["col", "visible_from", *(name for name in OPTIONAL if any(name in part.files for part in parts))]
    types = {**_TYPES, "col": dtype}
    with ExitStack() as stack:
        append = {
            name: stack.enter_context(writer(target / f"{name}.npy", types[name], int(rowptr[-1]))) for name in names
        }
        for piece in _pieces(parts, rowptr, names, types, ordered):
            for name, array in piece.items():
                append[name](array)
    return int(rowptr[-1])


def _rowptr(parts: Sequence[_Part], rows: int) -> NDArray[np.int64]:
    """Row pointers over `rows` rows of all parts together."""
    rowptr = np.zeros(rows + 1, np.int64)
    for part in parts:
        rowptr[part.rows.astype(np.int64) + 1] += part.counts
    return np.cumsum(rowptr, out=rowptr)


class _Part:
    """The files of one relation in one source: a run, or a segment, whose empty rows are passed over here too."""

    def __init__(self, folder: Path) -> None:
        self.files = {path.stem: ArrayFile(path) for path in folder.glob("*.npy")}
        if "rowptr" in self.files:
            pointers = self.files["rowptr"].read()
            self.rows = np.flatnonzero(np.diff(pointers))
            self.starts = np.append(pointers[self.rows], pointers[-1])
        else:
            self.rows, self.starts = self.files["row"].read(), self.files["start"].read()

    @property
    def counts(self) -> NDArray[np.int64]:
        """Edges of each of `rows`."""
        return np.diff(self.starts)

    def within(self, start: int, stop: int) -> slice:
        """Which of `rows` are in start .. stop - 1."""
        return slice(*np.searchsorted(self.rows, (start, stop)).tolist())

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Where the edges of rows start .. stop - 1 lie."""
        own = self.within(start, stop)
        return int(self.starts[own.start]), int(self.starts[own.stop])

    def read(self, name: str, span: tuple[int, int]) -> NDArray[Any]:
        """A stretch of an array, filled in where it is implied."""
        if name in self.files:
            return self.files[name].read(*span)
        return np.ones(span[1] - span[0], np.float32) if name == "weight" else self.read("visible_from", span) - 1


def buckets(rowptr: NDArray[np.int64], edges: int) -> list[tuple[int, int]]:
    """Stretches [start, stop) of rows with at most `edges` edges each (one row at least); all rows with edges."""
    found, start, rows = [], 0, len(rowptr) - 1
    while start < rows and rowptr[start] < rowptr[-1]:
        stop = max(start + 1, int(np.searchsorted(rowptr, rowptr[start] + edges, "right")) - 1)
        found.append((start, stop))
        start = stop
    return found


def _pieces(
    parts: Sequence[_Part], rowptr: NDArray[np.int64], names: Sequence[str], types: Mapping[str, Any], ordered: bool
) -> Iterator[dict[str, NDArray[Any]]]:
    for start, stop in buckets(rowptr, BUCKET):
        if ordered and rowptr[stop] - rowptr[start] > BUCKET:
            yield from _long_row(parts, start, names)
        else:
            yield _bucket(parts, start, stop, names, types, ordered)


def _long_row(parts: Sequence[_Part], row: int, names: Sequence[str]) -> Iterator[dict[str, NDArray[Any]]]:
    """A row larger than a bucket (a product in half of all edges), copied stretch by stretch."""
    for part in parts:
        first, last = part.span(row, row + 1)
        for start in range(first, last, BUCKET):
            yield {name: part.read(name, (start, min(start + BUCKET, last))) for name in names}


def _bucket(
    parts: Sequence[_Part], start: int, stop: int, names: Sequence[str], types: Mapping[str, Any], ordered: bool
) -> dict[str, NDArray[Any]]:
    total = np.zeros(stop - start, np.int64)
    own = [(part.rows[part.within(start, stop)] - start, part.counts[part.within(start, stop)]) for part in parts]
    for row, count in own:
        total[row] += count
    free = np.cumsum(total) - total
    places = []
    for row, count in own:
        places.append(stretches(free[row], count))
        free[row] += count
    spans = [part.span(start, stop) for part in parts]
    found: dict[str, NDArray[Any]] = {}
    for name in names:
        found[name] = np.empty(int(total.sum()), types[name])
        for part, place, span in zip(parts, places, spans, strict=True):
            found[name][place] = part.read(name, span)
    if ordered:
        return found
    row = np.repeat(np.arange(stop - start), total)
    last = [found[name] for name in ("kind", "weight") if name in found]
    times = [found[name] for name in ("time", "visible_from") if name in found]
    order = np.lexsort((*last, counter_hash(found["col"]), *times, row))
    return {name: array[order] for name, array in found.items()}


def _link(part: _Part, target: Path, rows: int) -> None:
    target.mkdir(parents=True)
    for name, file in part.files.items():
        if (name == "rowptr" and file.length == rows + 1) or name not in _ROWS:
            link_file(file.path, target / file.path.name)
    if not (target / "rowptr.npy").exists():
        save(target / "rowptr.npy", _rowptr([part], rows))
