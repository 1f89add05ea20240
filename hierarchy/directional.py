"""What follows what: directional co-occurrence of products, decayed with the distance between them, training-free.

T(i, j) = sum over users and pairs of occasions, i before j, of decay ** (gap - 1) up to a window, plus rho * T(j, i);
products of one occasion count once in both directions. So without any order it is plain co-occurrence, and with
window 1 the transitions of item-to-item Markov chains (Rendle et al., 2010). Decay over the gap as in sequential rules
with weights (Ludewig & Jannach, 2018, "Evaluation of session-based recommendation algorithms").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from hierarchy.purchases import History
from hierarchy.subspace import truncated_svd

_PAIRS = 20_000_000  # pairs formed at once
_SLACK = 8  # times as many entries a row are carried along as are kept in the end


@dataclass(frozen=True)
class DirectionalSettings:
    """How pairs count and how the table is normalised; the defaults are those found for sequences of purchases."""

    window: int = 20
    """Occasions apart, at most."""
    decay: float = 0.8
    """Factor for each occasion further apart."""
    rho: float = 0.0
    """Share of the opposite direction that is added."""
    row_power: float = 0.35
    """Exponent on the sum of a row that is divided out: what leads to much tells little."""
    column_power: float = 0.0
    """Exponent on the sum of a column that is divided out: how much popularity is taken from what is recommended."""
    user_power: float = 0.0
    """A user counts 1 / events ** user_power: 1 gives all users one voice, 0 all pairs."""
    repeats: bool = True
    """Whether a product may lead to itself."""
    top: int | None = None
    """Entries kept a row, the largest; None keeps all."""


@dataclass(frozen=True)
class DirectionalVectors:
    """T ~ source @ target.T: float32 (products, d) both, singular values shared evenly between them."""

    source: NDArray[np.float32]
    target: NDArray[np.float32]
    singular_values: NDArray[np.float32]


def transitions(history: History, settings: DirectionalSettings) -> sparse.csr_array:
    """The normalised table T, float32 (products, products), row i what follows i.

    Time: the pairs within the window, sum over users of events x window. Memory: about 20 million pairs at once, and
    the table itself: with `top` at most about 20 million entries or 16 x top a row while it is summed. Then entries
    beyond the 8 x top largest of their row are dropped on the way and may be missing from a sum.
    """
    size = history.num_products
    table = sparse.csr_array((size, size), dtype=np.float32)
    for events, voice, later in _blocks(history, settings):
        back = sparse.csr_array(events.T)
        table = table + back @ (later @ events) + _off_diagonal(back @ _rows_times(events, voice))
        if settings.top is not None and table.nnz > max(_PAIRS, 2 * _SLACK * settings.top * size):
            table = strongest(table, _SLACK * settings.top)
    if settings.rho:
        table = sparse.csr_array(table + table.T * np.float32(settings.rho))
    if not settings.repeats:
        table = _off_diagonal(table)
    table = _powers(table, settings)
    return table if settings.top is None else strongest(table, settings.top)


def directional_vectors(
    table: sparse.csr_array, dim: int, seed: int = 0, iterations: int = 4, device: torch.device | str = "cpu"
) -> DirectionalVectors:
    """Two vectors a product from the table of `transitions`: as what was there before, and as what follows."""
    factors = truncated_svd(table, dim, seed, iterations, device)
    root = np.sqrt(factors.values)
    return DirectionalVectors(factors.left * root, factors.right * root, factors.values)


def strongest(table: sparse.csr_array, top: int) -> sparse.csr_array:
    """The `top` largest entries of each row; of equal ones the first column."""
    table.sort_indices()
    sizes, floor = np.diff(table.indptr), np.full(table.shape[0], -np.inf, np.float32)
    for row in np.flatnonzero(sizes > top):
        own = table.data[table.indptr[row] : table.indptr[row + 1]]
        floor[row] = np.partition(own, len(own) - top)[-top]
    rows = np.repeat(np.arange(table.shape[0]), sizes)
    above, level = table.data > floor[rows], table.data == floor[rows]
    room = top - np.bincount(rows[above], minlength=table.shape[0])
    before = np.concatenate([[0], np.cumsum(level)])
    kept = above | (level & (before[1:] - before[table.indptr[rows]] <= room[rows]))
    return _csr(table.data[kept], rows[kept], table.indices[kept].astype(np.int64), table.shape)


class _Block(NamedTuple):
    """Events by occasion and product (o, products), weight of each occasion (o,), of pairs of occasions (o, o)."""

    events: sparse.csr_array
    voice: NDArray[np.float32]
    later: sparse.csr_array


def _blocks(history: History, settings: DirectionalSettings) -> Iterator[_Block]:
    """The history in blocks of whole users, in order of user, occasion and product."""
    recency = history.recency()
    order = np.lexsort((history.product, -recency, history.user))
    user, rank, product = history.user[order], -recency[order], history.product[order]
    count = history.counts()[order]
    sizes = np.bincount(user, minlength=history.num_users)
    ends = np.cumsum(sizes)
    cost = np.cumsum(np.concatenate([[0.0], sizes.astype(np.float64) ** 2]))  # pairs of a user, at most
    start = 0
    while start < len(user):
        first = int(user[start])
        last = max(int(np.searchsorted(cost, cost[first] + _PAIRS, side="right")) - 2, first)
        own = slice(start, int(ends[last]))
        yield _block(user[own], rank[own], product[own], count[own], history.num_products, settings)
        start = own.stop


def _block(
    user: NDArray[np.int64],
    rank: NDArray[np.int64],
    product: NDArray[np.int64],
    count: NDArray[np.float32],
    num_products: int,
    settings: DirectionalSettings,
) -> _Block:
    new = np.append(True, (user[1:] != user[:-1]) | (rank[1:] != rank[:-1]))
    place = np.cumsum(new) - 1
    owner = user[new]
    events = _csr(count, place, product, (len(owner), num_products))
    length = np.bincount(user, minlength=int(user[-1]) + 1)[owner].astype(np.float64)
    voice = length**-settings.user_power
    return _Block(events, voice.astype(np.float32), _later(owner, voice, settings))


def _later(owner: NDArray[np.int64], voice: NDArray[np.float64], settings: DirectionalSettings) -> sparse.csr_array:
    """Weights between each occasion (row) and those of the same user that come after it within the window."""
    none = np.zeros(0, np.int64)
    rows, columns, weights = [none], [none], [np.zeros(0)]
    for step in range(1, min(settings.window, len(owner) - 1) + 1):
        before = np.flatnonzero(owner[:-step] == owner[step:])
        rows.append(before)
        columns.append(before + step)
        weights.append(voice[before] * settings.decay ** (step - 1.0))
    weight = np.concatenate(weights).astype(np.float32)
    return _csr(weight, np.concatenate(rows), np.concatenate(columns), (len(owner), len(owner)))


def _off_diagonal(table: sparse.csr_array) -> sparse.csr_array:
    """The table without its diagonal, changed in place."""
    rows = np.repeat(np.arange(table.shape[0], dtype=table.indices.dtype), np.diff(table.indptr))
    table.data[rows == table.indices] = 0.0
    table.eliminate_zeros()
    return table


def _rows_times(matrix: sparse.csr_array, factor: NDArray[np.float32]) -> sparse.csr_array:
    scaled = matrix.copy()
    scaled.data = matrix.data * np.repeat(factor, np.diff(matrix.indptr))
    return scaled


def _powers(table: sparse.csr_array, settings: DirectionalSettings) -> sparse.csr_array:
    row, column = (np.maximum(np.asarray(table.sum(axis=axis), np.float64).ravel(), 1e-12) for axis in (1, 0))
    row, column = (row**-settings.row_power).astype(np.float32), (column**-settings.column_power).astype(np.float32)
    table.data *= np.repeat(row, np.diff(table.indptr))
    table.data *= column[table.indices]
    return table


def _csr(
    data: NDArray[np.float32], rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, ...]
) -> sparse.csr_array:
    found = sparse.csr_array((data, (rows, columns)), shape=shape)
    found.sum_duplicates()
    return found
