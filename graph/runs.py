"""One chunk of events sorted into CSRs of every relation: a run, in the same files as a segment."""

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
from graph.hashing import counter_hash
from graph.store import ENGAGED, ENGAGED_THROUGH, EVENT_TARGETS, OPTIONAL, Csr, Relation


@dataclass(frozen=True)
class Sorted:
    """Events as edges row -> col in the order of a CSR, all (E,); time and weight None where implied."""

    row: NDArray[np.int64]
    col: NDArray[Any]
    visible_from: NDArray[np.int64]
    time: NDArray[np.int64] | None
    weight: NDArray[np.float32] | None
    kind: NDArray[np.int8]

    def csr(self, keep: NDArray[np.int64], sizes: tuple[int, int], with_kind: bool = False) -> Csr:
        """The edges at `keep` (positions in order) between `sizes` source and target nodes."""
        time = None if self.time is None else self.time[keep]
        weight = None if self.weight is None else self.weight[keep]
        seen = self.visible_from[keep]
        return Csr(
            offsets(self.row[keep], sizes[0]),
            self.col[keep].astype(column_type(sizes[1]), copy=False),
            seen,
            None if time is None or (time == seen - 1).all() else time,
            None if weight is None or (weight == 1).all() else weight,
            self.kind[keep] if with_kind else None,
        )


def write_run(chunk: Chunk, engaged: NDArray[np.bool_], sizes: Mapping[str, int], threads: int, folder: Path) -> None:
    """Write the CSRs of `chunk` to `folder`: both directions of every event relation and the DERIVED ones.

    `engaged` bool (event types,) says which show interest; `sizes` are the nodes known at the chunk's end, by type.
    Pure function of its arguments. Time: one sort of integers a direction. Memory: about 60 bytes an event and thread.
    """
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda job: _write(folder, job, engaged, sizes), list(_jobs(chunk, engaged))))


@dataclass(frozen=True)
class _Job:
    """Edges between two ends of the events `rows` of a chunk."""

    ends: tuple[str, str]
    through: bool
    chunk: Chunk
    rows: NDArray[np.int64] | slice


def _jobs(chunk: Chunk, engaged: NDArray[np.bool_]) -> Iterator[_Job]:
    for target in EVENT_TARGETS:
        these = getattr(chunk, target) >= 0
        if target == "advertiser":
            these &= chunk.product < 0
        if these.any():
            rows = slice(None) if these.all() else np.flatnonzero(these)
            yield _Job(("user", target), False, chunk, rows)
            yield _Job((target, "user"), False, chunk, rows)
    through = (chunk.advertiser >= 0) & (chunk.product >= 0) & engaged[chunk.kind]
    if through.any():
        yield _Job(("advertiser", "product"), True, chunk, np.flatnonzero(through))


def _write(folder: Path, job: _Job, engaged: NDArray[np.bool_], sizes: Mapping[str, int]) -> None:
    src, dst = job.ends
    edges, bounds = arrange(job.chunk, src, dst, job.rows), (sizes[src], sizes[dst])
    if job.through:
        write_csr(folder, ENGAGED_THROUGH, edges.csr(np.arange(len(edges.row)), bounds, with_kind=True))
        return
    forward = src == "user"
    for code, name in enumerate(EVENT_TYPES):
        relation = Relation("user", name, dst if forward else src)
        write_csr(
            folder, relation if forward else relation.reverse, edges.csr(np.flatnonzero(edges.kind == code), bounds)
        )
    interest = ENGAGED[dst if forward else src]
    found = edges.csr(np.flatnonzero(engaged[edges.kind]), bounds, with_kind=True)
    write_csr(folder, interest if forward else interest.reverse, found)


def arrange(chunk: Chunk, src: str, dst: str, rows: NDArray[np.int64] | slice) -> Sorted:
    """The events `rows` as edges `src` -> `dst`, sorted by (row, visible_from, time, hash of col, weight, kind).

    Events come sorted by time, so one sort of row and position as a single integer does nearly all of it; what ties
    there (a shopping basket) is put in order afterwards. By number instead of hash, the last few of a basket would
    always be the products that entered the catalogue last.
    """
    row, col = getattr(chunk, src)[rows], getattr(chunk, dst)[rows]
    bits = max(len(row) - 1, 1).bit_length()
    key = row.astype(np.int64) << bits
    key |= np.arange(len(row))
    key.sort()
    place = key & ((1 << bits) - 1)
    key >>= bits
    seen, time, weight = chunk.visible_from[rows], chunk.time[rows], chunk.weight[rows]
    found = Sorted(
        key,
        col[place],
        seen[place],
        None if (time == seen - 1).all() else time[place],
        None if (weight == 1).all() else weight[place],
        chunk.kind[rows][place],
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
    group = np.cumsum(np.append(True, ~same))[tied]
    order = tied[_tied_order(group, edges, tied)]
    for array in (edges.col, edges.kind, edges.weight):
        if array is not None:
            array[tied] = array[order]
    return edges


def _tied_order(group: NDArray[np.int64], edges: Sorted, tied: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order of the edges at `tied` by (group, hash of col, weight, kind).

    Group and the upper half of the hash, as one integer, settle nearly all; the rest (a product bought twice in a
    basket) is settled by all keys.
    """
    hashes = counter_hash(edges.col[tied])
    key = group << 32 | (hashes >> np.uint64(32)).astype(np.int64)
    order: NDArray[np.int64] = np.argsort(key)
    same = np.diff(key[order]) == 0
    rest = np.flatnonzero(np.append(same, False) | np.append(False, same))
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


def offsets(row: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """rowptr int64 (rows + 1,) of edges with sources `row`."""
    rowptr = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=rows), out=rowptr[1:])
    return rowptr


def column_type(nodes: int) -> Any:
    """The integer type that numbers of `nodes` nodes are stored in."""
    return np.int32 if nodes <= np.iinfo(np.int32).max else np.int64


def interest(names: Sequence[str]) -> NDArray[np.bool_]:
    """Which event types are among `names`, bool (event types,)."""
    return np.array([name in names for name in EVENT_TYPES])
