"""The graph as files: node tables and memory-mapped CSR in both directions, opened without copying.

Each row of a CSR is sorted by (visible_from, time, hash of col), so what is visible at a time is a prefix of the row
and deleting later events leaves every earlier prefix, and every earlier internal id, as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.artifacts import ArtifactRef
from data.errors import UsageError, nearest
from data.schema import EVENT_TYPES

NODE_TYPES = ("user", "product", "advertiser", "campaign", "category")
"""Node types in the order of their int8 codes."""

REVERSE = "rev_"
"""Prefix of the name of a relation read backwards."""


class Relation(NamedTuple):
    """A directed edge type: `src` -name-> `dst`, both node types."""

    src: str
    name: str
    dst: str

    @property
    def folder(self) -> str:
        """Folder of its arrays inside a graph artifact."""
        return f"edges/{self.src}__{self.name}__{self.dst}"

    @property
    def reverse(self) -> Relation:
        """The same edges read from the other end; reversing twice gives the relation itself."""
        name = self.name.removeprefix(REVERSE) if self.name.startswith(REVERSE) else REVERSE + self.name
        return Relation(self.dst, name, self.src)


EVENT_TARGETS = ("product", "advertiser", "campaign")
OWNED_BY = Relation("product", "owned_by", "advertiser")
IN_CATEGORY = Relation("product", "in_category", "category")
CHILD_OF = Relation("category", "child_of", "category")
OF_ADVERTISER = Relation("campaign", "of_advertiser", "advertiser")
FORWARD = (
    *(Relation("user", event, target) for event in EVENT_TYPES for target in EVENT_TARGETS),
    OWNED_BY,
    IN_CATEGORY,
    CHILD_OF,
    OF_ADVERTISER,
)
RELATIONS = tuple(relation for forward in FORWARD for relation in (forward, forward.reverse))
"""Every relation a graph can have. The order is part of the contract and does not depend on the data, so that the
index of a relation means the same in a graph without, say, its later conversions."""

ARRAYS = ("rowptr", "col", "time", "visible_from", "weight")


@dataclass(frozen=True)
class Csr:
    """Edges by source row: row i owns positions rowptr[i] to rowptr[i + 1] of the other arrays.

    rowptr int64 (n + 1,), col int32 or int64 (E,), time and visible_from int64 us (E,), weight float32 (E,).
    """

    rowptr: NDArray[np.int64]
    col: NDArray[Any]
    time: NDArray[np.int64]
    visible_from: NDArray[np.int64]
    weight: NDArray[np.float32]

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.col)

    def visible(self, rows: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many leading edges of each row are visible at its time [us]; shapes (B,), (B,) -> (B,).

        A binary search in all rows at once: O(B log(longest row)).
        """
        start = self.rowptr[rows]
        length = self.rowptr[rows + 1] - start
        found = np.zeros_like(start)
        for bit in reversed(range(int(length.max(initial=0)).bit_length())):
            reach = found + (1 << bit)
            probe = self.visible_from[start + np.minimum(reach, length) - 1]
            found = np.where((reach <= length) & (probe <= times), reach, found)
        return found


class GraphStore:
    """A graph artifact opened for reading; arrays are mapped on first use and shared by the page cache."""

    relations: tuple[Relation, ...] = RELATIONS

    def __init__(self, ref: ArtifactRef) -> None:
        self.ref = ref
        self._nodes = {kind: ref.table(f"nodes/{kind}.parquet").combine_chunks() for kind in NODE_TYPES}
        self.num_nodes: dict[str, int] = {kind: table.num_rows for kind, table in self._nodes.items()}
        self._csr: dict[Relation, Csr] = {}

    @classmethod
    def open(cls, ref: ArtifactRef) -> GraphStore:
        """Open the artifact of stage `graph`; raises BadDataError when a file is missing or torn."""
        return cls(ref)

    def entity_ids(self, node_type: str) -> pa.Array:
        """External ids, string (n,); the position is the internal id."""
        return self._column(node_type, "entity_id")

    def known_at(self, node_type: str) -> NDArray[np.int64]:
        """When each node was first named by a readable row [us], int64 (n,), never decreasing."""
        known: NDArray[np.int64] = self._column(node_type, "known_at").to_numpy()
        return known

    def encode(self, node_type: str, ids: Any) -> NDArray[np.int64]:
        """Internal ids int64 (B,) of external `ids` (strings, list or Arrow); -1 where unknown or null."""
        wanted = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids, pa.string())
        return index_in(wanted, self.entity_ids(node_type))

    def csr(self, relation: Relation) -> Csr:
        """The memory-mapped edges of `relation` (empty when it has none); raises UsageError when there is none such."""
        if relation not in self._csr:
            self._csr[relation] = self._open(relation)
        return self._csr[relation]

    def _open(self, relation: Relation) -> Csr:
        if relation not in RELATIONS:
            names = [f"{r.src}-{r.name}-{r.dst}" for r in RELATIONS]
            raise UsageError(f"no relation {'-'.join(relation)}: {nearest('-'.join(relation), names)}")
        if not self.ref.has(f"{relation.folder}/rowptr.npy"):
            none = np.zeros(0, np.int64)
            rowptr = np.zeros(self.num_nodes[relation.src] + 1, np.int64)
            return Csr(rowptr, none.astype(np.int32), none, none, none.astype(np.float32))
        return Csr(*(np.asarray(self.ref.array(f"{relation.folder}/{name}.npy")) for name in ARRAYS))

    def _column(self, node_type: str, name: str) -> pa.Array:
        if node_type not in self._nodes:
            raise UsageError(f"no node type {node_type!r}: {nearest(node_type, NODE_TYPES)}")
        column = self._nodes[node_type][name]
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def index_in(values: pa.Array | pa.ChunkedArray, known: pa.Array) -> NDArray[np.int64]:
    """Position of each string of `values` in `known`, int64; -1 where it is null or absent."""
    found = pc.fill_null(pc.index_in(values, value_set=known, skip_nulls=True), -1)
    return np.asarray(found, dtype=np.int64)
