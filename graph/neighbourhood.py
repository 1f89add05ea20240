"""The visible neighbours of many nodes of one type at once, over one or more relations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graph.picks import TIMELESS, Picks, counter_hash, join, unit_interval
from graph.store import NODE_TYPES, RELATIONS, Csr, Relation

Counts = list[NDArray[np.int64]]
"""Per relation, how many leading edges of each node are visible: int64, shaped as the nodes."""


@dataclass(frozen=True)
class Side:
    """Edges of one relation out of a node type; `timeless` when they state facts rather than events."""

    relation: Relation
    csr: Csr
    timeless: bool = False

    def take(self, nodes: NDArray[np.int64], position: NDArray[np.int64], count: NDArray[np.int64]) -> Picks:
        """The edges at `position` of the rows `nodes`; masked where position is not in [0, count). Equal shapes."""
        mask = (position >= 0) & (position < count)
        edge = np.where(mask, self.csr.rowptr[nodes] + position, 0)
        node = self.csr.col[edge].astype(np.int64)
        time = np.full(node.shape, TIMELESS) if self.timeless else self._time(edge)
        return Picks(
            node_type=np.full(node.shape, NODE_TYPES.index(self.relation.dst), np.int8),
            node=node,
            relation=np.full(node.shape, RELATIONS.index(self.relation), np.int16),
            hop=np.ones(node.shape, np.int8),
            time=time,
            weight=np.ones(node.shape),
            mask=mask,
        )

    def _time(self, edge: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.csr.visible_from[edge] - 1 if self.csr.time is None else self.csr.time[edge]


class Neighbourhood:
    """Several relations out of one node type, read as one list of neighbours; relations without edges are dropped."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self.sides = [side for side in sides if side.csr.num_edges]

    def counts(self, nodes: NDArray[np.int64], times: NDArray[np.int64]) -> Counts:
        """Visible edges by relation; a node of -1 (unknown) has none."""
        rows, known = np.maximum(nodes, 0), nodes >= 0
        return [np.where(known, side.csr.visible(rows, times), 0) for side in self.sides]

    def recent(
        self, nodes: NDArray[np.int64], counts: Counts, slots: int, barred: tuple[str, NDArray[np.int64]]
    ) -> Picks:
        """The `slots` neighbours seen last, newest first, each node once while others are left; shape (B, slots).

        Looks at the last 2 `slots` edges, so that repeats cost room only for nodes with little else. `barred` is
        (node type, nodes (B,)) that never counts. Edges that became visible together are taken in order of `col`.
        """
        if not self.sides:
            return Picks.empty((len(nodes), slots))
        wide = 2 * slots
        back = np.arange(1, wide + 1)
        parts = [s.take(nodes[:, None], c[:, None] - back, c[:, None]) for s, c in zip(self.sides, counts, strict=True)]
        picks = join(parts).without(*barred)
        if len(parts) > 1:
            picks = picks.columns(np.argsort(-self._seen(nodes, counts, back), axis=1, kind="stable")).first(wide)
        order = np.argsort(_preference(picks), axis=1, kind="stable")[:, :slots]
        return _weighted(picks.columns(order), total(counts, nodes)[:, None])

    def spread(self, nodes: NDArray[np.int64], counts: Counts, hashes: NDArray[np.uint64], slots: int) -> Picks:
        """`slots` edges drawn over all visible ones, one from each of `slots` equal strata; shape (B, slots).

        Every edge has the same chance and none comes twice; with fewer edges than slots each comes once.
        """
        if not self.sides or not slots:
            return Picks.empty((len(nodes), slots))
        edges = total(counts, nodes)[:, None]
        slot = np.arange(slots)
        low, high = slot * edges // slots, (slot + 1) * edges // slots
        draw = unit_interval(counter_hash(hashes[:, None], slot[None, :]))
        position = low + (draw * (high - low)).astype(np.int64)
        wide = [np.broadcast_to(count[:, None], position.shape) for count in counts]
        return self.pick(np.broadcast_to(nodes[:, None], position.shape), np.where(high > low, position, -1), wide)

    def pick(self, nodes: NDArray[np.int64], position: NDArray[np.int64], counts: Counts) -> Picks:
        """The edges at `position` in the list of all relations' visible edges one after the other. Equal shapes."""
        picks, passed = Picks.empty(nodes.shape), np.zeros_like(nodes)
        for side, count in zip(self.sides, counts, strict=True):
            found = side.take(nodes, position - passed, count)
            picks = picks.replaced(found, found.mask)
            passed = passed + count
        return _weighted(picks, passed)

    def _seen(self, nodes: NDArray[np.int64], counts: Counts, back: NDArray[np.int64]) -> NDArray[np.int64]:
        seen = []
        for side, count in zip(self.sides, counts, strict=True):
            position = count[:, None] - back
            edge = np.where(position >= 0, side.csr.rowptr[nodes][:, None] + position, 0)
            seen.append(np.where(position >= 0, side.csr.visible_from[edge], TIMELESS + 1))
        return np.concatenate(seen, axis=1)


def _preference(picks: Picks) -> NDArray[np.int8]:
    """0 for the first pick of each node in a row, 1 for its repeats, 2 for padding; shape (B, S)."""
    key = np.where(picks.mask, picks.node * len(NODE_TYPES) + picks.node_type, -1 - np.arange(picks.node.shape[1]))
    same = key[:, :, None] == key[:, None, :]
    repeat = np.tril(same, -1).any(axis=2)
    return np.where(picks.mask, repeat, 2).astype(np.int8)


def total(counts: Counts, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Visible edges over all relations, int64, shaped as the nodes."""
    return np.sum(counts, axis=0) if counts else np.zeros(nodes.shape, np.int64)


def _weighted(picks: Picks, fan_out: NDArray[np.int64]) -> Picks:
    return dataclasses.replace(picks, weight=picks.weight / np.maximum(fan_out, 1))
