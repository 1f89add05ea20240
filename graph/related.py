"""Nodes that share engagement with a seed, from the newest list that the graph holds of them at the seed time."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from graph.picks import Picks
from graph.rows import Block, Rows
from graph.store import CO_ENGAGED, SHARES_USERS, GraphStore

_LISTS = {"product": CO_ENGAGED, "advertiser": SHARES_USERS}


class Related:
    """Co-engaged products of products, and advertisers that share users with advertisers; nothing for other types.

    A row of these relations holds one list a grid date, oldest first; only a node's newest visible list counts.
    """

    def __init__(self, store: GraphStore, device: torch.device) -> None:
        self.store, self.device = store, device
        self._rows: dict[str, Rows] = {}
        self._longest: dict[str, int] = {}

    def of(self, node_type: str, nodes: Tensor, times: Tensor, slots: int) -> Picks:
        """The `slots` entries of greatest weight of each node's list, ties by place; shape (B, slots).

        The weight of a pick is 1 / the length of its list. Memory O(B longest list); the first call of a type also
        looks through all lists for the longest one.
        """
        if not slots or node_type not in _LISTS or not (rows := self._open(node_type)):
            return Picks.empty((len(nodes), slots), nodes.device)
        end = rows.visible(nodes, times)
        date = rows.look(nodes, end - 1)[1]
        length = end - rows.visible(torch.where(end > 0, nodes, -1), date - 1)
        place = torch.arange(max(slots, self._longest[node_type]), device=nodes.device)
        place = torch.where(place < length[:, None], place + (end - length)[:, None], -1)
        each = nodes[:, None].expand(place.shape)
        weight = torch.where(place < 0, -torch.inf, rows.weights(each, place))
        best = place.gather(1, weight.argsort(dim=1, descending=True, stable=True)[:, :slots])
        picks = rows.take(each[:, :slots], best, best >= 0)
        share = length.clamp(min=1).to(torch.float64).reciprocal_()[:, None].expand(best.shape)
        return dataclasses.replace(picks, weight=share)

    def _open(self, node_type: str) -> Rows:
        if node_type not in self._rows:
            rows = Rows(self.store, _LISTS[node_type], self.device)
            self._longest[node_type] = max((_longest_list(block) for block in rows.blocks), default=0)
            self._rows[node_type] = rows
        return self._rows[node_type]


def _longest_list(block: Block) -> int:
    """Most edges of a row that became visible together; a pass over all edges."""
    begins = torch.ones(len(block.col) + 1, dtype=torch.bool, device=block.col.device)
    begins[1:-1] = block.visible_from[1:] != block.visible_from[:-1]
    begins[block.rowptr] = True
    return int(begins.nonzero()[:, 0].diff().max())
