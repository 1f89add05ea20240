"""Who engaged with what, as neighbourhoods of every node type, and the as-of degree that counts it.

Users, products and campaigns have their own events. An advertiser's engagement is that of its products, rolled up,
plus events that name the advertiser alone; a category's is the number of its members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.errors import UsageError, nearest
from data.schema import EVENT_TYPES
from graph.csr import EdgeList, to_csr
from graph.neighbourhood import Neighbourhood, Side, total
from graph.picks import Picks
from graph.store import (
    CHILD_OF,
    DEFAULT_ENGAGEMENT,
    IN_CATEGORY,
    NODE_TYPES,
    OWNED_BY,
    Csr,
    GraphStore,
    Relation,
)


class Engagement:
    """Neighbourhoods by node type over the event types `names`; raises UsageError for an unknown event type."""

    def __init__(self, store: GraphStore, names: Sequence[str] = DEFAULT_ENGAGEMENT) -> None:
        for name in names:
            if name not in EVENT_TYPES:
                raise UsageError(f"no event type {name!r}: {nearest(name, EVENT_TYPES)}")
        self.store = store
        self.names = tuple(name for name in EVENT_TYPES if name in names)
        self._around: dict[str, Neighbourhood] = {}

    def around(self, node_type: str) -> Neighbourhood:
        """The neighbourhood of a node type, built on first use (a pass over the events for advertisers, else free)."""
        if node_type not in self._around:
            self._around[node_type] = Neighbourhood(self._sides(node_type))
        return self._around[node_type]

    def events(self, target: str) -> list[Side]:
        """Users' edges to nodes of type `target`, one side an event type."""
        relations = [Relation("user", name, target) for name in self.names]
        return [Side(relation, self.store.csr(relation)) for relation in relations]

    def degree(self, node_type: str, nodes: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Engagement edges visible at `times` [us], int64, shaped as the nodes."""
        return total(self.around(node_type).counts(nodes, times), nodes)

    def degrees(
        self, kinds: NDArray[np.int8], nodes: NDArray[np.int64], times: NDArray[np.int64], mask: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """`degree` of nodes of mixed types (codes `kinds`), 0 where masked out; equal shapes."""
        found = np.zeros(nodes.shape, np.int64)
        for code, kind in enumerate(NODE_TYPES):
            here = mask & (kinds == code)
            if here.any():
                found[here] = self.degree(kind, nodes[here], times[here])
        return found

    def step(self, picks: Picks, times: NDArray[np.int64], draws: NDArray[np.float64]) -> Picks:
        """One uniform step from each picked node to one of its engagement neighbours visible at `times`; equal shapes.

        `draws` in [0, 1) choose the edge. The hop grows by one and the weight shrinks by the fan-out.
        """
        moved = Picks.empty(picks.node.shape)
        for code, kind in enumerate(NODE_TYPES):
            here = picks.mask & (picks.node_type == code)
            if not here.any():
                continue
            start, around = picks.at(here), self.around(kind)
            counts = around.counts(start.node, times[here])
            position = (draws[here] * total(counts, start.node)).astype(np.int64)
            found = around.pick(start.node, position, counts)
            columns: tuple[NDArray[Any], ...] = found.arrays()
            for old, new in zip(moved.arrays(), columns, strict=True):
                old[here] = new
            moved.hop[here] = start.hop + 1
            moved.weight[here] = start.weight * found.weight
        return moved

    def _sides(self, node_type: str) -> list[Side]:
        if node_type == "user":
            return self.events("product") + self.events("advertiser")
        if node_type == "category":
            members = (IN_CATEGORY.reverse, CHILD_OF.reverse)
            return [Side(relation, self.store.csr(relation), timeless=True) for relation in members]
        own = [Side(side.relation.reverse, self.store.csr(side.relation.reverse)) for side in self.events(node_type)]
        return own if node_type != "advertiser" else [*own, Side(OWNED_BY.reverse, self._rolled_up())]

    def _rolled_up(self) -> Csr:
        """Events on an advertiser's products as edges advertiser -> product, sorted as every CSR. O(events) memory."""
        owners = self.store.csr(OWNED_BY)
        parts = [_at_owner(side.csr, owners) for side in self.around("product").sides]
        none = (np.zeros(0, np.int64),) * 4
        owner, product, time, visible = map(np.concatenate, zip(none, *parts, strict=True))
        edges = EdgeList(owner, product, time, visible, np.ones(len(owner), np.float32))
        return to_csr(edges, self.store.num_nodes["advertiser"], self.store.num_nodes["product"])


def _at_owner(events: Csr, owners: Csr) -> tuple[NDArray[np.int64], ...]:
    """(owner, product, time, visible_from) of each event on a product that has an owner, each int64 (n,)."""
    product = np.repeat(np.arange(len(events.rowptr) - 1), np.diff(events.rowptr))
    first = owners.rowptr[product]
    owned = owners.rowptr[product + 1] > first
    product, first = product[owned], first[owned]
    visible = np.maximum(events.visible_from[owned], owners.visible_from[first])
    return owners.col[first].astype(np.int64), product, np.asarray(events.times[owned]), visible
