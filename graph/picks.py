"""Chosen edges as parallel arrays, and the counter-based hash that chooses them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.store import NODE_TYPES

TIMELESS = np.iinfo(np.int64).min
"""The `time` of an edge that states a fact of the catalogue rather than an event."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class Picks:
    """Edges of one shape (...,): the node reached, how, when and how likely. Values count only where `mask` is True.

    node_type int8, node int64, relation int16, hop int8, time int64 us (TIMELESS for links), weight float64, mask bool.
    """

    node_type: NDArray[np.int8]
    node: NDArray[np.int64]
    relation: NDArray[np.int16]
    hop: NDArray[np.int8]
    time: NDArray[np.int64]
    weight: NDArray[np.float64]
    mask: NDArray[np.bool_]

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Picks:
        """Nothing picked."""
        kinds = (np.int8, np.int64, np.int16, np.int8, np.int64, np.float64, np.bool_)
        return cls(*(np.zeros(shape, kind) for kind in kinds))

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The arrays in field order."""
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    def columns(self, index: NDArray[np.int64]) -> Picks:
        """Along the last axis, those at `index` (B, S)."""
        return Picks(*(np.take_along_axis(array, index, axis=-1) for array in self.arrays()))

    def first(self, count: int) -> Picks:
        """The first `count` along the last axis."""
        return Picks(*(array[..., :count] for array in self.arrays()))

    def at(self, index: Any) -> Picks:
        """Those at `index` (any numpy index)."""
        return Picks(*(array[index] for array in self.arrays()))

    def where(self, keep: NDArray[np.bool_]) -> Picks:
        """The same with all but `keep` masked out."""
        return dataclasses.replace(self, mask=self.mask & keep)

    def without(self, node_type: str, nodes: NDArray[np.int64]) -> Picks:
        """Those that do not stand on the seed's `nodes` (B,) of `node_type`."""
        hit = (self.node_type == NODE_TYPES.index(node_type)) & (self.node == nodes[:, None])
        return self.where(~hit)

    def replaced(self, others: Picks, choose: NDArray[np.bool_]) -> Picks:
        """`others` where `choose` is True, these elsewhere."""
        pairs = zip(self.arrays(), others.arrays(), strict=True)
        return Picks(*(np.where(choose, new, old) for old, new in pairs))


def join(parts: Sequence[Picks]) -> Picks:
    """Picks side by side along the last axis."""
    return Picks(*(np.concatenate(arrays, axis=-1) for arrays in zip(*(p.arrays() for p in parts), strict=True)))


def counter_hash(*parts: int | NDArray[Any]) -> NDArray[np.uint64]:
    """Hash of integers and integer arrays, which broadcast together: SplitMix64 (Steele et al., 2014) folded over them.

    Random numbers drawn by counter rather than by state depend on what they are for, never on what was drawn before.
    """
    state: NDArray[np.uint64] = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            wide = np.asarray(part % (1 << 64), np.uint64) if isinstance(part, int) else part.astype(np.uint64)
            state = (state ^ wide) + _GOLDEN
            state = (state ^ (state >> np.uint64(30))) * _MIX_1
            state = (state ^ (state >> np.uint64(27))) * _MIX_2
            state = state ^ (state >> np.uint64(31))
    return state


def unit_interval(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Hashes as float64 in [0, 1)."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53
