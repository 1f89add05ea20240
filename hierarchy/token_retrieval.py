"""Retrieval through tokens: products found by the posting lists of a user's primitives, without touching the others.

A user u with weights w(u, p) and a product i with weights w(i, q) on the primitives of a level are as close as

    score(u, i) = (1 + events(i)) ** prior * sum over q of a(u, q) * w(i, q)
    a(u, q)     = sum over p of w(u, p) * exp((cos(p, q) - 1) / tau)

so that interests near those of the user count too: the profile is spread over the graph of primitives, as query
expansion does (Qiu & Frei, 1993), and only its strongest `lists` primitives are kept. No vector of a user or product is
read. Posting lists are read in the order of impact, largest first, until `budget` products were met (Anh & Moffat,
2006, "Pruned query evaluation using pre-computed impacts"); only those are scored. Vectors told from the tokens
(hierarchy.decoding) rank them better than this sum does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

from data.artifacts import ArtifactRef
from data.timegrid import TOKENS
from hierarchy.bags import Vectors, cosines
from hierarchy.levels import Level
from hierarchy.recall import Scorer

_BLOCK = 1024


class Profiles(NamedTuple):
    """Bags of n entities: ids string (n,), weights sparse float32 (n, K), with K the primitives of the levels read."""

    ids: pa.Array
    weights: sparse.csr_array


def read_profiles(tokens: ArtifactRef, kind: str, levels: Sequence[Level], time: int) -> Profiles:
    """The last bag of every entity of `kind` with as_of <= `time` [us], at `levels`, their primitives one after the
    other. Memory: the tokens of that type and those levels till then."""
    wanted = pc.field("level").isin([level.level for level in levels])
    condition = (pc.field("entity_type") == kind) & (pc.field("as_of") <= time) & wanted
    columns = ["entity_id", "primitive_id", "weight", "as_of"]
    table = tokens.table(TOKENS, columns, condition).combine_chunks()
    coded = pc.dictionary_encode(table["entity_id"].combine_chunks())
    row, ids = coded.indices.to_numpy().astype(np.int64), coded.dictionary
    as_of = table["as_of"].to_numpy()
    newest = np.full(len(ids), np.iinfo(np.int64).min)
    np.maximum.at(newest, row, as_of)
    last = as_of == newest[row]
    known = pa.concat_arrays([level.ids for level in levels])
    column = np.asarray(pc.index_in(table["primitive_id"].combine_chunks(), value_set=known))[last]
    weight = table["weight"].to_numpy()[last]
    return Profiles(ids, sparse.csr_array((weight, (row[last], column)), shape=(len(ids), len(known))))


def spread_over(profiles: sparse.csr_array, vectors: Vectors, tau: float, lists: int) -> sparse.csr_array:
    """a(u, q) of the module's docstring for profiles (n, K) over primitives with unit `vectors` (K, d), cut to the
    `lists` largest of each row. Time and memory O(n K) in blocks of rows, and n x lists at the end."""
    near = np.exp((cosines(vectors, vectors) - 1) / np.float32(tau))
    kept = min(lists, len(vectors))
    parts = [sparse.csr_array((0, len(vectors)), dtype=np.float32)]
    for start in range(0, profiles.shape[0], _BLOCK):
        full = np.asarray(profiles[start : start + _BLOCK] @ near, np.float32)
        column = np.argsort(-full, axis=1, kind="stable")[:, :kept]
        weight = np.take_along_axis(full, column, axis=1)
        offsets = np.arange(len(full) + 1) * kept
        parts.append(sparse.csr_array((weight.ravel(), column.ravel(), offsets), shape=full.shape))
    spread = sparse.csr_array(sparse.vstack(parts))
    spread.eliminate_zeros()
    return spread


class TokenIndex:
    """Posting lists, of each primitive the products by falling impact w(i, q) * (1 + events(i)) ** prior."""

    def __init__(self, products: sparse.csr_array, events: NDArray[np.int64], prior: float) -> None:
        """`products` (n, K) holds their weights, `events` (n,) how often each was engaged with. O(tokens)."""
        held = products.tocoo()
        impact = (held.data * (1.0 + events[held.row]) ** prior).astype(np.float32)
        self.num_products = products.shape[0]
        self._impacts = sparse.csr_array((impact, (held.row, held.col)), shape=products.shape)
        order = np.lexsort((held.row, -impact, held.col))
        self._items, self._impact = held.row[order].astype(np.int64), impact[order]
        self._first = np.searchsorted(held.col[order], np.arange(products.shape[1] + 1))

    def scores(self, profiles: sparse.csr_array) -> Vectors:
        """Scores float32 (B, n) of all products for profiles (B, K)."""
        return np.asarray((profiles @ self._impacts.T).toarray(), np.float32)

    def candidates(self, primitives: NDArray[np.int64], weights: Vectors, budget: int) -> NDArray[np.int64]:
        """The first `budget` products that are met when the lists of `primitives` (t,) with `weights` (t,) are read in
        order of impact; fewer where the lists end, and of equal ones the lower number. O(t budget + n)."""
        impact = np.zeros(self.num_products, np.float32)
        for primitive, weight in zip(primitives, weights, strict=True):
            # A list that is read alone gives the whole budget, so no more of any list is ever needed.
            stop = min(self._first[primitive] + budget, self._first[primitive + 1])
            items = self._items[self._first[primitive] : stop]
            impact[items] = np.maximum(impact[items], self._impact[self._first[primitive] : stop] * weight)
        met = np.flatnonzero(impact)
        if len(met) > budget:
            least = np.partition(impact[met], len(met) - budget)[len(met) - budget]
            met = met[impact[met] >= least]
        return met[np.argsort(-impact[met], kind="stable")[:budget]]


class TokenRetrieval:
    """A `hierarchy.recall.Scorer` that scores at most `budget` products a user and leaves the others at -inf.

    `found` and `asked` count, over all calls, the products scored and the users.
    """

    def __init__(
        self, index: TokenIndex, profiles: sparse.csr_array, budget: int, within: Scorer | None = None
    ) -> None:
        """`profiles` (users, K) by internal id. `within` ranks the candidates in place of their tokens; only its scores
        of candidates are used, though it is asked for all."""
        self._index, self._profiles, self._budget, self._within = index, profiles, budget, within
        self.found = self.asked = 0

    def scores(self, users: NDArray[np.int64]) -> Vectors:
        """Scores (B, products) of users (B,)."""
        own = self._profiles[users]
        every = self._index.scores(own) if self._within is None else self._within.scores(users)
        scores = np.full(every.shape, -np.inf, np.float32)
        for row in range(len(users)):
            part = slice(own.indptr[row], own.indptr[row + 1])
            met = self._index.candidates(own.indices[part].astype(np.int64), own.data[part], self._budget)
            scores[row, met] = every[row, met]
            self.found += len(met)
        self.asked += len(users)
        return scores

    def share_scored(self) -> float:
        """Mean share of the products that was scored for a user so far."""
        return float(self.found / max(self.asked * self._index.num_products, 1))
