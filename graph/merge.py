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
from graph.store import DERIVED, LINKS, OPTIONAL, RELATIONS, Relation

BUCKET = 1 << 21
"""Edges moved at a time: about 120 MB."""

EVENT_RELATIONS = tuple(relation for relation in (*RELATIONS, *DERIVED) if relation not in LINKS)
"""What a segment can hold."""

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
    rowptr = np.sum([part.rowptr(rows) for part in parts], axis=0)
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


class _Part:
    """The files of one relation in one source."""

    def __init__(self, folder: Path) -> None:
        self.files = {path.stem: ArrayFile(path) for path in folder.glob("*.npy")}
        self.starts = self.files["rowptr"].read()

    def rowptr(self, rows: int) -> NDArray[np.int64]:
        """rowptr over `rows` rows, of which those beyond this part's own are empty."""
        return np.append(self.starts, np.full(rows + 1 - len(self.starts), self.starts[-1]))

    def counts(self, start: int, stop: int) -> NDArray[np.int64]:
        """Edges of rows start .. stop - 1."""
        own = np.diff(self.starts[start : stop + 1])
        return np.append(own, np.zeros(stop - start - len(own), np.int64))

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Where the edges of rows start .. stop - 1 lie."""
        last = len(self.starts) - 1
        return int(self.starts[min(start, last)]), int(self.starts[min(stop, last)])

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
    counts = [part.counts(start, stop) for part in parts]
    total = np.sum(counts, axis=0)
    free = np.cumsum(total) - total
    places = []
    for count in counts:
        inside = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        places.append(np.repeat(free, count) + inside)
        free = free + count
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
        if name != "rowptr" or len(part.starts) == rows + 1:
            link_file(file.path, target / file.path.name)
        else:
            save(target / "rowptr.npy", part.rowptr(rows))
