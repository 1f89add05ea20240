"""Levels by what their members are about: the finest divided with content, the coarser ones unions of those.

Divided from the top, a level of few primitives cuts through what belongs together; united from below it cannot. Two
unions of masses a and b whose members' content is on average d apart are joined at the least

    cost = d ** 2 * (a * b / (a + b)) ** gamma

gamma 1 is Ward's (1963) "Hierarchical grouping to optimize an objective function", gamma 0 centroid linkage. The
smaller, the more uneven the unions: interests are not equal in size, and a large one is not to be cut for balance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy, normalize

from hierarchy.kmeans import group_sums

GAMMAS = (0.25, 0.5, 0.75, 1.0)

_STEPS, _RATE = 60, 0.02  # of the search for prototypes that tell unions apart
_TINY = 1e-9

_ROUNDS = 12  # of k-means with content

Matrix = NDArray[np.float64]


def with_content(vectors: torch.Tensor, content: torch.Tensor, own: torch.Tensor, weight: float) -> torch.Tensor:
    """The cluster int64 (N,) of each of unit `vectors` (N, d) and `content` (N, D) laid side by side, content counting
    `weight`: k-means that goes on from the clusters `own` (N,), none of which is born anew. O(N k (d + D))."""
    beside = normalize(torch.cat([vectors, weight * normalize(content, dim=1)], dim=1), dim=1)
    for _ in range(_ROUNDS):
        sums = torch.zeros(int(own.max()) + 1, beside.shape[1], device=beside.device).index_add_(0, own, beside)
        own = (beside @ normalize(sums, dim=1).t()).argmax(dim=1)
    return own


def unions(sums: Matrix, mass: Matrix, sizes: Sequence[int], evenness: float) -> list[NDArray[np.int64]]:
    """The union of each of n primitives int64 (n,) at each of `sizes`, coarse to fine and all below n.

    `sums` (n, D) of their members' content, `mass` (n,). A level's unions are those of the smallest of GAMMAS at which
    the perplexity of their masses is at least `evenness` times their number, else of the largest. Each level is joined
    from the next finer one, so that unions nest. Time about O(n^2 D) a try, memory O(n D).
    """
    found: list[NDArray[np.int64]] = []
    joined = np.arange(len(mass))
    for k in reversed(sizes):
        for gamma in GAMMAS:
            step = joined_to(sums, mass, k, gamma)
            shares = np.asarray(np.bincount(step, mass, minlength=k), np.float64)
            if _perplexity(shares) >= evenness * k:
                break
        sums, mass = group_sums(sums, step, k), shares
        joined = step[joined]
        found.insert(0, joined)
    return found


def joined_to(sums: Matrix, mass: Matrix, k: int, gamma: float) -> NDArray[np.int64]:
    """The union, numbered from 0 to k - 1, of each of n primitives int64 (n,) once only `k` unions are left."""
    sums, mass, union = sums.copy(), mass + _TINY, np.arange(len(mass))
    alive = np.ones(len(mass), bool)
    nearest, least = np.zeros(len(mass), np.int64), np.full(len(mass), np.inf)

    def look(row: int) -> Matrix:
        cost = _costs(sums, mass, row, gamma)
        cost[~alive] = np.inf
        cost[row] = np.inf
        nearest[row], least[row] = cost.argmin(), cost.min()
        return cost

    for each in range(len(mass)):
        look(each)
    for _ in range(len(mass) - k):
        one, other = sorted((int(least.argmin()), int(nearest[least.argmin()])))
        sums[one] += sums[other]
        mass[one] += mass[other]
        union[union == other] = one
        alive[other], least[other] = False, np.inf
        cost = look(one)
        for row in np.flatnonzero(alive & np.isin(nearest, (one, other))).tolist():
            if row != one:
                look(row)
        closer = alive & (cost < least)
        nearest[closer], least[closer] = one, cost[closer]
    return np.searchsorted(np.flatnonzero(alive), union)


def told_apart(members: torch.Tensor, weights: torch.Tensor, union: torch.Tensor, temperature: float) -> torch.Tensor:
    """Unit prototypes (k, d) of k unions: near the mean of theirs, yet such that the nearest says which union it is.

    Of unit `members` (n, d) with `weights` (n,) the `union` (n,) is to be told by a softmax of cosines at
    `temperature`, as learning vector quantisation moves prototypes (Kohonen, 1990); how far they stray from the means
    costs as much. Every union has a member. Time O(n k d), memory O(n k).
    """
    share = weights / weights.sum()
    sums = torch.zeros(int(union.max()) + 1, members.shape[1], device=members.device)
    means = normalize(sums.index_add_(0, union, members * weights[:, None]), dim=1)
    with torch.enable_grad():
        free = means.clone().requires_grad_(True)
        optimizer = torch.optim.Adam([free], lr=_RATE)
        for _ in range(_STEPS):
            made = normalize(free, dim=1)
            wrong = (share * cross_entropy(members @ made.t() / temperature, union, reduction="none")).sum()
            strayed = 1 - (made * means).sum(dim=1).mean()
            optimizer.zero_grad()
            (wrong + strayed).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return normalize(free.detach(), dim=1)


def content_space(content: NDArray[np.float32]) -> Matrix:
    """Content (n, D) with each direction stretched by how much of it there is: what varies most says what is broad.

    Features are whitened in part, so that fine differences count in a search; this takes it back.
    """
    wide = content.astype(np.float64)
    second = wide.T @ wide / max(len(wide), 1)
    floor = _TINY * max(float(np.trace(second)), _TINY)
    return np.asarray(wide @ np.linalg.cholesky(second + floor * np.eye(len(second))))


def _costs(sums: Matrix, mass: Matrix, row: int, gamma: float) -> Matrix:
    apart = sums / mass[:, None] - sums[row] / mass[row]
    return np.asarray((apart**2).sum(axis=1) * (mass * mass[row] / (mass + mass[row])) ** gamma)


def _perplexity(mass: Matrix) -> float:
    share = mass[mass > 0] / mass.sum()
    return float(np.exp(-(share * np.log(share)).sum()))
