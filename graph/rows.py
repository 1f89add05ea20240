"""One relation as rows of edges in tensors on a device, read over its time segments as if they were one."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from data.schema import EVENT_TYPES
from graph.picks import TIMELESS, Picks
from graph.store import NODE_TYPES, RELATIONS, Csr, GraphStore, Relation, merged
from kernels.visible_count.api import visible_count

SMALL = 1 << 21
"""The newest segments with no more edges than this together are merged in memory (28 MB): they cost as much to visit
as the large ones and hold little."""


@dataclass(frozen=True)
class Block:
    """A `graph.store.Csr` as tensors of one device."""

    rowptr: Tensor
    col: Tensor
    visible_from: Tensor
    time: Tensor | None
    weight: Tensor | None
    kind: Tensor | None

    @classmethod
    def of(cls, csr: Csr, device: torch.device) -> Block:
        """On the CPU the very arrays, mapped or not; elsewhere a copy."""
        names = ("rowptr", "col", "visible_from", "time", "weight", "kind")
        arrays = (getattr(csr, name) for name in names)
        return cls(*(None if array is None else _tensor(array).to(device) for array in arrays))  # type: ignore[arg-type]

    def start(self, nodes: Tensor) -> Tensor:
        """First edge of each row; nodes that came after this block have an empty row at its end."""
        return _at(self.rowptr, nodes.clamp(0, len(self.rowptr) - 1))


class Rows:
    """Edges of `relation` out of every node; a row is in time order. `timeless`: facts of the catalogue, not events.

    `shown` names the relation a token gets (by default `relation`); in derived relations it follows each edge's kind.
    """

    def __init__(
        self,
        store: GraphStore,
        relation: Relation,
        device: torch.device,
        timeless: bool = False,
        shown: Relation | None = None,
    ) -> None:
        self.relation, self.timeless, self.device = relation, timeless, device
        self.dst = NODE_TYPES.index(relation.dst)
        self.blocks = [Block.of(csr, device) for csr in _segments(store, relation, device)]
        fixed = shown or relation
        self._by_kind = fixed not in RELATIONS
        codes = _event_codes(relation) if self._by_kind else [RELATIONS.index(fixed)]
        self._codes = torch.tensor(codes, dtype=torch.int16, device=device)

    def __bool__(self) -> bool:
        return bool(self.blocks)

    def visible(self, nodes: Tensor, times: Tensor) -> Tensor:
        """How many leading edges of each row are visible at its time, int64; equal shapes; a node of -1 has none."""
        found = [visible_count(block.rowptr, block.visible_from, nodes, times) for block in self.blocks]
        return functools.reduce(torch.add, found)

    def look(self, nodes: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """(node reached, visible_from) of the edges at `position` of the rows; anything where it is negative.

        Here and below `nodes` broadcast to the shape of `position`, and no position is beyond its row.
        """
        return self._read(nodes, position, position >= 0, ("col", "visible_from"))  # type: ignore[return-value]

    def weights(self, nodes: Tensor, position: Tensor) -> Tensor:
        """Weight of the edges at `position`, float32; anything where it is negative."""
        return self._read(nodes, position, position >= 0, ("weight",))[0]

    def take(self, nodes: Tensor, position: Tensor, mask: Tensor) -> Picks:
        """The edges at `position` of the rows `nodes`, each with weight 1; anything where `mask` is False."""
        node, time, relation = self._read(nodes, position, mask, ("col", "time", "relation"))

        def same(value: int, dtype: torch.dtype) -> Tensor:
            return torch.full((), value, dtype=dtype, device=self.device).expand(node.shape)

        kind, hop, weight = same(self.dst, torch.int8), same(1, torch.int8), same(1, torch.float64)
        return Picks(kind, node, relation, hop, time, weight, mask)

    def _read(self, nodes: Tensor, position: Tensor, mask: Tensor, names: Sequence[str]) -> list[Tensor]:
        """Columns of the edges at `position` where `mask`, in rows that run through the blocks one after the other."""
        found: list[Tensor] | None = None
        for block in self.blocks:
            start, inside = block.start(nodes), mask
            if len(self.blocks) > 1:
                length = block.start(nodes + 1) - start
                inside = mask & (position >= 0) & (position < length)
            edge = torch.where(inside, start + position, 0)
            part = [self._column(block, name, edge) for name in names]
            if found is None:
                found = part
            else:
                found = [torch.where(inside, new, old) for new, old in zip(part, found, strict=True)]
            if len(self.blocks) > 1:
                position = position - length
        assert found is not None, "rows without edges are not read"
        return found

    def _column(self, block: Block, name: str, edge: Tensor) -> Tensor:
        if name == "col":
            return _at(block.col, edge).to(torch.int64)
        if name == "visible_from":
            return _at(block.visible_from, edge)
        if name == "weight":
            return _at(block.weight, edge) if block.weight is not None else torch.ones_like(edge, dtype=torch.float32)
        if name == "relation":
            if self._by_kind and block.kind is not None:
                return _at(self._codes, _at(block.kind, edge).to(torch.int64))
            return self._codes[0].expand(edge.shape)
        if self.timeless:
            return torch.full_like(edge, TIMELESS)
        return _at(block.time, edge) if block.time is not None else _at(block.visible_from, edge) - 1


def _at(values: Tensor, index: Tensor) -> Tensor:
    """`values[index]` for one-dimensional values, which index_select reads four times as fast on the CPU."""
    return values.index_select(0, index.reshape(-1)).view(index.shape)


def _segments(store: GraphStore, relation: Relation, device: torch.device) -> Sequence[Csr]:
    """On the CPU the mapped segments, the small newest ones merged; on a GPU one block of them all."""
    if device.type != "cpu":
        whole = store.csr(relation)
        return [whole] if whole.num_edges else []
    segments = list(store.segments(relation))
    small: list[Csr] = []
    while segments and sum(csr.num_edges for csr in (segments[-1], *small)) <= SMALL:
        small.insert(0, segments.pop())
    if len(small) > 1:
        small = [merged(small, store.num_nodes[relation.src])]
    return [csr for csr in (*segments, *small) if csr.num_edges]


def _event_codes(relation: Relation) -> list[int]:
    """By kind, the index in RELATIONS of the event relation between the same node types."""
    if relation.src == "user":
        return [RELATIONS.index(Relation("user", name, relation.dst)) for name in EVENT_TYPES]
    return [RELATIONS.index(Relation("user", name, relation.src).reverse) for name in EVENT_TYPES]


def _tensor(array: NDArray[Any]) -> Tensor:
    with warnings.catch_warnings():
        # Mapped files are read-only, which torch cannot express and warns of. Nothing here writes to a block.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
