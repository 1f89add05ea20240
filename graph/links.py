"""Catalogue tokens of a seed: what it belongs to, whoever engaged with it. They carry a cold entity."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from graph.engagement import Engagement
from graph.neighbourhood import Neighbourhood
from graph.picks import Picks, join
from graph.rows import Rows
from graph.store import CHILD_OF, IN_CATEGORY, OF_ADVERTISER, OWNED_BY, GraphStore, Relation


class Links:
    """Link tokens by node type.

    product: owner, leaf category, then the category's parents, fine to coarse. category: its parents.
    campaign: its advertiser. advertiser: products of its catalogue, spread over it. user: campaigns it answered last.
    """

    def __init__(self, store: GraphStore, engagement: Engagement) -> None:
        def facts(relation: Relation) -> Neighbourhood:
            return Neighbourhood([Rows(store, relation, engagement.device, timeless=True)])

        self._owner, self._category, self._parent = facts(OWNED_BY), facts(IN_CATEGORY), facts(CHILD_OF)
        self._sponsor, self._catalogue = facts(OF_ADVERTISER), facts(OWNED_BY.reverse)
        self._campaigns = Neighbourhood([engagement.events("campaign")])

    def reaches(self, node_type: str) -> list[int]:
        """Codes of the node types that links of `node_type` lead to."""
        ways = {
            "user": [self._campaigns],
            "product": [self._owner, self._category, self._parent],
            "advertiser": [self._catalogue],
            "campaign": [self._sponsor],
            "category": [self._parent],
        }
        return sorted({code for way in ways[node_type] for code in way.reaches})

    def of(self, node_type: str, nodes: Tensor, times: Tensor, hashes: Tensor, slots: int) -> Picks:
        """Links of `nodes` (B,) visible at `times` (B,); shape (B, slots)."""
        if not slots:
            return Picks.empty((len(nodes), 0), nodes.device)
        if node_type == "advertiser":
            return self._catalogue.spread(nodes, self._catalogue.counts(nodes, times), hashes, slots)
        if node_type == "user":
            return _latest(self._campaigns, nodes, times, slots)
        if node_type == "campaign":
            return _latest(self._sponsor, nodes, times, slots)
        if node_type == "category":
            return join(self._climb(self._parent, nodes, times, slots))
        owner = _newest(self._owner, nodes, times)
        return join([owner, *self._climb(self._category, nodes, times, slots - 1)])

    def _climb(self, first: Neighbourhood, nodes: Tensor, times: Tensor, slots: int) -> list[Picks]:
        """`slots` steps, the first along `first`, the others from category to parent."""
        steps: list[Picks] = []
        for depth in range(slots):
            step = _newest(self._parent if depth else first, nodes, times)
            steps.append(dataclasses.replace(step, hop=torch.full_like(step.hop, depth + 1)))
            nodes = torch.where(step.mask[:, 0], step.node[:, 0], -1)
        return steps


def _latest(around: Neighbourhood, nodes: Tensor, times: Tensor, slots: int) -> Picks:
    return around.recent(nodes, around.counts(nodes, times), slots, ("user", torch.full_like(nodes, -1)))


def _newest(around: Neighbourhood, nodes: Tensor, times: Tensor) -> Picks:
    """The one neighbour that became visible last, shape (B, 1)."""
    counts = around.counts(nodes, times)
    return around.pick(nodes[:, None], counts.sum(dim=0)[:, None] - 1, counts[..., None])
