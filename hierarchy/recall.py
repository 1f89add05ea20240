"""Recall@k and NDCG@k with full ranking: every allowed product is ranked for every user, in chunks of users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hierarchy.purchases import History

_BLOCK = 64


class Scorer(Protocol):
    """A retrieval method, made for one date."""

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores (B, products) of users (B,); larger is better. The caller may write into the answer."""
        ...


class Inductive(Scorer, Protocol):
    """A fitted method that needs no refit when users have had more since."""

    def grown(self, history: History) -> Inductive:
        """The same parameters for what users had by a later date: only each user's own history grows."""
        ...


@dataclass(frozen=True)
class Question:
    """What is to be found: `targets` bool (users, products) among `allowed` bool (products,), but for what is `barred`
    (users, products), None for nothing. Targets that are barred or not allowed do not count."""

    name: str
    targets: sparse.csr_array
    allowed: NDArray[np.bool_]
    barred: sparse.csr_array | None = None

    def wanted(self, users: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The targets that count: place of the user in (B,), and product, int64 (t,) both, in that order."""
        row, product = self.targets[users].nonzero()
        kept = self.allowed[product]
        if self.barred is not None:
            kept &= ~np.isin(_pairs(row, product, len(self.allowed)), self._barred_pairs(users))
        order = np.lexsort((product[kept], row[kept]))
        return row[kept][order].astype(np.int64), product[kept][order].astype(np.int64)

    def asked(self, scores: NDArray[np.float32], users: NDArray[np.int64]) -> NDArray[np.float32]:
        """A copy of scores (B, products), minus infinity for what must not be ranked."""
        own = scores.copy()
        own[:, ~self.allowed] = -np.inf
        if self.barred is not None:
            row, product = self.barred[users].nonzero()
            own[row, product] = -np.inf
        return own

    def _barred_pairs(self, users: NDArray[np.int64]) -> NDArray[np.int64]:
        assert self.barred is not None
        row, product = self.barred[users].nonzero()
        return _pairs(row, product, len(self.allowed))


@dataclass(frozen=True)
class Found:
    """Where t targets of `asked` users landed: row of the user, product, and place in the ranking, int64 (t,).

    Places count from 0 and are `depth` for a target that is not among the best `depth`. From this follow recall and
    NDCG for every k up to the depth, over all targets or some.
    """

    asked: int
    depth: int
    row: NDArray[np.int64]
    product: NDArray[np.int64]
    place: NDArray[np.int64]

    def targets(self) -> NDArray[np.int64]:
        """Targets of each user (asked,)."""
        return np.bincount(self.row, minlength=self.asked)

    def only(self, products: NDArray[np.bool_]) -> Found:
        """The same ranking asked about some products (products,) alone."""
        kept = products[self.product]
        return Found(self.asked, self.depth, self.row[kept], self.product[kept], self.place[kept])

    def recall(self, k: int, over: Literal["targets", "reachable"]) -> NDArray[np.float64]:
        """Hits among the best k of each user (asked,), NaN without targets.

        They are divided by the number of targets, as in LightGCN (He et al., 2020), or by min(k, targets), what a
        perfect ranking could reach.
        """
        targets = self.targets()
        whole = targets if over == "targets" else np.minimum(targets, k)
        hits = np.bincount(self.row[self.place < k], minlength=self.asked)
        return np.where(targets > 0, hits / np.maximum(whole, 1), np.nan)

    def ndcg(self, k: int) -> NDArray[np.float64]:
        """Gain of each user (asked,), 1 / log2(place + 2) a hit, over that of min(k, targets) hits at the top."""
        targets, hit = self.targets(), self.place < k
        gain = np.bincount(self.row[hit], 1 / np.log2(self.place[hit] + 2.0), minlength=self.asked)
        ideal = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(k) + 2.0))])
        return np.where(targets > 0, gain / np.maximum(ideal[np.minimum(targets, k)], 1e-12), np.nan)


def rank(
    scorer: Scorer, questions: Sequence[Question], users: NDArray[np.int64], depth: int, chunk: int = 128
) -> list[Found]:
    """The places of the targets of `users` (u,) for each question, down to `depth`.

    Scores are made once for all questions and every k. Memory: a few arrays of chunk x products. Of equal scores the
    product with the smaller id comes first.
    """
    found: list[list[Found]] = [[] for _ in questions]
    for start in range(0, len(users), chunk):
        part = users[start : start + chunk]
        scores = scorer.scores(part)
        for one, question in zip(found, questions, strict=True):
            one.append(_places(scores, question, part, depth, start))
    return [_joined(one, len(users), depth) for one in found]


def recall_at(
    scorer: Scorer, questions: Sequence[Question], users: NDArray[np.int64], k: int = 20, chunk: int = 128
) -> list[tuple[NDArray[np.float64], int]]:
    """For each question the recall of each user (users,) and the number of targets that count.

    Recall is the hits among the best k / min(k, targets), NaN for a user without targets.
    """
    found = rank(scorer, questions, users, k, chunk)
    return [(one.recall(k, "reachable"), len(one.row)) for one in found]


def best(scores: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of the `k` largest scores of each row of (B, n), best first; of equal ones the first column.

    The k-th largest of the maxima of blocks of columns is a floor under the k-th largest score, so that few candidates
    are left to sort: several times faster than a partition of whole rows, and exact.
    """
    maxima = np.maximum.reduceat(scores, np.arange(0, scores.shape[1], _BLOCK), axis=1)
    floor = np.full(len(scores), -np.inf, scores.dtype)
    if maxima.shape[1] >= k:
        floor = np.partition(maxima, maxima.shape[1] - k, axis=1)[:, -k]
    row, column = np.nonzero(scores >= floor[:, None])
    order = np.lexsort((column, -scores[row, column], row))
    row, column = row[order], column[order]
    kept = np.arange(len(row)) - np.searchsorted(row, row) < k
    return row[kept], column[kept]


def _places(scores: NDArray[np.float32], question: Question, users: NDArray[np.int64], depth: int, start: int) -> Found:
    row, column = best(question.asked(scores, users), depth)
    pairs, width = _pairs(row, column, scores.shape[1]), scores.shape[1]
    order, rank_of = np.argsort(pairs), np.arange(len(row)) - np.searchsorted(row, row)
    user, product = question.wanted(users)
    asked = _pairs(user, product, width)
    near = np.minimum(np.searchsorted(pairs, asked, sorter=order), len(pairs) - 1)
    found = pairs[order[near]] == asked
    return Found(len(users), depth, user + start, product, np.where(found, rank_of[order[near]], depth))


def _pairs(row: NDArray[np.int64], column: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """One number for each pair."""
    return np.asarray(row, np.int64) * width + column


def _joined(parts: Sequence[Found], asked: int, depth: int) -> Found:
    columns = [[getattr(part, name) for part in parts] for name in ("row", "product", "place")]
    none = [np.zeros(0, np.int64)]
    return Found(asked, depth, *(np.concatenate(none + column) for column in columns))
