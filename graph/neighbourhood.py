"""The visible neighbours of many nodes of one type at once, over one or two relations."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from graph.draws import below, counter_hash
from graph.picks import TIMELESS, Picks
from graph.rows import Rows
from graph.store import NODE_TYPES

SIDES = 2
"""Relations that any node type's neighbours come through, at most."""

Counts = Tensor
"""Visible leading edges of each node by relation: int64 (SIDES, ...), 0 for relations there are not."""

Barred = tuple[str, Tensor]
"""A node type and, for each seed, the node of that type that never counts, -1 for none: int64 (B,)."""


class Neighbourhood:
    """Relations out of one node type, read as one list of neighbours, one relation's after the other's."""

    def __init__(self, sides: Sequence[Rows]) -> None:
        self.sides = [side for side in sides if side]
        self.reaches = sorted({side.dst for side in self.sides})

    def counts(self, nodes: Tensor, times: Tensor) -> Counts:
        """Visible edges by relation; a node of -1 (unknown) has none."""
        counts = nodes.new_zeros((SIDES, *nodes.shape))
        for number, side in enumerate(self.sides):
            counts[number] = side.visible(nodes, times)
        return counts

    def degree(self, nodes: Tensor, times: Tensor) -> Tensor:
        """Visible edges of all relations together, int64, shaped as the nodes."""
        found = [side.visible(nodes, times) for side in self.sides]
        return functools.reduce(torch.add, found) if found else torch.zeros_like(nodes)

    def recent(self, nodes: Tensor, counts: Counts, slots: int, barred: Barred) -> Picks:
        """The `slots` neighbours seen last, newest first, each node once while others are left; shape (B, slots).

        Looks at the last 2 `slots` edges, so that repeats cost room only for nodes with little else. `barred` never
        counts. Edges that became visible together are taken in order of `col`.
        """
        if not self.sides or not slots:
            return Picks.empty((len(nodes), slots), nodes.device)
        key, seen, place = self._last(nodes, counts, 2 * slots, barred)
        if len(self.sides) > 1:
            newest = seen.argsort(dim=1, descending=True, stable=True)[:, : 2 * slots]
            key, place = key.gather(1, newest), place.gather(1, newest)
        order, kept = _distinct_first(key, slots)
        return self.pick(nodes[:, None], torch.where(kept, place.gather(1, order), -1), counts[..., None])

    def spread(self, nodes: Tensor, counts: Counts, hashes: Tensor, slots: int) -> Picks:
        """`slots` edges drawn over all visible ones, one from each of `slots` equal strata; shape (B, slots).

        Every edge has the same chance and none comes twice; with fewer edges than slots each comes once.
        """
        if not self.sides or not slots:
            return Picks.empty((len(nodes), slots), nodes.device)
        edges = counts.sum(dim=0)[:, None]
        slot = torch.arange(slots + 1, device=nodes.device)
        bounds = (slot * edges).div_(slots, rounding_mode="floor")
        low, size = bounds[:, :-1], bounds.diff(dim=1)
        position = low + below(counter_hash(hashes[:, None], slot[:-1]), size)
        return self.pick(nodes[:, None], torch.where(size > 0, position, -1), counts[..., None])

    def pick(self, nodes: Tensor, position: Tensor, counts: Counts) -> Picks:
        """The edges at `position` in the list of all relations' visible edges, masked where it is not in the list.

        Shaped as `position`, to which the others broadcast; the weight is the chance of a uniform draw.
        """
        total = counts.sum(dim=0)
        weight = total.clamp(min=1).to(torch.float64).reciprocal_().expand(position.shape)
        if not self.sides:
            return Picks.empty(position.shape, nodes.device)
        found = []
        for side, count in zip(self.sides, counts, strict=False):
            found.append(side.take(nodes, position, (position >= 0).logical_and_(position < count)))
            position = position - count
        picks = functools.reduce(lambda one, other: one.replaced(other, other.mask), found)
        return dataclasses.replace(picks, weight=weight)

    def _last(self, nodes: Tensor, counts: Counts, wide: int, barred: Barred) -> tuple[Tensor, Tensor, Tensor]:
        """(node and type as one number or -1, visible_from, place in the list) of each relation's last `wide` edges."""
        back = torch.arange(1, wide + 1, device=nodes.device)
        kind, node = NODE_TYPES.index(barred[0]), barred[1][:, None]
        keys, seen, places = [], [], []
        passed = torch.zeros_like(nodes)[:, None]
        for side, count in zip(self.sides, counts[..., None], strict=False):
            position = count - back
            col, visible = side.look(nodes[:, None], position)
            real = position >= 0
            if side.dst == kind:
                real &= col != node
            keys.append(torch.where(real, col * len(NODE_TYPES) + side.dst, -1))
            seen.append(torch.where(real, visible, TIMELESS + 1))
            places.append(position + passed)
            passed = passed + count
        return torch.cat(keys, dim=1), torch.cat(seen, dim=1), torch.cat(places, dim=1)


def _distinct_first(key: Tensor, slots: int) -> tuple[Tensor, Tensor]:
    """Per row of `key` (B, W), the columns of first appearances, then of repeats, (B, slots); and which count.

    A key of -1 does not count. Two sorts of single numbers, each of which ends in its column, so none is equal.
    """
    column = torch.arange(key.shape[1], device=key.device)
    bits = int(key.shape[1]).bit_length()
    by_key = ((key << bits) | column).sort(dim=1).values
    rank = torch.zeros_like(by_key)
    rank[:, 1:] = (by_key[:, 1:] >> bits) == (by_key[:, :-1] >> bits)
    rank.masked_fill_(by_key < 0, 2)
    column = by_key & ((1 << bits) - 1)
    order = ((rank << bits) | column).sort(dim=1).values[:, :slots]
    return order & ((1 << bits) - 1), order < (2 << bits)
