"""Edge lists sorted into CSR in both directions, and the files of a graph artifact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.artifacts import OutputDir
from graph.picks import counter_hash
from graph.store import ARRAYS, NODE_TYPES, RELATIONS, Csr, Relation


@dataclass(frozen=True)
class EdgeList:
    """Edges of one relation in any order: src, dst, time and visible_from int64 [us], weight float32; all (E,)."""

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    time: NDArray[np.int64]
    visible_from: NDArray[np.int64]
    weight: NDArray[np.float32]

    @property
    def reverse(self) -> EdgeList:
        """The same edges from `dst` to `src`."""
        return EdgeList(self.dst, self.src, self.time, self.visible_from, self.weight)


def to_csr(edges: EdgeList, num_src: int, num_dst: int) -> Csr:
    """Rows of `num_src` nodes sorted by (visible_from, time, hash of col): equal bytes for any order of the edges."""
    order = edge_order(edges)
    rowptr = np.zeros(num_src + 1, np.int64)
    np.cumsum(np.bincount(edges.src, minlength=num_src), out=rowptr[1:])
    col: NDArray[Any] = edges.dst[order].astype(np.int32 if num_dst <= np.iinfo(np.int32).max else np.int64)
    return Csr(rowptr, col, edges.time[order], edges.visible_from[order], edges.weight[order])


def edge_order(edges: EdgeList) -> NDArray[np.int64]:
    """The order of `edges` in a CSR, int64 (E,).

    Edges that share both times (a shopping basket) come in the order of a hash, a bijection of the node number: by
    number, the last few of a basket would always be the products that entered the catalogue last.
    """
    shuffled = counter_hash(edges.dst)
    return np.lexsort((edges.weight, shuffled, edges.time, edges.visible_from, edges.src))


def write_graph(out: OutputDir, nodes: Mapping[str, pa.Table], edges: Mapping[Relation, EdgeList]) -> dict[str, int]:
    """Write node tables (graph.ids.NODES, one for each of NODE_TYPES) and both directions of the forward `edges`.

    Returns the number of edges by "src-name-dst". Relations without edges get no files. Holds one relation's sort at
    a time: about 80 bytes an edge of the largest relation beyond the lists themselves.
    """
    for kind in NODE_TYPES:
        out.write_table(f"nodes/{kind}.parquet", nodes[kind])
    listed = []
    for relation in RELATIONS:
        found = edges.get(relation)
        if found is None:
            turned = edges.get(relation.reverse)
            found = turned.reverse if turned is not None else None
        if found is None or not len(found.src):
            continue
        csr = to_csr(found, nodes[relation.src].num_rows, nodes[relation.dst].num_rows)
        for name in ARRAYS:
            out.write_array(f"{relation.folder}/{name}.npy", getattr(csr, name))
        listed.append({"src": relation.src, "relation": relation.name, "dst": relation.dst, "num_edges": csr.num_edges})
    out.write_json("edges.json", listed)
    return {f"{row['src']}-{row['relation']}-{row['dst']}": int(str(row["num_edges"])) for row in listed}
