"""Score of a pair: positive pointwise mutual information, trusted as far as different users stand behind it.

PMI: Church & Hanks (1990). Positive part and marginals that are sums of the pairs' own weights, as in a word-context
matrix: Levy & Goldberg (2014). Rare pairs make PMI large by chance, hence a factor u / (u + shrinkage), as for
similarities in Bell & Koren (2007), with u the estimated number of different users; and no more than `days_per_user`
user-days count for each of them, so that one user's hundred days weigh little more than one user's day.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graph.coengagement import Config
from graph.groups import rank, starts
from graph.pairs import SUPPORT_UNIT, Pairs


def score(pairs: Pairs, mass: NDArray[np.int64], config: Config) -> NDArray[np.float32]:
    """Shrunken positive PMI of each pair, float32 (n,), 0 where two nodes meet no more often than by chance.

    `mass` int64 (nodes,) is the sum of the weights of all pairs that ever had each node first.
    """
    users = distinct_users(pairs)
    weight = pairs.weight.astype(np.float64)
    if config.days_per_user is not None:
        weight *= np.minimum(config.days_per_user * users * SUPPORT_UNIT / pairs.support, 1)
    expected = mass[pairs.first].astype(np.float64) * mass[pairs.second] / max(int(mass.sum()), 1)
    pmi = np.log(np.maximum(weight / np.maximum(expected, 1), 1))
    return (pmi * users / (users + config.shrinkage)).astype(np.float32)


def distinct_users(pairs: Pairs) -> NDArray[np.float64]:
    """Estimated different users behind each pair, float64 (n,): linear counting, at most its user-days."""
    empty = 64 - np.minimum(np.bitwise_count(pairs.users), 63).astype(np.float64)
    estimate: NDArray[np.float64] = np.minimum(64 * np.log(64 / empty), pairs.support / SUPPORT_UNIT)
    return estimate


def supported(pairs: Pairs, config: Config) -> NDArray[np.bool_]:
    """Pairs with enough user-days from enough different users to become an edge, bool (n,)."""
    return (pairs.support >= config.min_support * SUPPORT_UNIT) & (np.bitwise_count(pairs.users) >= config.min_users)


def best(pairs: Pairs, scores: NDArray[np.float32], most: int) -> NDArray[np.int64]:
    """Positions, in order, of the `most` best-scored pairs of each first node; of equal ones those of more weight, then
    of the smaller second node."""
    order = np.lexsort((pairs.second, -pairs.weight, -scores, pairs.first))
    return np.sort(order[rank(starts(pairs.first[order])) < most])
