"""Edge lists sorted into CSR in memory: for what is small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph.groups import counting_order
from graph.hashing import counter_hash
from graph.store import Csr


@dataclass(frozen=True)
class EdgeList:
    """Edges of one relation in any order, all (E,): src, dst, time and visible_from int64 [us], weight float32; kind
    int8 or None."""

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    time: NDArray[np.int64]
    visible_from: NDArray[np.int64]
    weight: NDArray[np.float32]
    kind: NDArray[np.int8] | None = None

    @property
    def reverse(self) -> EdgeList:
        """The same edges from `dst` to `src`."""
        return EdgeList(self.dst, self.src, self.time, self.visible_from, self.weight, self.kind)


def to_csr(edges: EdgeList, num_src: int, num_dst: int) -> Csr:
    """Rows of `num_src` nodes sorted by (visible_from, time, hash of col): equal bytes for any order of the edges."""
    order = edge_order(edges)
    rowptr = np.zeros(num_src + 1, np.int64)
    np.cumsum(np.bincount(edges.src, minlength=num_src), out=rowptr[1:])
    col: NDArray[Any] = edges.dst[order].astype(np.int32 if num_dst <= np.iinfo(np.int32).max else np.int64)
    seen, time, weight = edges.visible_from[order], edges.time[order], edges.weight[order]
    return Csr(
        rowptr,
        col,
        seen,
        None if (time == seen - 1).all() else time,
        None if (weight == 1).all() else weight,
        None if edges.kind is None else edges.kind[order],
    )


def edge_order(edges: EdgeList) -> NDArray[np.int64]:
    """The order of `edges` in a CSR, int64 (E,).

    Edges that share both times (a shopping basket) come in the order of a hash, a bijection of the node number: by
    number, the last few of a basket would always be the products that entered the catalogue last.
    """
    lag = edges.visible_from - edges.time
    keys: list[Any] = [edges.kind, edges.weight, counter_hash(edges.dst), -lag]  # beside visible_from, -lag is the time
    tells = [key for key in keys if key is not None and (key != key[:1]).any()]
    order = np.lexsort((*tells, edges.visible_from))
    return order[counting_order(edges.src[order], int(edges.src.max(initial=0)) + 1)]
