"""Catalogue tokens of a seed: what it belongs to, whoever engaged with it. They carry a cold entity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graph.engagement import Engagement
from graph.neighbourhood import Neighbourhood, Side
from graph.picks import Picks, join
from graph.store import CHILD_OF, IN_CATEGORY, OF_ADVERTISER, OWNED_BY, GraphStore, Relation


class Links:
    """Link tokens by node type.

    product: owner, leaf category, then the category's parents, fine to coarse. category: its parents.
    campaign: its advertiser. advertiser: products of its catalogue, spread over it. user: campaigns it answered last.
    """

    def __init__(self, store: GraphStore, engagement: Engagement) -> None:
        def facts(relation: Relation) -> Neighbourhood:
            return Neighbourhood([Side(relation, store.csr(relation), timeless=True)])

        self._owner, self._category, self._parent = facts(OWNED_BY), facts(IN_CATEGORY), facts(CHILD_OF)
        self._sponsor, self._catalogue = facts(OF_ADVERTISER), facts(OWNED_BY.reverse)
        self._campaigns = Neighbourhood(engagement.events("campaign"))

    def of(
        self, node_type: str, nodes: NDArray[np.int64], times: NDArray[np.int64], hashes: NDArray[np.uint64], slots: int
    ) -> Picks:
        """Links of `nodes` (B,) visible at `times` (B,); shape (B, slots)."""
        if not slots:
            return Picks.empty((len(nodes), 0))
        if node_type == "advertiser":
            return self._catalogue.spread(nodes, self._catalogue.counts(nodes, times), hashes, slots)
        if node_type == "user":
            return _latest(self._campaigns, nodes, times, slots)
        if node_type == "campaign":
            return _latest(self._sponsor, nodes, times, slots)
        if node_type == "category":
            return join(self._climb(self._parent, nodes, times, slots))
        owner = _latest(self._owner, nodes, times, 1)
        return join([owner, *self._climb(self._category, nodes, times, slots - 1)])

    def _climb(
        self, first: Neighbourhood, nodes: NDArray[np.int64], times: NDArray[np.int64], slots: int
    ) -> list[Picks]:
        """`slots` steps, the first along `first`, the others from category to parent."""
        steps: list[Picks] = []
        for depth in range(slots):
            step = _latest(self._parent if depth else first, nodes, times, 1)
            step.hop[:] = depth + 1
            steps.append(step)
            nodes = np.where(step.mask[:, 0], step.node[:, 0], -1)
        return steps


def _latest(around: Neighbourhood, nodes: NDArray[np.int64], times: NDArray[np.int64], slots: int) -> Picks:
    nobody = ("user", np.full(len(nodes), -1, np.int64))
    return around.recent(nodes, around.counts(nodes, times), slots, nobody)
