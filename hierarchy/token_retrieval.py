"""Retrieval through tokens: products found by the posting lists of a user's primitives, without touching the others.

A product i and a user u with weights w(i, p) and w(u, p) on primitive p are as close as

    score(u, i) = (1 + events(i)) ** prior * sum over p of all levels of idf(p) * w(u, p) * w(i, p)

with idf(p) = log(1 + n / mass(p)), mass(p) the sum of w(i, p) over the n products: sharing a rare interest says more
than sharing a common one (Sparck Jones, 1972), so that finer levels count more without a weight of their own. Lists are
read in the order of impact, largest first, until `budget` products were met (Anh & Moffat, 2006, "Pruned query
evaluation using pre-computed impacts"); only those are scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

from data.artifacts import ArtifactRef, read_parquet
from hierarchy.bags import Vectors
from hierarchy.levels import Level
from hierarchy.recall import Scorer


class Profiles(NamedTuple):
    """Bags of n entities: ids string (n,), weights sparse float32 (n, K), with K the primitives of all levels."""

    ids: pa.Array
    weights: sparse.csr_array


def read_profiles(tokens: ArtifactRef, kind: str, levels: Sequence[Level], time: int) -> Profiles:
    """The last bag of every entity of `kind` with as_of <= `time` [us]. Memory: the tokens of that type till then."""
    condition = (pc.field("entity_type") == kind) & (pc.field("as_of") <= time)
    columns = ["entity_id", "primitive_id", "weight", "as_of"]
    table = read_parquet(tokens.file("tokens.parquet"), columns, condition).combine_chunks()
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


class TokenIndex:
    """Posting lists, of each primitive the products by falling impact idf(p) * w(i, p) * (1 + events(i)) ** prior."""

    def __init__(self, products: sparse.csr_array, events: NDArray[np.int64], prior: float) -> None:
        """`products` (n, K) holds their weights, `events` (n,) how often each was engaged with. O(tokens)."""
        mass = np.asarray(products.sum(axis=0)).ravel()
        idf = np.log1p(len(events) / np.maximum(mass, 1e-30))
        weighed = products.tocoo()
        boost = (1.0 + events[weighed.row]) ** prior
        impact = (weighed.data * idf[weighed.col] * boost).astype(np.float32)
        self.num_products = products.shape[0]
        self._impacts = sparse.csr_array((impact, (weighed.row, weighed.col)), shape=products.shape)
        order = np.lexsort((weighed.row, -impact, weighed.col))
        self._items, self._impact = weighed.row[order].astype(np.int64), impact[order]
        self._first = np.searchsorted(weighed.col[order], np.arange(products.shape[1] + 1))

    def scores(self, profiles: sparse.csr_array) -> Vectors:
        """Scores float32 (B, n) of all products for profiles (B, K)."""
        return np.asarray((profiles @ self._impacts.T).toarray(), np.float32)

    def candidates(self, profile: tuple[NDArray[np.int64], Vectors], budget: int) -> NDArray[np.int64]:
        """The first `budget` products that are met when the lists of primitives (t,) with weights (t,) are read in
        order of impact; fewer where the lists end. O(t budget)."""
        items, impacts = [], []
        for primitive, weight in zip(*profile, strict=True):
            # A list that is read alone gives the whole budget, so no more of any list is ever needed.
            stop = min(self._first[primitive] + budget, self._first[primitive + 1])
            items.append(self._items[self._first[primitive] : stop])
            impacts.append(self._impact[self._first[primitive] : stop] * weight)
        if not items:
            return np.zeros(0, np.int64)
        met = np.concatenate(items)[np.argsort(-np.concatenate(impacts), kind="stable")]
        return met[np.sort(np.unique(met, return_index=True)[1])[:budget]]


class TokenRetrieval:
    """A `hierarchy.recall.Scorer` that scores `budget` products a user and leaves the others at -inf.

    `found` and `asked` count, over all calls, the products scored and the users.
    """

    def __init__(
        self, index: TokenIndex, profiles: sparse.csr_array, budget: int, within: Scorer | None = None
    ) -> None:
        """`profiles` (users, K) by internal id. `within` ranks the candidates in place of their tokens: it must score
        like the scorer that it is compared with, and only its scores of candidates are used."""
        self._index, self._profiles, self._budget, self._within = index, profiles, budget, within
        self.found = self.asked = 0

    def scores(self, users: NDArray[np.int64]) -> Vectors:
        """Scores (B, products) of users (B,)."""
        own = self._profiles[users]
        every = self._index.scores(own) if self._within is None else self._within.scores(users)
        scores = np.full(every.shape, -np.inf, np.float32)
        for row in range(len(users)):
            part = slice(own.indptr[row], own.indptr[row + 1])
            met = self._index.candidates((own.indices[part], own.data[part]), self._budget)
            scores[row, met] = every[row, met]
            self.found += len(met)
        self.asked += len(users)
        return scores

    def share_scored(self) -> float:
        """Mean share of the products that was scored for a user so far."""
        return float(self.found / max(self.asked * self._index.num_products, 1))
