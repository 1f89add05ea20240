"""Chosen edges as parallel tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graph.store import NODE_TYPES

TIMELESS = torch.iinfo(torch.int64).min
"""The `time` of an edge that states a fact of the catalogue rather than an event."""

_KINDS = (torch.int8, torch.int64, torch.int16, torch.int8, torch.int64, torch.float64, torch.bool)


@dataclass(frozen=True)
class Picks:
    """Edges of one shape (...,): the node reached, how, when and how likely. Values count only where `mask` is True.

    node_type int8, node int64, relation int16, hop int8, time int64 us (TIMELESS for links), weight float64, mask bool.
    """

    node_type: Tensor
    node: Tensor
    relation: Tensor
    hop: Tensor
    time: Tensor
    weight: Tensor
    mask: Tensor

    @classmethod
    def empty(cls, shape: tuple[int, ...] | torch.Size, device: torch.device) -> Picks:
        """Nothing picked."""
        return cls(*(torch.zeros(shape, dtype=kind, device=device) for kind in _KINDS))

    def arrays(self) -> tuple[Tensor, ...]:
        """The tensors in field order."""
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    def columns(self, index: Tensor) -> Picks:
        """Along the last axis, those at `index` (B, S)."""
        return Picks(*(array.gather(-1, index) for array in self.arrays()))

    def first(self, count: int) -> Picks:
        """The first `count` along the last axis."""
        return Picks(*(array[..., :count] for array in self.arrays()))

    def where(self, keep: Tensor) -> Picks:
        """The same with all but `keep` masked out."""
        return dataclasses.replace(self, mask=self.mask & keep)

    def without(self, node_type: str, nodes: Tensor) -> Picks:
        """Those that do not stand on the seed's `nodes` (B,) of `node_type`."""
        hit = (self.node == nodes[:, None]).logical_and_(self.node_type == NODE_TYPES.index(node_type))
        return self.where(~hit)

    def replaced(self, others: Picks, choose: Tensor) -> Picks:
        """`others` where `choose` is True, these elsewhere."""
        pairs = zip(self.arrays(), others.arrays(), strict=True)
        return Picks(*(torch.where(choose, new, old) for old, new in pairs))


def join(parts: Sequence[Picks]) -> Picks:
    """Picks side by side along the last axis."""
    columns: Any = zip(*(part.arrays() for part in parts), strict=True)
    return Picks(*(torch.cat(arrays, dim=-1) for arrays in columns))
