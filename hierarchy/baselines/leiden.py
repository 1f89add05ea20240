"""Leiden communities of products that the same people engage with, at a resolution for each size of level.

Traag, Waltman & van Eck (2019, "From Louvain to Leiden"), by the library igraph (extra `bench`). Leiden chooses the
number of communities itself, so a level's resolution is searched for. Levels need not nest: each sees the whole graph.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from data.errors import BadDataError, SystemStateError
from hierarchy.bags import Vectors, cosines
from hierarchy.kmeans import group_sums, unit
from hierarchy.purchases import History

_TRIES = 10
_LEAST, _MOST = 1e-3, 1e3  # resolutions between which a level's is looked for


class Leiden:
    """Communities found once, by product row. A product of another place or without edges is with the community whose
    members' mean content is nearest: the graph says nothing of it."""

    nearest = False

    def __init__(self, graph: sparse.csr_array, vectors: Vectors, sizes: Sequence[int], seed: int) -> None:
        """`graph` (n, n) holds symmetric weights, `vectors` (n, d) the unit content of the same products.

        Time: about ten runs a level, each linear in the edges. Raises SystemStateError without igraph, BadDataError for
        fewer connected products than the finest size.
        """
        connected = int((np.diff(graph.indptr) > 0).sum())
        if connected < max(sizes):
            raise BadDataError(f"expected at least {max(sizes)} products with co-engagement, got {connected}")
        network, weights = _network(graph)
        self.vectors: list[Vectors] = []
        self._known = vectors
        self._assigned: list[NDArray[np.int64]] = []
        for k in sizes:
            found = _kept(_communities(network, weights, k, seed), graph, k)
            self.vectors.append(_means(vectors, found, k))
            self._assigned.append(np.where(found >= 0, found, _nearest(vectors, self.vectors[-1])))

    def assign(self, vectors: Vectors) -> list[NDArray[np.int64]]:
        """By level the community of each product (m,). The first n `vectors` (m, d) are those it was fitted on."""
        n = len(self._known)
        later = [_nearest(vectors[n:], level) for level in self.vectors]
        return [np.concatenate([own, more]) for own, more in zip(self._assigned, later, strict=True)]


def co_engagement_graph(history: History, window: float, power: float, neighbours: int) -> sparse.csr_array:
    """Symmetric weights (products, products): c_ij / (n_i n_j) ** power of the strongest `neighbours` of each product.

    c_ij counts the occasions of `window` days on which both were bought, n_i those of one. Memory: the pairs that were
    ever bought together.
    """
    occasions = history.occasions(window).astype(np.float64)
    times = np.maximum(np.asarray(occasions.sum(axis=0)).ravel(), 1.0)
    pairs = sparse.coo_array(occasions.T @ occasions)
    apart = pairs.row != pairs.col
    row, col = pairs.row[apart].astype(np.int64), pairs.col[apart].astype(np.int64)
    weight = pairs.data[apart] / (times[row] * times[col]) ** power
    order = np.lexsort((col, -weight, row))
    kept = order[np.arange(len(order)) - np.searchsorted(row[order], row[order]) < neighbours]
    shape = (history.num_products, history.num_products)
    strongest = sparse.csr_array((weight[kept], (row[kept], col[kept])), shape=shape)
    return sparse.csr_array(strongest.maximum(strongest.T))


def _network(graph: sparse.csr_array) -> tuple[Any, NDArray[np.float64]]:
    upper = sparse.triu(graph, k=1).tocoo()
    edges = np.stack([upper.row, upper.col], axis=1)
    return _igraph().Graph(n=graph.shape[0], edges=edges), upper.data


def _communities(network: Any, weights: NDArray[np.float64], k: int, seed: int) -> NDArray[np.int64]:
    """Communities (n,) at the resolution that gives the least number of at least `k`, of those with two products or
    more; where none gives as many, the most."""
    low, high = np.log(_LEAST), np.log(_MOST)
    alone = int((np.array(network.degree()) == 0).sum())
    best: tuple[tuple[bool, int], NDArray[np.int64]] | None = None
    for _ in range(_TRIES):
        middle = (low + high) / 2
        _igraph().set_random_number_generator(random.Random(seed))
        found = network.community_leiden(
            objective_function="modularity", weights=weights, resolution=float(np.exp(middle)), n_iterations=2
        )
        member = np.array(found.membership, np.int64)
        members = np.bincount(member)
        count = int((members > 1).sum())
        # Past some resolution communities fall apart into products that stand alone, and are fewer again.
        scattered = (members == 1).sum() - alone > (len(member) - alone) / 2
        if best is None or (count < k, abs(count - k)) < best[0]:
            best = (count < k, abs(count - k)), member
        low, high = (middle, high) if count < k and not scattered else (low, middle)
    assert best is not None
    return best[1]


def _kept(member: NDArray[np.int64], graph: sparse.csr_array, k: int) -> NDArray[np.int64]:
    """The `k` largest communities, numbered by size; a product of another is with the one it has most weight to, -1
    where it has none."""
    sizes = np.bincount(member)
    order = np.argsort(-sizes, kind="stable")[:k]
    number = np.full(len(sizes), -1)
    number[order[sizes[order] > 1]] = np.arange(int((sizes[order] > 1).sum()))
    found = number[member]
    held = np.flatnonzero(found >= 0)
    ones = sparse.csr_array((np.ones(len(held)), (held, found[held])), shape=(len(member), k))
    lost = np.flatnonzero(found < 0)
    pull = np.asarray((graph[lost] @ ones).toarray())
    found[lost] = np.where(pull.max(axis=1, initial=0) > 0, pull.argmax(axis=1), -1) if len(lost) else found[lost]
    return found


def _means(vectors: Vectors, member: NDArray[np.int64], k: int) -> Vectors:
    held = member >= 0
    return unit(group_sums(vectors[held], member[held], k))


def _nearest(vectors: Vectors, means: Vectors) -> NDArray[np.int64]:
    found = cosines(vectors, means)
    found[:, ~means.any(axis=1)] = -np.inf  # a community without members is nearest to nothing
    return np.asarray(found.argmax(axis=1))


def _igraph() -> ModuleType:
    try:
        import igraph
    except ImportError as error:
        raise SystemStateError("expected igraph for Leiden, found none: pip install -e '.[bench]'") from error
    module: ModuleType = igraph
    return module
