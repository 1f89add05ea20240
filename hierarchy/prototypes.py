"""Interest primitives: unit prototypes at several granularities, in the space of users, products and advertisers.

Updated by hard-assigned, Sinkhorn-balanced EM on teacher vectors (an exponential average of member sums, as VQ-VAE
codebooks are: van den Oord et al., 2017, arXiv:1711.00937); losses see them without gradient. Soft or joint updates
tend to duplicate prototypes; balance, a spread term and reseeding keep them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn
from torch.nn.functional import normalize

from hierarchy.kmeans import group_sums, hierarchical_kmeans
from hierarchy.levels import PARENT_TAU
from hierarchy.losses.spread import spread_loss
from hierarchy.unions import content_space, told_apart, unions, with_content

DUPLICATE_COSINE = 0.95
"""Two primitives of one level closer than this say the same thing."""

_DEAD_SHARE = 0.1  # of an equal share, while primitives settle
_EMPTY = 1e-6  # of an equal share: less than one vector

Assign = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From cosines (N, K) and masses (K,) to assignments (N, K)."""


class Level(BaseModel):
    """One granularity: `k` primitives, of which an entity's tokens keep the `top` strongest."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    k: int = Field(ge=2, description="Primitives of this level.")
    top: int = Field(ge=1, description="Tokens kept per entity at this level.")


class Hubs(NamedTuple):
    """Primitives as tokens of each seed: P = K1 coarse ones that all seeds share, then C children of each seed's own.

    coarse (K1, d), children (B, C, d), level int64 (P,), log_mass (B, P), mask bool (B, P).
    """

    coarse: torch.Tensor
    children: torch.Tensor
    level: torch.Tensor
    log_mass: torch.Tensor
    mask: torch.Tensor


class Prototypes(nn.Module):
    """All levels, coarse to fine. They are tokens to nobody until `join`."""

    joined: torch.Tensor

    def __init__(self, sizes: tuple[int, ...], dim: int, hub_parents: int, hub_children: int) -> None:
        super().__init__()
        self.sizes, self.hub_parents, self.hub_children = sizes, hub_parents, hub_children
        for level, k in enumerate(sizes):
            self.register_buffer(f"vectors_{level}", torch.zeros(k, dim))
            self.register_buffer(f"sums_{level}", torch.zeros(k, dim))
            self.register_buffer(f"mass_{level}", torch.full((k,), 1.0 / k))
            if level:
                self.register_buffer(f"children_{level}", torch.full((sizes[level - 1], hub_children), -1))
        self.register_buffer("joined", torch.zeros((), dtype=torch.bool))
        self._seen_joined = False

    @property
    def num_levels(self) -> int:
        """Number of granularities."""
        return len(self.sizes)

    def vectors(self, level: int) -> torch.Tensor:
        """Unit prototypes (K, d) of `level` (0 = coarsest)."""
        return self.get_buffer(f"vectors_{level}")

    def mass(self, level: int) -> torch.Tensor:
        """Running share (K,) of vectors that belong to each primitive; sums to about 1."""
        return self.get_buffer(f"mass_{level}")

    def parents(self, level: int, temperature: float = PARENT_TAU) -> torch.Tensor:
        """Soft parent links (K_level, K_level-1) of `level` >= 1: softmax of cosines; the largest is kept at export."""
        return torch.softmax(self.vectors(level) @ self.vectors(level - 1).t() / temperature, dim=1)

    def initialise(self, vectors: torch.Tensor, seed: int) -> None:
        """Hierarchical k-means on unit teacher `vectors` (N, d); raises BadDataError when N < the finest k."""
        rng = np.random.default_rng(seed)
        for level, centroids in enumerate(hierarchical_kmeans(vectors.cpu().numpy(), self.sizes, rng)):
            found = torch.from_numpy(centroids).to(vectors.device)
            assigned = (vectors @ found.t()).argmax(dim=1)
            mass = torch.bincount(assigned, minlength=len(found)).float() / len(vectors)
            self._set(level, found, mass)
        self.refresh()

    def join(self) -> None:
        """From now on they are hub tokens: to be called when encoders begin to learn with them, and only then."""
        self.joined.fill_(True)

    @torch.no_grad()
    def refresh(self) -> None:
        """Recompute which children stand for each parent as hub tokens: the nearest `hub_children` of its own."""
        for level in range(1, self.num_levels):
            cosine = self.vectors(level) @ self.vectors(level - 1).t()
            own = torch.zeros_like(cosine, dtype=torch.bool).scatter_(1, cosine.argmax(dim=1, keepdim=True), True)
            ranked = cosine.masked_fill(~own, -2.0).t()
            count = min(self.hub_children, ranked.shape[1])
            best, index = ranked.topk(count, dim=1)
            self.get_buffer(f"children_{level}")[:, :count] = index.masked_fill(best <= -2.0, -1)

    @torch.no_grad()
    def hubs(self, state: torch.Tensor) -> Hubs | None:
        """Hub tokens of unit query states (B, d): all coarse primitives, then the children of the best parents.

        Their number depends on the depth of the hierarchy, not on how many primitives there are. None before `join`:
        an encoder that never learned with such tokens must not be shown any.
        """
        if not self._there():
            return None
        coarse, device = self.vectors(0), state.device
        chosen, similarity = torch.arange(len(coarse), device=device).expand(len(state), -1), state @ coarse.t()
        levels = [torch.zeros(len(coarse), dtype=torch.int64, device=device)]
        vectors, log_mass, masks = (
            [state.new_zeros((len(state), 0, state.shape[1]))],
            [self._log_mass(0)[chosen]],
            [chosen >= 0],
        )
        for level in range(1, self.num_levels):
            best = similarity.topk(min(self.hub_parents, similarity.shape[1]), dim=1).indices
            parents = chosen.gather(1, best)
            children = self.get_buffer(f"children_{level}")[parents.clamp_min(0)]
            chosen = torch.where(parents[..., None] < 0, -1, children).flatten(1)
            masks.append(chosen >= 0)
            vectors.append(self.vectors(level)[chosen.clamp_min(0)])
            log_mass.append(self._log_mass(level)[chosen.clamp_min(0)])
            levels.append(torch.full((chosen.shape[1],), level, device=device))
            similarity = torch.bmm(vectors[-1], state[:, :, None])[:, :, 0].masked_fill(~masks[-1], -2.0)
        return Hubs(coarse, torch.cat(vectors, 1), torch.cat(levels), torch.cat(log_mass, 1), torch.cat(masks, 1))

    @torch.no_grad()
    def update(self, vectors: torch.Tensor, targets: list[torch.Tensor], momentum: float, spread: float) -> None:
        """One EM step: move each primitive towards the vectors (B, d) whose `targets` (B, K) are largest for it.

        `momentum` in [0, 1) is how much of the old sums stays; `spread` is the weight of the step against duplicates.
        """
        for level, assignment in enumerate(targets):
            members = torch.zeros_like(assignment).scatter_(1, assignment.argmax(dim=1, keepdim=True), 1.0)
            sums = self.get_buffer(f"sums_{level}")
            sums.mul_(momentum).add_(members.t() @ vectors, alpha=(1 - momentum) / len(vectors))
            self.mass(level).mul_(momentum).add_(members.mean(dim=0), alpha=1 - momentum)
            moved = normalize(sums, dim=1)
            if spread:
                moved = normalize(moved - spread * _spread_gradient(moved), dim=1)
            self.vectors(level).copy_(moved)

    @torch.no_grad()
    def settle(self, vectors: torch.Tensor, rounds: int, assign: Assign) -> None:
        """`rounds` of EM over all of `vectors` (N, d) at once: what steps on a few vectors at a time began is finished.

        `assign`: from cosines (N, K) and masses (K,) to assignments (N, K). After each round what is dead or double
        restarts, after the last only what is double. Time and memory O(N K).
        """
        for left in reversed(range(rounds)):
            for level in range(self.num_levels):
                own = assign(vectors @ self.vectors(level).t(), self.mass(level)).argmax(dim=1)
                sums = torch.zeros_like(self.vectors(level)).index_add_(0, own, vectors)
                mass = torch.bincount(own, minlength=len(sums)).float() / len(vectors)
                self._set(level, torch.where(mass[:, None] > 0, normalize(sums, dim=1), self.vectors(level)), mass)
            self.reseed(vectors, _DEAD_SHARE if left else 0.0)

    @torch.no_grad()
    def divide(self, vectors: torch.Tensor, content: torch.Tensor, weight: float, temperature: float) -> None:
        """Make the finest level anew, of `vectors` (N, d) that are also alike in `content` (N, D), as told apart by
        vectors alone (hierarchy.unions)."""
        finest = self.num_levels - 1
        own = with_content(vectors, content, (vectors @ self.vectors(finest).t()).argmax(dim=1), weight)
        used, place = torch.unique(own, return_inverse=True)
        made = self.vectors(finest).clone()
        made[used] = told_apart(vectors, torch.ones_like(vectors[:, 0]), place, temperature)
        self._measured(finest, made, vectors)
        self.reseed(vectors, _EMPTY)

    @torch.no_grad()
    def unite(self, vectors: torch.Tensor, content: torch.Tensor, evenness: float, temperature: float) -> None:
        """Make the coarser levels anew, as unions of the finest primitives by the content of the `vectors` (N, d) that
        are theirs (hierarchy.unions). `content` (N, D); where there is none, the vectors are it."""
        finest = self.num_levels - 1
        own = (vectors @ self.vectors(finest).t()).argmax(dim=1)
        weights = torch.bincount(own, minlength=self.sizes[finest]).float()
        members = normalize(torch.zeros_like(self.vectors(finest)).index_add_(0, own, vectors), dim=1)
        about = content_space((content if content.any() else vectors).cpu().numpy())
        sums = group_sums(about.astype(np.float64), own.cpu().numpy(), len(weights))
        found = unions(sums, weights.double().cpu().numpy(), self.sizes[:finest], evenness)
        for level, union in enumerate(found):
            place = torch.from_numpy(union).to(members.device)
            self._measured(level, told_apart(members, weights, place, temperature), vectors)
        self.reseed(vectors, _EMPTY)

    @torch.no_grad()
    def reseed(self, pool: torch.Tensor, dead_share: float) -> list[int]:
        """Restart dead and duplicate primitives at the vectors of `pool` (N, d) that are served worst; counts by level.

        Dead: mass under `dead_share` of an equal share. Duplicate: the lighter of a pair above DUPLICATE_COSINE. One
        after the other, so that none restarts where the one before it did.
        """
        counts = []
        for level, k in enumerate(self.sizes):
            vectors, mass = self.vectors(level), self.mass(level)
            bad = torch.nonzero((mass < dead_share / k) | duplicates(vectors, mass))[:, 0][: len(pool)]
            good = torch.ones_like(mass, dtype=torch.bool).index_fill_(0, bad, False)
            served = (pool @ vectors.t()).masked_fill_(~good, -2.0).amax(dim=1)
            for row in bad:
                # Not pool[...]: to a GPU that would be a question for each primitive.
                worst = pool.index_select(0, served.argmin()[None])
                vectors.index_copy_(0, row[None], worst)
                served = torch.maximum(served, pool @ worst[0])
            mass[bad] = 1.0 / k
            self.get_buffer(f"sums_{level}")[bad] = vectors[bad] / k
            counts.append(len(bad))
        self.refresh()
        return counts

    def _there(self) -> bool:
        """`joined`, of which the answer yes is remembered by the host: it stays, and a GPU need not be asked again."""
        self._seen_joined = self._seen_joined or bool(self.joined)
        return self._seen_joined

    def _set(self, level: int, vectors: torch.Tensor, mass: torch.Tensor) -> None:
        self.vectors(level).copy_(vectors)
        self.mass(level).copy_(mass)
        self.get_buffer(f"sums_{level}").copy_(vectors * mass[:, None])

    def _measured(self, level: int, made: torch.Tensor, vectors: torch.Tensor) -> None:
        """Put primitives `made` (K, d) at `level`, with the share of `vectors` (N, d) that each is nearest to."""
        counts = torch.bincount((vectors @ made.t()).argmax(dim=1), minlength=len(made)).float()
        self._set(level, made, counts / len(vectors))

    def _log_mass(self, level: int) -> torch.Tensor:
        # Relative to an equal share and clamped: an empty primitive stays reachable, a huge one does not take all.
        return torch.log((self.mass(level) * self.sizes[level]).clamp(0.05, 20.0))


def duplicates(vectors: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """Which primitives (K,) have a heavier one (at equal mass an earlier one) within DUPLICATE_COSINE."""
    close = (vectors @ vectors.t()) > DUPLICATE_COSINE
    order = torch.arange(len(mass), device=mass.device)
    heavier = (mass[None, :] > mass[:, None]) | ((mass[None, :] == mass[:, None]) & (order[None, :] < order[:, None]))
    return (close & heavier).any(dim=1)


def _spread_gradient(vectors: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        leaf = vectors.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(spread_loss(leaf), leaf)
    return gradient * len(vectors)
