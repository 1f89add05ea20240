"""How much, how lately and how much beside others a node was engaged with, as of any time, read off the CSR's prefixes.

Nothing is stored for it: rows are sorted by when edges became visible, so each figure is a difference of two binary
searches, and no later edge can have a part in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.errors import UsageError, nearest
from data.parts import day_of
from data.schema import MICROS_PER_DAY
from graph.store import ENGAGED, ENGAGED_THROUGH, Csr, GraphStore, Relation

WINDOWS = (7, 28)
"""Days over which recent engagement is counted; the longer one is that of the share."""

RELATIONS_OF: dict[str, tuple[Relation, ...]] = {
    "user": (ENGAGED["product"], ENGAGED["advertiser"]),
    "product": (ENGAGED["product"].reverse,),
    "advertiser": (ENGAGED["advertiser"].reverse, ENGAGED_THROUGH),
    "campaign": (ENGAGED["campaign"].reverse,),
}
"""Where the engagement of each node type is found. An event on a product is its advertiser's too."""

_BLOCK = 1 << 20


class NodeStatistics:
    """Engagement figures of a store's nodes as of any time."""

    def __init__(self, store: GraphStore) -> None:
        self.store = store
        self._all: dict[str, tuple[int, NDArray[np.int64]]] = {}

    def at(self, kind: str, nodes: NDArray[np.int64], times: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Figures of `nodes` (B,) of a type at `times` (B,) [us], each (B,).

        degree: engagement events visible by then, int64. recent_7, recent_28: those that became visible within so many
        days up to then, int64. age: time since the latest visible one happened [us], int64, -1 where there is none.
        share: of all that nodes of this type got in the 28 days up to the last midnight, float64 in [0, 1].

        O(B log(longest row)) a segment, and once a type a pass over its edges. Raises UsageError for a node type that
        nobody can engage with.
        """
        segments = self._segments(kind)
        midnight = times // MICROS_PER_DAY * MICROS_PER_DAY
        month = max(WINDOWS) * MICROS_PER_DAY
        degree = _visible(segments, nodes, times)
        found: dict[str, NDArray[Any]] = {"degree": degree}
        for days in WINDOWS:
            found[f"recent_{days}"] = degree - _visible(segments, nodes, times - days * MICROS_PER_DAY)
        found["age"] = _age(segments, nodes, times)
        own = _visible(segments, nodes, midnight) - _visible(segments, nodes, midnight - month)
        everyone = self._total(kind, midnight) - self._total(kind, midnight - month)
        found["share"] = own / np.maximum(everyone, 1)
        return found

    def _segments(self, kind: str) -> list[Csr]:
        if kind not in RELATIONS_OF:
            raise UsageError(f"no engagement of node type {kind!r}: {nearest(kind, RELATIONS_OF)}")
        return [csr for relation in RELATIONS_OF[kind] for csr in self.store.segments(relation)]

    def _total(self, kind: str, midnights: NDArray[np.int64]) -> NDArray[np.int64]:
        """Edges of all nodes of a type that are visible at `midnights` (B,) [us]."""
        if kind not in self._all:
            self._all[kind] = _by_day(self._segments(kind))
        first, passed = self._all[kind]
        over = midnights // MICROS_PER_DAY - first
        return passed[np.clip(over, 0, len(passed) - 1)]


def _visible(segments: list[Csr], nodes: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    return sum((csr.visible(nodes, times) for csr in segments), np.zeros(len(nodes), np.int64))


def _age(segments: list[Csr], nodes: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    last_seen = np.full(len(nodes), np.iinfo(np.int64).min)
    happened = np.zeros(len(nodes), np.int64)
    for csr in segments:
        count = csr.visible(nodes, times)
        rows = np.flatnonzero(count)
        edge = csr.rowptr[nodes[rows]] + count[rows] - 1
        seen = csr.visible_from[edge]
        when = seen - 1 if csr.time is None else csr.time[edge]
        same = seen == last_seen[rows]
        happened[rows] = np.where(
            same,
            np.maximum(when, happened[rows]),
            np.where(seen > last_seen[rows], when, happened[rows]),
        )
        last_seen[rows] = np.maximum(seen, last_seen[rows])
    return np.where(last_seen == np.iinfo(np.int64).min, -1, times - happened)


def _by_day(segments: list[Csr]) -> tuple[int, NDArray[np.int64]]:
    """The first day with an edge, and the edges of all days before the first, second, ... day from it on."""
    blocks = [csr.visible_from[at : at + _BLOCK] for csr in segments for at in range(0, csr.num_edges, _BLOCK)]
    if not blocks:
        return 0, np.zeros(1, np.int64)
    first = min(int(day_of(block.min())) for block in blocks)
    span = max(int(day_of(block.max())) for block in blocks) - first + 1
    counts = sum((np.bincount(day_of(block) - first, minlength=span) for block in blocks), np.zeros(span, np.int64))
    return first, np.concatenate([[0], np.cumsum(counts)])
