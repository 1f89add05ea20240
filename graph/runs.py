"""One chunk of events sorted into the edges of every relation by row: a run, of which segments are merged.

A run has the files of a segment but for the row pointers: `row` holds the rows that have edges, `start` where those
begin. A chunk touches few rows of a large graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.schema import EVENT_TYPES
from graph.arrays import save
from graph.chunks import Chunk
from graph.groups import counting_order, starts
from graph.hashing import counter_hash
from graph.store import ENGAGED, ENGAGED_THROUGH, EVENT_TARGETS, OPTIONAL, Csr, Relation


@dataclass(frozen=True)
class Sorted:
    """Edges by row, all (E,); time and weight None where implied."""

    row: NDArray[Any]
    col: NDArray[Any]
    visible_from: NDArray[np.int64]
    time: NDArray[np.int64] | None
    weight: NDArray[np.float32] | None
    kind: NDArray[np.int8]

    def write(self, folder: Path, own: slice, first: int, targets: int, with_kind: bool) -> None:
        """Write the edges at `own`, whose rows count from `first` on and lead to `targets` nodes; nothing if none."""
        row, seen = self.row[own], self.visible_from[own]
        if not len(row):
            return
        begin = np.flatnonzero(starts(row))
        save(folder / "row.npy", row[begin] - first)
        save(folder / "start.npy", np.append(begin, len(row)))
        save(folder / "col.npy", self.col[own].astype(column_type(targets), copy=False))
        save(folder / "visible_from.npy", seen)
        if self.time is not None and (self.time[own] != seen - 1).any():
            save(folder / "time.npy", self.time[own])
        if self.weight is not None and (self.weight[own] != 1).any():
            save(folder / "weight.npy", self.weight[own])
        if with_kind:
            save(folder / "kind.npy", self.kind[own])


def write_run(
    chunk: Chunk, engaged: NDArray[np.bool_], sizes: Mapping[str, int], folder: Path, threads: int = 1
) -> None:
    """Write the edges of `chunk` to `folder`: both directions of every event relation and the DERIVED ones.

    `engaged` bool (event types,) says which show interest; `sizes` are the nodes known at the chunk's end, by type.
    Pure function of its arguments. Time O(events + nodes) a direction. Memory: about 60 bytes an event.
    """
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda job: _write(folder, chunk, job, sizes), _jobs(chunk, engaged)):
            pass


@dataclass(frozen=True)
class _Job:
    """Edges src -> dst of the events at `rows`: each type a relation, or all of them in the one named `merged`."""

    src: str
    dst: str
    rows: NDArray[np.int64] | None
    merged: Relation | None = None


def _jobs(chunk: Chunk, engaged: NDArray[np.bool_]) -> Iterator[_Job]:
    interest = engaged[chunk.kind]
    for target in EVENT_TARGETS:
        these = getattr(chunk, target) >= 0
        if target == "advertiser":
            these &= chunk.product < 0
        for src, dst in (("user", target), (target, "user")):
            yield _Job(src, dst, _positions(these))
            merged = ENGAGED[target] if src == "user" else ENGAGED[target].reverse
            yield _Job(src, dst, _positions(these & interest), merged)
    through = (chunk.advertiser >= 0) & (chunk.product >= 0) & interest
    yield _Job("advertiser", "product", _positions(through), ENGAGED_THROUGH)


def _positions(mask: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    return None if mask.all() else np.flatnonzero(mask)


def _write(folder: Path, chunk: Chunk, job: _Job, sizes: Mapping[str, int]) -> None:
    rows, targets = sizes[job.src], sizes[job.dst]
    if job.merged is not None:
        edges = arrange(chunk, job.src, job.dst, job.rows, rows)
        edges.write(folder / job.merged.folder, slice(None), 0, targets, with_kind=True)
        return
    kind = chunk.kind if job.rows is None else chunk.kind[job.rows]
    present = np.flatnonzero(np.bincount(kind, minlength=len(EVENT_TYPES)))
    edges = arrange(chunk, job.src, job.dst, job.rows, rows, present)
    ends = np.searchsorted(edges.row, np.arange(len(present) + 1) * rows)
    for place, code in enumerate(present):
        relation = Relation("user", EVENT_TYPES[code], job.dst if job.src == "user" else job.src)
        found = relation if job.src == "user" else relation.reverse
        edges.write(folder / found.folder, slice(ends[place], ends[place + 1]), place * rows, targets, with_kind=False)


def arrange(
    chunk: Chunk,
    src: str,
    dst: str,
    these: NDArray[np.int64] | None,
    rows: int,
    kinds: NDArray[np.int64] | None = None,
) -> Sorted:
    """The events at `these` (None: all) as edges `src` -> `dst`, sorted by (row, visible_from, time, hash of col,
    weight, kind).

    `rows` source nodes; with `kinds` (all event types present) the rows of each type come after those of the one
    before. Events come sorted by time, so counting them into their rows does nearly all of it; what ties there (a
    shopping basket) is put in order afterwards. By number instead of hash, the last few of a basket would always be
    the products that entered the catalogue last.
    """
    row = getattr(chunk, src) if these is None else getattr(chunk, src)[these]
    blocks = 1 if kinds is None else max(len(kinds), 1)
    if kinds is not None and blocks > 1:
        block = np.zeros(len(EVENT_TYPES), np.int64)
        block[kinds] = np.arange(blocks) * rows
        row = block.take(chunk.kind if these is None else chunk.kind[these]) + row
    place = counting_order(row, rows * blocks)
    row = row.take(place)
    if these is not None:
        place = these.take(place)
    found = Sorted(
        row,
        getattr(chunk, dst).take(place),
        chunk.visible_from.take(place),
        None if chunk.prompt else chunk.time.take(place),
        None if chunk.unweighted else chunk.weight.take(place),
        chunk.kind.take(place),
    )
    return untied(found)


def untied(edges: Sorted) -> Sorted:
    """`edges`, sorted by (row, visible_from, time), with ties in order of (hash of col, weight, kind)."""
    same = (edges.row[1:] == edges.row[:-1]) & (edges.visible_from[1:] == edges.visible_from[:-1])
    if edges.time is not None:
        same &= edges.time[1:] == edges.time[:-1]
    if not same.any():
        return edges
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    order = tied[_tied_order(np.cumsum(~np.append(False, same)[tied]) - 1, edges, tied)]
    for array in (edges.col, edges.kind, edges.weight):
        if array is not None:
            array[tied] = array[order]
    return edges


def _tied_order(group: NDArray[np.int64], edges: Sorted, tied: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order of the edges at `tied` by (group, hash of col, weight, kind); `group` counts from 0 and never falls.

    The upper 16 bits of the hash settle nearly all in two linear passes (a radix sort by them, then by group); what
    they do not (a product bought twice in a basket) is settled by all keys.
    """
    hashes = counter_hash(edges.col[tied])
    upper = (hashes >> np.uint64(48)).astype(np.uint16)
    first = np.argsort(upper, kind="stable")
    order = first[counting_order(group[first], int(group[-1]) + 1)]
    same = ~starts(group, upper[order])
    rest = np.flatnonzero(same | np.append(same[1:], False))
    if len(rest):
        these = order[rest]
        weight = () if edges.weight is None else (edges.weight[tied[these]],)
        order[rest] = these[np.lexsort((edges.kind[tied[these]], *weight, hashes[these], group[these]))]
    return order


def write_csr(folder: Path, relation: Relation, csr: Csr) -> None:
    """Write the arrays of `csr` below `folder`; those that are implied, and a relation without edges, get no file."""
    if csr.num_edges:
        for name in ("rowptr", "col", "visible_from", *OPTIONAL):
            array = getattr(csr, name)
            if array is not None:
                save(folder / relation.folder / f"{name}.npy", array)


def column_type(nodes: int) -> Any:
    """The integer type that numbers of `nodes` nodes are stored in."""
    return np.int32 if nodes <= np.iinfo(np.int32).max else np.int64


def interest(names: Sequence[str]) -> NDArray[np.bool_]:
    """Which event types are among `names`, bool (event types,)."""
    return np.array([name in names for name in EVENT_TYPES])
