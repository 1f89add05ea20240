"""The graph as files: node tables and memory-mapped CSR in both directions, opened without copying.

Edges lie in segments of time: all edges of a segment became visible before those of the next one. Each row of a CSR is
sorted by (visible_from, time, hash of col), so what is visible at a time is a prefix of the row, in a segment as in the
segments' rows one after the other, and later events change neither an earlier prefix nor an earlier internal id.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        """Name of the folder of its arrays inside that of a segment or of the links."""
        return f"{self.src}__{self.name}__{self.dst}"

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
CO_ENGAGED = Relation("product", "co_engaged", "product")
SHARES_USERS = Relation("advertiser", "shares_users", "advertiser")
RELATIONS = (*(relation for forward in FORWARD for relation in (forward, forward.reverse)), CO_ENGAGED, SHARES_USERS)
"""Every relation a graph can have. The order is part of the contract and does not depend on the data, so that the
index of a relation means the same in a graph without, say, its later conversions."""

LINKS = tuple(r for forward in (OWNED_BY, IN_CATEGORY, CHILD_OF, OF_ADVERTISER) for r in (forward, forward.reverse))
"""Facts of the catalogue: small and without segments."""

DEFAULT_ENGAGEMENT = ("view", "click", "cart", "purchase", "conversion", "interested")
"""Event types that show interest: being shown something does not, and `not_interested` shows the contrary."""

ENGAGED = {target: Relation("user", "engaged", target) for target in EVENT_TARGETS}
"""By target, the events that show interest, of all their types: `kind` holds each edge's index in EVENT_TYPES. Those of
an advertiser name no product."""

ENGAGED_THROUGH = Relation("advertiser", "engaged_through", "product")
"""Engagement with an advertiser through the products it sells, as the events themselves name both; with `kind`."""

DERIVED = (*(r for forward in ENGAGED.values() for r in (forward, forward.reverse)), ENGAGED_THROUGH)
"""What is stored beside RELATIONS to be read faster: never a relation of its own."""


@dataclass(frozen=True)
class Csr:
    """Edges by source row: row i owns positions rowptr[i] to rowptr[i + 1] of the other arrays.

    rowptr int64 (n + 1,), col int32 or int64 (E,), visible_from int64 us (E,), time int64 us (E,) or None where each is
    visible_from - 1, weight float32 (E,) or None where each is 1, kind int8 (E,) in DERIVED relations only. Rows from n
    on have no edges.
    """

    rowptr: NDArray[np.int64]
    col: NDArray[Any]
    visible_from: NDArray[np.int64]
    time: NDArray[np.int64] | None = None
    weight: NDArray[np.float32] | None = None
    kind: NDArray[np.int8] | None = None

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.col)

    @property
    def times(self) -> NDArray[np.int64]:
        """When each edge happened [us], int64 (E,); a new array where it is implied."""
        return self.visible_from - 1 if self.time is None else self.time

    @property
    def weights(self) -> NDArray[np.float32]:
        """Weight of each edge, float32 (E,); a new array where it is implied."""
        return np.ones(self.num_edges, np.float32) if self.weight is None else self.weight

    def visible(self, rows: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many leading edges of each row are visible at its time [us]; shapes (B,), (B,) -> (B,).

        A binary search in all rows at once: O(B log(longest row)).
        """
        last = len(self.rowptr) - 1
        start = self.rowptr[np.minimum(rows, last)]
        length = self.rowptr[np.minimum(rows + 1, last)] - start
        found = np.zeros_like(start)
        for bit in reversed(range(int(length.max(initial=0)).bit_length())):
            reach = found + (1 << bit)
            probe = self.visible_from[start + np.minimum(reach, length) - 1]
            found = np.where((reach <= length) & (probe <= times), reach, found)
        return found


OPTIONAL = ("time", "weight", "kind")
"""Arrays of a CSR that are left out where they are implied."""


class GraphStore:
    """A graph artifact opened for reading; arrays are mapped on first use and shared by the page cache."""

    relations: tuple[Relation, ...] = RELATIONS

    def __init__(self, ref: ArtifactRef) -> None:
        self.ref = ref
        self._nodes = {kind: ref.table(f"nodes/{kind}.parquet").combine_chunks() for kind in NODE_TYPES}
        self._folders = [f"segments/{segment['name']}" for segment in ref.json("segments.json")]
        self.num_nodes: dict[str, int] = {kind: table.num_rows for kind, table in self._nodes.items()}
        self._segments: dict[Relation, tuple[Csr, ...]] = {}
        self._whole: dict[Relation, Csr] = {}

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

    def segments(self, relation: Relation) -> tuple[Csr, ...]:
        """The memory-mapped segments of one of RELATIONS or DERIVED that hold edges of it, in time order.

        A node's row is the segments' rows one after the other; rows beyond a segment's rowptr have no edges in it.
        LINKS have one segment. Raises UsageError when there is no such relation.
        """
        if relation not in self._segments:
            _known(relation)
            folders = ["links"] if relation in LINKS else self._folders
            found = [f"{folder}/{relation.folder}" for folder in folders]
            self._segments[relation] = tuple(
                self._open(folder) for folder in found if self.ref.has(f"{folder}/rowptr.npy")
            )
        return self._segments[relation]

    def csr(self, relation: Relation) -> Csr:
        """All edges of a relation in one block over all source nodes, for full scans; kept once made.

        The mapped arrays themselves where one segment has them all, else merged in memory: O(E) time and memory. Raises
        UsageError when there is no such relation.
        """
        if relation not in self._whole:
            self._whole[relation] = merged(self.segments(relation), self.num_nodes[relation.src])
        return self._whole[relation]

    def _open(self, folder: str) -> Csr:
        arrays = {name: self._array(f"{folder}/{name}.npy") for name in ("rowptr", "col", "visible_from")}
        optional = {name: f"{folder}/{name}.npy" for name in OPTIONAL}
        return Csr(**arrays, **{name: self._array(file) for name, file in optional.items() if self.ref.has(file)})

    def _array(self, name: str) -> NDArray[Any]:
        return np.asarray(self.ref.array(name))

    def _column(self, node_type: str, name: str) -> pa.Array:
        if node_type not in self._nodes:
            raise UsageError(f"no node type {node_type!r}: {nearest(node_type, NODE_TYPES)}")
        column = self._nodes[node_type][name]
        return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def index_in(values: pa.Array | pa.ChunkedArray, known: pa.Array) -> NDArray[np.int64]:
    """Position of each string of `values` in `known`, int64; -1 where it is null or absent."""
    found = pc.fill_null(pc.index_in(values, value_set=known, skip_nulls=True), -1)
    return np.asarray(found, dtype=np.int64)


def stretches(begin: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions begin[i], begin[i] + 1, ... (count[i] of them) for each i in turn; shapes (n,), (n,) -> (sum,)."""
    return np.repeat(begin - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))


def merged(segments: Sequence[Csr], rows: int) -> Csr:
    """Segments in time order as one CSR of `rows` rows; the very arrays of a single segment that has them all."""
    if len(segments) == 1 and len(segments[0].rowptr) == rows + 1:
        return segments[0]
    counts = [np.pad(np.diff(part.rowptr), (0, rows + 1 - len(part.rowptr))) for part in segments]
    rowptr = np.zeros(rows + 1, np.int64)
    np.cumsum(np.sum(counts, axis=0) if counts else rowptr[1:], out=rowptr[1:])
    free, places = rowptr[:-1].copy(), []
    for count in counts:
        places.append(stretches(free, count))
        free += count

    def gathered(arrays: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
        whole = np.empty(rowptr[-1], np.result_type(dtype, *arrays))
        for place, array in zip(places, arrays, strict=True):
            whole[place] = array
        return whole

    def optional(name: str, filled: str, dtype: Any) -> NDArray[Any] | None:
        if all(getattr(part, name) is None for part in segments):
            return None
        return gathered([getattr(part, filled) for part in segments], dtype)

    return Csr(
        rowptr,
        gathered([part.col for part in segments], np.int32),
        gathered([part.visible_from for part in segments], np.int64),
        optional("time", "times", np.int64),
        optional("weight", "weights", np.float32),
        optional("kind", "kind", np.int8),
    )


def _known(relation: Relation) -> None:
    if relation not in RELATIONS and relation not in DERIVED:
        names = ["-".join(known) for known in (*RELATIONS, *DERIVED)]
        raise UsageError(f"no relation {'-'.join(relation)}: {nearest('-'.join(relation), names)}")
