"""Frozen content of every node, and which nodes have an id residual: the tables that seeds and tokens are read from."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from encoders.base import MODALITIES
from graph.store import NODE_TYPES, GraphStore, index_in
from hierarchy.losses.view_distillation import TeacherView

WITH_CONTENT = ("product", "advertiser", "category", "user")
WITH_ID = ("product", "advertiser")
"""Node types that may have a free vector. Users have none: a user is what they did."""


@dataclass(frozen=True)
class ContentTable:
    """Content and id rows of all node types, one after the other in the order of NODE_TYPES.

    content float32 (N, D + 5): fused content and, in the last columns, the node type one-hot. With `gate`, the weight
    of each modality by name, it is (N, P D + P + 5) instead: the parts of P modalities before they are fused, and which
    there are. id_rows int64 (N,): row of the id residual table, 0 for none. offsets: first row of each node type.
    teachers: closed-form views of the products that may teach; they stay with the host.
    """

    content: torch.Tensor
    id_rows: torch.Tensor
    offsets: NDArray[np.int64]
    gate: tuple[tuple[str, float], ...] = ()
    teachers: tuple[TeacherView, ...] = ()

    @property
    def content_dim(self) -> int:
        """D, without the type columns."""
        columns = self.content.shape[1] - len(NODE_TYPES)
        return columns // len(self.gate) - 1 if self.gate else columns

    def rows(self, node_type: torch.Tensor | str, nodes: torch.Tensor | NDArray[np.int64]) -> torch.Tensor:
        """Table rows int64 of internal ids; padding (type or node -1) gets row 0, to be masked."""
        known = torch.as_tensor(nodes, device=self.content.device).clamp(min=0)
        if isinstance(node_type, str):
            return known + int(self.place(node_type).start)
        return known + self._first[node_type.to(torch.int64).clamp_(min=0)]

    def place(self, kind: str) -> slice:
        """The rows of a node type."""
        code = NODE_TYPES.index(kind)
        last = self.offsets[code + 1] if code + 1 < len(NODE_TYPES) else len(self.id_rows)
        return slice(int(self.offsets[code]), int(last))

    def to(self, device: torch.device | str) -> ContentTable:
        """The same table with its tensors on `device`."""
        return dataclasses.replace(self, content=self.content.to(device), id_rows=self.id_rows.to(device))

    @functools.cached_property
    def _first(self) -> torch.Tensor:
        """`offsets` beside the content."""
        return torch.from_numpy(self.offsets).to(self.content.device)


def open_content(
    features: ArtifactRef, store: GraphStore, known: dict[str, pa.Array] | None = None, gated: bool = False
) -> ContentTable:
    """The content of `store`'s nodes by external id; zeros for nodes without features.

    `known` names, by node type, the external ids that own rows 1, 2, ... of the id residual table, types one after the
    other in the order of WITH_ID. `gated`: the parts of content instead of the whole. Memory O(N D), gated P times it.
    """
    gate = _gate(features) if gated else ()
    sizes = [store.num_nodes[kind] for kind in NODE_TYPES]
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    dim = features.array("content_product.npy").shape[1]
    width = len(gate) * (dim + 1) if gated else dim
    content = np.zeros((sum(sizes), width + len(NODE_TYPES)), np.float32)
    id_rows = np.zeros(sum(sizes), np.int64)
    first = 1
    for code, kind in enumerate(NODE_TYPES):
        own = slice(offsets[code], offsets[code] + sizes[code])
        content[own, width + code] = 1.0
        if kind in WITH_CONTENT and features.has(f"content_{kind}.npy"):
            content[own, :width] = _aligned(features, kind, store, gate)
        if known and kind in known:
            position = index_in(store.entity_ids(kind), known[kind])
            id_rows[own] = np.where(position >= 0, position + first, 0)
            first += len(known[kind])
    return ContentTable(torch.from_numpy(content), torch.from_numpy(id_rows), offsets, gate)


def _gate(features: ArtifactRef) -> tuple[tuple[str, float], ...]:
    described = features.json("encoder.json")
    return tuple((name, described["weights"][name]) for name in described["modalities"])


def _aligned(
    features: ArtifactRef, kind: str, store: GraphStore, gate: tuple[tuple[str, float], ...]
) -> NDArray[np.float32]:
    """Rows of the table for the nodes of a type."""
    ids = features.table(f"entities_{kind}.parquet", columns=["entity_id"])["entity_id"].combine_chunks()
    position = index_in(store.entity_ids(kind), ids)
    vectors = features.array(f"content_{kind}.npy")
    if gate:
        parts, mask = features.array(f"parts_{kind}.npy"), features.array(f"mask_{kind}.npy")
        there = mask[:, [MODALITIES.index(name) for name, _ in gate]]
        vectors = np.concatenate([parts.reshape(len(parts), -1), there], axis=1, dtype=np.float32)
    aligned = np.zeros((len(position), vectors.shape[1]), np.float32)
    aligned[position >= 0] = vectors[position[position >= 0]]
    return aligned
