"""Fixed-budget token sets around seed nodes, as of each seed's own time.

After the capped neighbourhoods of PinSage (Ying et al., 2018, arXiv:1806.01973) and the typed token sets of RelGT
(Dwivedi et al., 2025, arXiv:2505.10960), but drawn from CSR prefixes, so that no edge after the seed time is ever
touched. All randomness is a hash of (seed, node, time, slot): a token set does not depend on its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data.errors import UsageError, nearest
from graph.engagement import Engagement
from graph.links import Links
from graph.picks import TIMELESS, Picks, counter_hash, join, unit_interval
from graph.store import DEFAULT_ENGAGEMENT, NODE_TYPES, GraphStore

_PRODUCT = NODE_TYPES.index("product")


@dataclass(frozen=True)
class Budget:
    """Token slots per seed, in this order: `recent` direct engagement, `uniform` over all of it, `two_hop` co-engaged
    products, `links` of the catalogue."""

    recent: int = 8
    uniform: int = 6
    two_hop: int = 6
    links: int = 4

    @property
    def total(self) -> int:
        """T, the slots of a token set."""
        return self.recent + self.uniform + self.two_hop + self.links


@dataclass(frozen=True)
class TokenSet:
    """T tokens for each of B seeds; every array is (B, T) and holds padding where `mask` is False.

    node_type int8 (index in NODE_TYPES, -1 padding), node int64 (-1 padding), relation int16 (index in
    `store.relations` of the edge through which the node was reached, -1 padding), hop int8 (1 direct, 2 farther; 0
    padding), age int64 us from that edge to the seed time (-1: timeless link), degree float32 (log1p of the node's
    engagement visible at the seed time), weight float32 (chance of a uniform walk to take this way: the product of 1 /
    fan-out), mask bool (True: real).
    """

    node_type: NDArray[np.int8]
    node: NDArray[np.int64]
    relation: NDArray[np.int16]
    hop: NDArray[np.int8]
    age: NDArray[np.int64]
    degree: NDArray[np.float32]
    weight: NDArray[np.float32]
    mask: NDArray[np.bool_]


class TemporalSampler:
    """Samples token sets; time O(B T log(longest row)), memory O(B T), beside the mapped graph.

    The first sample also rolls events up to advertisers: once O(E log E) time and 28 bytes an event kept.
    """

    def __init__(
        self, store: GraphStore, budget: Budget | None = None, engagement: Sequence[str] = DEFAULT_ENGAGEMENT
    ) -> None:
        self.store = store
        self.budget = budget or Budget()
        self.engagement = Engagement(store, engagement)
        self.links = Links(store, self.engagement)

    def sample(
        self,
        node_type: str,
        nodes: NDArray[np.int64],
        times: NDArray[np.int64],
        seed: int,
        exclude: NDArray[np.int64] | None = None,
        exclude_type: str | None = None,
    ) -> TokenSet:
        """Token sets (B, T) of `nodes` (B,) seen at `times` (B,) [us]: only edges with visible_from <= time.

        `exclude` (B,), -1 for none, names the partner of a target edge, of type `exclude_type` (by default a product
        for users, else a user): it is no direct token and no walk passes through it at the first step.
        Raises UsageError for an unknown node type or lengths that differ.
        """
        nodes, times = np.asarray(nodes, np.int64), np.asarray(times, np.int64)
        if node_type not in NODE_TYPES:
            raise UsageError(f"no node type {node_type!r}: {nearest(node_type, NODE_TYPES)}")
        if nodes.shape != times.shape or (exclude is not None and exclude.shape != nodes.shape):
            raise UsageError(f"expected one time and one exclude a node, got {nodes.shape} nodes, {times.shape} times")
        barred = _barred(node_type, exclude, exclude_type, len(nodes))
        hashes = counter_hash(seed, NODE_TYPES.index(node_type), nodes, times)
        budget = self.budget
        around = self.engagement.around(node_type)
        counts = around.counts(nodes, times)
        recent = around.recent(nodes, counts, max(budget.recent, budget.two_hop), barred)
        uniform = around.spread(nodes, counts, hashes, budget.uniform).without(*barred)
        walks = self._walk(node_type, nodes, times, hashes, recent)
        links = self.links.of(node_type, nodes, times, counter_hash(3, hashes), budget.links)
        return self._tokens(join([recent.first(budget.recent), uniform, walks, links]), times)

    def degree(self, node_type: str, nodes: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Engagement edges of each node visible at its time, int64 (B,); an advertiser has those of its products."""
        return self.engagement.degree(node_type, np.asarray(nodes, np.int64), np.asarray(times, np.int64))

    def _walk(
        self,
        node_type: str,
        nodes: NDArray[np.int64],
        times: NDArray[np.int64],
        hashes: NDArray[np.uint64],
        recent: Picks,
    ) -> Picks:
        """Co-engaged products: from the recent neighbours on, by uniform steps until the walk stands on a product.

        Users carry little content, so product - user - product is taken for products and one step more for users.
        """
        slot = np.arange(self.budget.two_hop)[None, :]
        known = recent.mask.sum(axis=1, keepdims=True)
        start = recent.columns(slot % np.maximum(known, 1))
        at = np.broadcast_to(times[:, None], start.node.shape)
        once = self.engagement.step(start, at, unit_interval(counter_hash(1, hashes[:, None], slot)))
        once = once.without(node_type, nodes)
        twice = self.engagement.step(once, at, unit_interval(counter_hash(2, hashes[:, None], slot)))
        ends = once.replaced(twice, once.node_type != _PRODUCT)
        return ends.where(ends.node_type == _PRODUCT).without(node_type, nodes)

    def _tokens(self, picks: Picks, times: NDArray[np.int64]) -> TokenSet:
        mask, at = picks.mask, np.broadcast_to(times[:, None], picks.node.shape)
        degree = self.engagement.degrees(picks.node_type, picks.node, at, mask)
        return TokenSet(
            node_type=np.where(mask, picks.node_type, -1).astype(np.int8),
            node=np.where(mask, picks.node, -1),
            relation=np.where(mask, picks.relation, -1).astype(np.int16),
            hop=np.where(mask, np.minimum(picks.hop, 2), 0).astype(np.int8),
            age=np.where(mask & (picks.time != TIMELESS), at - picks.time, -1),
            degree=np.log1p(degree).astype(np.float32),
            weight=np.where(mask, picks.weight, 0).astype(np.float32),
            mask=mask,
        )


def _barred(
    node_type: str, exclude: NDArray[np.int64] | None, exclude_type: str | None, count: int
) -> tuple[str, NDArray[np.int64]]:
    kind = exclude_type or ("product" if node_type == "user" else "user")
    return kind, np.full(count, -1, np.int64) if exclude is None else np.asarray(exclude, np.int64)
