"""Random walks over engagement: co-engaged products two steps away, and those that walks with restart visit most."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from graph.draws import counter_hash, unit_interval
from graph.engagement import Engagement
from graph.neighbourhood import Barred, Counts
from graph.picks import Picks, join
from graph.store import NODE_TYPES

PRODUCT = NODE_TYPES.index("product")
WALKERS, ROUNDS = 16, 3
"""Walks of each seed for `visited_most`, and how many times each moves on to a product."""
RESTART = 0.5
"""Chance that a walk begins again at its seed before it moves on."""


def co_engaged(
    engagement: Engagement,
    node_type: str,
    nodes: Tensor,
    times: Tensor,
    hashes: Tensor,
    recent: Picks,
    fan: Counts,
    slots: int,
) -> Picks:
    """Co-engaged products (B, slots): from the `recent` neighbours on, by uniform steps until one stands on a product.

    Users carry little content, so product - user - product is taken for products and one step more for users. `fan`
    are the visible edges of `recent`.
    """
    if not slots or not recent.node.shape[1]:
        return Picks.empty((len(nodes), slots), nodes.device)
    around = engagement.around(node_type)
    slot = torch.arange(slots, device=nodes.device)
    column = slot % recent.mask.sum(dim=1, keepdim=True).clamp(min=1)
    start, fan = recent.columns(column), fan.gather(2, column.expand(len(fan), *column.shape))
    once = engagement.step(start, fan, counter_hash(1, hashes[:, None], slot), around.reaches).without(node_type, nodes)
    at, draws = times[:, None].expand(once.node.shape), counter_hash(2, hashes[:, None], slot)
    ends = _on_to_product(engagement, once, at, draws, engagement.onward(around.reaches))
    return ends.without(node_type, nodes)


def _on_to_product(engagement: Engagement, picks: Picks, times: Tensor, hashes: Tensor, kinds: Sequence[int]) -> Picks:
    """Picks, of types `kinds`, that stand on a product, and one step from the others where that leads to a product."""
    others = [code for code in kinds if code != PRODUCT]
    if not others:
        return picks
    onward = picks.where(picks.node_type != PRODUCT)
    moved = engagement.step(onward, engagement.fan(onward, times, others), hashes, others)
    ends = picks.replaced(moved, picks.node_type != PRODUCT)
    return ends.where(ends.node_type == PRODUCT)


def visited_most(
    engagement: Engagement, node_type: str, nodes: Tensor, times: Tensor, hashes: Tensor, slots: int, barred: Barred
) -> Picks:
    """The `slots` products that short walks with restart visit most often, most visited first; shape (B, slots).

    Personalised PageRank by Monte Carlo (Fogaras et al., 2005), as PinSage chooses neighbours (Ying et al., 2018,
    arXiv:1806.01973). A walk moves from product to product through users. None stands on the seed or on `barred`: it
    then begins again. The weight of a pick is its share of the visits; equal shares come in the order of first visits.
    """
    shape = (len(nodes), WALKERS if slots else 0)
    if not slots or not len(nodes):
        return Picks.empty((len(nodes), slots), nodes.device)
    walker, at = torch.arange(WALKERS, device=nodes.device), times[:, None].expand(shape)
    kinds = sorted({PRODUCT, NODE_TYPES.index(node_type)})
    seeds = _standing(node_type, nodes, shape)
    seed_fan = engagement.fan(seeds.first(1), at[:, :1], (NODE_TYPES.index(node_type),))
    here, visits = seeds.where(torch.zeros_like(seeds.mask)), []
    for number in range(ROUNDS):
        draws = [counter_hash(number, part, hashes[:, None], walker) for part in range(3)]
        again = ~here.mask | (unit_interval(draws[0]) < RESTART)
        fan = torch.where(again, seed_fan, engagement.fan(here.where(~again), at, (PRODUCT,)))
        once = (
            engagement.step(here.replaced(seeds, again), fan, draws[1], kinds)
            .without(node_type, nodes)
            .without(*barred)
        )
        here = _on_to_product(engagement, once, at, draws[2], engagement.onward(kinds))
        here = here.without(node_type, nodes).without(*barred)
        visits.append(here)
    return _most_frequent(join(visits), slots)


def _standing(node_type: str, nodes: Tensor, shape: tuple[int, int]) -> Picks:
    """Walkers at their seeds, before any step."""
    code = NODE_TYPES.index(node_type)
    return dataclasses.replace(
        Picks.empty(shape, nodes.device),
        node_type=torch.full(shape, code, dtype=torch.int8, device=nodes.device),
        node=nodes[:, None].expand(shape),
        weight=torch.ones(shape, dtype=torch.float64, device=nodes.device),
        mask=(nodes >= 0)[:, None].expand(shape),
    )


def _most_frequent(visits: Picks, slots: int) -> Picks:
    """Of `visits` (B, V) of one type, each node once, most frequent first: (B, slots)."""
    width = visits.node.shape[1]
    bits, column = width.bit_length(), torch.arange(width, device=visits.node.device)
    by_node = ((torch.where(visits.mask, visits.node, -1) << bits) | column).sort(dim=1).values
    first = torch.ones_like(by_node, dtype=torch.bool)
    first[:, 1:] = (by_node[:, 1:] >> bits) != (by_node[:, :-1] >> bits)
    # The run of a node ends where the next one begins: the smallest later beginning, from the right.
    begins = torch.where(first, column, width).flip(1).cummin(dim=1).values.flip(1)
    count = torch.nn.functional.pad(begins[:, 1:], (0, 1), value=width) - column
    rank = torch.where(first & (by_node >= 0), width - count, width)
    chosen = ((rank << bits) | (by_node & ((1 << bits) - 1))).sort(dim=1).values[:, :slots]
    chosen = torch.nn.functional.pad(chosen, (0, slots - chosen.shape[1]), value=width << bits)
    total = visits.mask.sum(dim=1, keepdim=True).clamp(min=1)
    share = (width - (chosen >> bits)).to(torch.float64) / total
    picks = visits.columns(chosen & ((1 << bits) - 1))
    return dataclasses.replace(picks, weight=share, mask=chosen < (width << bits))
