"""Fixed-budget token sets around seed nodes, as of each seed's own time.

After the capped neighbourhoods of PinSage (Ying et al., 2018, arXiv:1806.01973) and the typed token sets of RelGT
(Dwivedi et al., 2025, arXiv:2505.10960), but drawn from CSR prefixes, so that no edge after the seed time is ever
touched. All randomness is a hash of (seed, node, time, slot): a token set does not depend on its batch, nor on the
device that draws it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.errors import UsageError, nearest
from graph.draws import counter_hash
from graph.engagement import Engagement
from graph.links import Links
from graph.neighbourhood import Barred
from graph.picks import TIMELESS, Picks, join
from graph.related import Related
from graph.store import NODE_TYPES, GraphStore
from graph.walks import co_engaged, visited_most

CHUNK_TOKENS = 1 << 18
"""Tokens sampled at a time on the CPU, which bounds memory to some 100 MB. Shorter chunks spend their time in calls."""

_PRODUCT = [NODE_TYPES.index("product")]

Integers = Tensor | NDArray[np.int64]


@dataclass(frozen=True)
class Budget:
    """Token slots per seed, in this order.

    `recent` direct engagement, `uniform` over all of it, `two_hop` co-engaged products, `links` of the catalogue,
    `related` nodes of the newest co-engagement list, `ppr` products that short walks with restart visit most.
    """

    recent: int = 8
    uniform: int = 6
    two_hop: int = 6
    links: int = 4
    related: int = 0
    ppr: int = 0

    @property
    def total(self) -> int:
        """T, the slots of a token set."""
        return self.recent + self.uniform + self.two_hop + self.links + self.related + self.ppr


@dataclass(frozen=True)
class TokenSet:
    """T tokens for each of B seeds; every tensor is (B, T) and holds padding where `mask` is False.

    node_type int8 (index in NODE_TYPES, -1 padding), node int64 (-1 padding), relation int16 (index in
    `store.relations` of the edge through which the node was reached, -1 padding), hop int8 (1 direct, 2 farther; 0
    padding), age int64 us from that edge to the seed time (-1: timeless link), degree float32 (log1p of the node's
    engagement visible at the seed time), weight float32 (chance of a uniform walk to take this way: the product of 1 /
    fan-out; of `ppr`, the share of visits), mask bool (True: real).
    """

    node_type: Tensor
    node: Tensor
    relation: Tensor
    hop: Tensor
    age: Tensor
    degree: Tensor
    weight: Tensor
    mask: Tensor

    def arrays(self) -> tuple[Tensor, ...]:
        """The tensors in field order."""
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    def first(self, count: int) -> TokenSet:
        """The token sets of the first `count` seeds."""
        return TokenSet(*(array[:count] for array in self.arrays()))


class TemporalSampler:
    """Samples token sets; time O(B T log(longest row)), memory O(B T), beside the graph.

    On the CPU the graph stays memory-mapped; on another `device` (such as "cuda") it is copied there on first use, a
    relation at a time: 12 to 21 bytes an edge and direction.
    """

    def __init__(self, store: GraphStore, budget: Budget | None = None, device: torch.device | str = "cpu") -> None:
        self.store, self.device = store, torch.device(device)
        self.budget = budget or Budget()
        self.engagement = Engagement(store, self.device)
        self.links = Links(store, self.engagement)
        self.related = Related(store, self.device)

    def sample(
        self,
        node_type: str,
        nodes: Integers,
        times: Integers,
        seed: int | Tensor,
        exclude: Integers | None = None,
        exclude_type: str | None = None,
    ) -> TokenSet:
        """Token sets (B, T) of `nodes` (B,) seen at `times` (B,) [us]: only edges with visible_from <= time.

        `exclude` (B,), -1 for none, names the partner of a target edge, of type `exclude_type` (by default a product
        for users, else a user): it is no direct token and no walk passes through it at the first step. `seed` may be a
        tensor int64 () on the device.
        Raises UsageError for an unknown node type or lengths that differ.
        """
        nodes, times = self._tensor(nodes), self._tensor(times)
        barred = torch.full_like(nodes, -1) if exclude is None else self._tensor(exclude)
        kind = exclude_type or partner_type(node_type)
        if nodes.shape != times.shape or barred.shape != nodes.shape:
            raise UsageError(f"expected one time and one exclude a node, got {nodes.shape} nodes, {times.shape} times")
        rows = max(1, CHUNK_TOKENS // max(1, self.budget.total)) if self.device.type == "cpu" else max(1, len(nodes))
        chunks = zip(*(torch.split(array, rows) for array in (nodes, times, barred)), strict=True)
        found = [self.draw(node_type, some, at, seed, (kind, without)) for some, at, without in chunks]
        if len(found) == 1:
            return found[0]
        return TokenSet(*(torch.cat(parts) for parts in zip(*(part.arrays() for part in found), strict=True)))

    def degree(self, node_type: str, nodes: Integers, times: Integers) -> Tensor:
        """Engagement edges of each node visible at its time, int64 (B,); an advertiser has those of its products."""
        return self.engagement.degree(node_type, self._tensor(nodes), self._tensor(times))

    def numbers(self, node_type: str, nodes: Tensor) -> Tensor:
        """What stands for each node in the hash behind its draws: its internal id, int64 (B,)."""
        return nodes

    def _tensor(self, values: Integers) -> Tensor:
        return torch.as_tensor(values, dtype=torch.int64, device=self.device)

    def draw(self, node_type: str, nodes: Tensor, times: Tensor, seed: int | Tensor, barred: Barred) -> TokenSet:
        """`sample` in one go and without its checks, for tensors int64 (B,) on the device; `seed` may be one too, ().

        On a GPU it waits for nothing, so that it can be captured: `graph.captured`.
        """
        budget, engagement = self.budget, self.engagement
        hashes = counter_hash(seed, NODE_TYPES.index(node_type), self.numbers(node_type, nodes), times)
        around = engagement.around(node_type)
        counts = around.counts(nodes, times)
        recent = around.recent(nodes, counts, max(budget.recent, budget.two_hop), barred)
        fan = engagement.fan(recent, _each(times, recent), around.reaches)
        uniform = around.spread(nodes, counts, hashes, budget.uniform).without(*barred)
        walks = co_engaged(engagement, node_type, nodes, times, hashes, recent, fan, budget.two_hop)
        links = self.links.of(node_type, nodes, times, counter_hash(3, hashes), budget.links)
        related = self.related.of(node_type, nodes, times, budget.related).without(*barred)
        visited = visited_most(engagement, node_type, nodes, times, counter_hash(4, hashes), budget.ppr, barred)
        parts = [uniform, walks, links, related, visited]
        kinds = [around.reaches, _PRODUCT, self.links.reaches(node_type), [NODE_TYPES.index(node_type)], _PRODUCT]
        degrees = [engagement.degrees(part, _each(times, part), k) for part, k in zip(parts, kinds, strict=True)]
        degree = torch.cat([fan.sum(dim=0)[:, : budget.recent], *degrees], dim=1)
        return _tokens(join([recent.first(budget.recent), *parts]), degree, times)


def partner_type(node_type: str) -> str:
    """The type of a target edge's other end unless it is named; raises UsageError for an unknown node type."""
    if node_type not in NODE_TYPES:
        raise UsageError(f"no node type {node_type!r}: {nearest(node_type, NODE_TYPES)}")
    return "product" if node_type == "user" else "user"


def _each(times: Tensor, picks: Picks) -> Tensor:
    return times[:, None].expand(picks.node.shape)


def _tokens(picks: Picks, degree: Tensor, times: Tensor) -> TokenSet:
    mask = picks.mask
    age = torch.where(picks.time == TIMELESS, -1, times[:, None] - picks.time)
    return TokenSet(
        node_type=torch.where(mask, picks.node_type, -1),
        node=torch.where(mask, picks.node, -1),
        relation=torch.where(mask, picks.relation, -1),
        hop=torch.where(mask, picks.hop.clamp(max=2), 0),
        age=torch.where(mask, age, -1),
        degree=torch.log1p(degree.to(torch.float64)).to(torch.float32),
        weight=torch.where(mask, picks.weight, 0).to(torch.float32),
        mask=mask,
    )
