"""Who engaged with what, as neighbourhoods of every node type, and the as-of degree that counts it.

Users, products and campaigns have their own events. An advertiser's engagement is that of its products, rolled up,
plus events that name the advertiser alone; a category's is the number of its members.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from graph.draws import below
from graph.neighbourhood import SIDES, Counts, Neighbourhood
from graph.picks import Picks
from graph.rows import Rows
from graph.store import (
    CHILD_OF,
    ENGAGED,
    ENGAGED_THROUGH,
    IN_CATEGORY,
    NODE_TYPES,
    OWNED_BY,
    GraphStore,
    Relation,
)


class Engagement:
    """Neighbourhoods by node type over the events that the graph counts as engagement, on one device."""

    def __init__(self, store: GraphStore, device: torch.device | str = "cpu") -> None:
        self.store, self.device = store, torch.device(device)
        self._around: dict[str, Neighbourhood] = {}

    def around(self, node_type: str) -> Neighbourhood:
        """The neighbourhood of a node type, opened on first use."""
        if node_type not in self._around:
            self._around[node_type] = Neighbourhood(self._sides(node_type))
        return self._around[node_type]

    def events(self, target: str) -> Rows:
        """Users' edges to nodes of type `target`."""
        return self._rows(ENGAGED[target])

    def degree(self, node_type: str, nodes: Tensor, times: Tensor) -> Tensor:
        """Engagement edges visible at `times` [us], int64, shaped as the nodes."""
        return self.around(node_type).degree(nodes, times)

    def degrees(self, picks: Picks, times: Tensor, kinds: Sequence[int]) -> Tensor:
        """`degree` of picked nodes, whose types are among the codes `kinds`; 0 where masked out; equal shapes."""
        found = torch.zeros_like(picks.node)
        for code, nodes in _by_type(picks, kinds):
            found += self.around(NODE_TYPES[code]).degree(nodes, times)
        return found

    def fan(self, picks: Picks, times: Tensor, kinds: Sequence[int]) -> Counts:
        """The same by relation."""
        counts = torch.zeros((SIDES, *picks.node.shape), dtype=torch.int64, device=self.device)
        for code, nodes in _by_type(picks, kinds):
            for number, side in enumerate(self.around(NODE_TYPES[code]).sides):
                counts[number] += side.visible(nodes, times)
        return counts

    def onward(self, kinds: Sequence[int]) -> list[int]:
        """Codes of the node types that a step from nodes of `kinds` can lead to."""
        return sorted({code for kind in kinds for code in self.around(NODE_TYPES[kind]).reaches})

    def step(self, picks: Picks, fan: Counts, hashes: Tensor, kinds: Sequence[int]) -> Picks:
        """One uniform step from each picked node to one of its `fan` visible engagement neighbours; equal shapes.

        `hashes` choose the edge. The hop grows by one and the weight shrinks by the fan-out.
        """
        position = below(hashes, fan.sum(dim=0))
        moved = None
        for code in kinds:
            here = picks.mask if len(kinds) == 1 else picks.mask & (picks.node_type == code)
            if moved is not None and not _some(here):
                continue
            found = self.around(NODE_TYPES[code]).pick(picks.node, torch.where(here, position, -1), fan)
            moved = found if moved is None else moved.replaced(found, here)
        if moved is None:
            return Picks.empty(picks.node.shape, self.device)
        return dataclasses.replace(moved, hop=picks.hop + 1, weight=picks.weight * moved.weight)

    def _sides(self, node_type: str) -> list[Rows]:
        if node_type == "user":
            return [self.events("product"), self.events("advertiser")]
        if node_type == "category":
            return [self._rows(relation, timeless=True) for relation in (IN_CATEGORY.reverse, CHILD_OF.reverse)]
        own = self._rows(ENGAGED[node_type].reverse)
        return [own] if node_type != "advertiser" else [own, self._rows(ENGAGED_THROUGH, shown=OWNED_BY.reverse)]

    def _rows(self, relation: Relation, timeless: bool = False, shown: Relation | None = None) -> Rows:
        return Rows(self.store, relation, self.device, timeless, shown)


def _by_type(picks: Picks, kinds: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
    """(code, nodes of that type, -1 for the others) for each of `kinds` that there is."""
    for code in kinds:
        here = picks.mask if len(kinds) == 1 else picks.mask & (picks.node_type == code)
        if len(kinds) == 1 or _some(here):
            yield code, torch.where(here, picks.node, -1)


def _some(mask: Tensor) -> bool:
    """Whether any is True; on a GPU always, where waiting for the answer would cost more than needless work."""
    return mask.is_cuda or bool(mask.any())
